// The bias of a linear layer, float32: y = x + b on the product's own memory; dx = dy, db = the sum
// of dy over the rows.
#include "blocks.h"

namespace sot::linear {

Tensors Forward(const Tensor& x, const Tensor& bias) {
  const int64_t width = bias.numel(), rows = x.numel() / width;
  float* at = const_cast<float*>(x.data<float>());
  const float* b = bias.data<float>();
  in_blocks(rows, rows_of_block(rows), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* to = at + row * width;
#pragma omp simd
      for (int64_t i = 0; i < width; ++i) to[i] += b[i];
    }
  });
  return {x};
}

Tensors Backward(const Tensor& bias, const Tensor& gradient) {
  const Tensor dy = dense(gradient);
  const int64_t width = bias.numel(), rows = dy.numel() / width;
  Tensor db = paddle::empty({width}, bias.dtype(), bias.place());
  column_sums<float>(rows, width, dy.data<float>(), db.data<float>());
  return {dy, db};
}

const Operator kAddBias("sot_add_bias", {},
                        {{"X", "Bias"}, {"Out"}, PD_KERNEL(Forward)},
                        {{"Bias", Grad("Out")}, {Grad("X"), Grad("Bias")}, PD_KERNEL(Backward)});

}  // namespace sot::linear
