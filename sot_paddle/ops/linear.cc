// The bias of a linear layer, float32: y = x + b on the product's own memory; dx = dy, db = the sum
// of dy over the rows.
#include "blocks.h"

namespace sot::linear {

Tensors Forward(const Tensor& x, const Tensor& bias) {
  return add_bias(x, bias, [](float sum) { return sum; });
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
