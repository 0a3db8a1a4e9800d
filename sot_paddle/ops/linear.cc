// The bias of a linear layer, float32: y = x + b on the product's own memory; dx = dy, db = the sum
// of dy over the rows.
#include "blocks.h"

namespace sot {
namespace linear {

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
  const float* g = dy.data<float>();
  ColumnSums<> sums(rows, width);
  in_blocks(rows, rows_of_block(rows), [=, &sums](int64_t begin, int64_t end) {
    float* sum = sums.of_block(begin);
    for (int64_t row = begin; row < end; ++row) {
      const float* at = g + row * width;
#pragma omp simd
      for (int64_t i = 0; i < width; ++i) sum[i] += at[i];
    }
  });
  sums.add_up(0, width, db.data<float>());
  return {dy, db};
}

}  // namespace linear
}  // namespace sot

PD_BUILD_OP(sot_add_bias)
    .Inputs({"X", "Bias"})
    .Outputs({"Out"})
    .SetKernelFn(PD_KERNEL(sot::linear::Forward));

PD_BUILD_GRAD_OP(sot_add_bias)
    .Inputs({"Bias", paddle::Grad("Out")})
    .Outputs({paddle::Grad("X"), paddle::Grad("Bias")})
    .SetKernelFn(PD_KERNEL(sot::linear::Backward));

SOT_ONCE_ONLY(sot_add_bias, "X");
