// A linear layer whose products take their factors in bfloat16 (rounded to nearest even) and add up
// in float32: y = x w + b, dx = dy w^T, dw = x^T dy; db, the sum of dy over the rows, in float32.
//
// The products are oneDNN's, see onednn.h. Of a weight that is trained nothing is kept.
#include "blocks.h"
#include "packed_weights.h"

namespace sot {
namespace bfloat16 {

Tensors Forward(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  const Tensor x = dense(input), w = dense(weight), b = dense(bias);
  const int64_t depth = w.shape()[0], width = w.shape()[1], rows = x.numel() / depth;
  auto shape = x.shape();
  shape.back() = width;
  Tensor y = paddle::empty(shape, x.dtype(), x.place());
  packed::forget(w);
  const Factor left(x, depth), right(w, width);
  const onednn::Matrix shift = floats(1, width, b.data<float>());
  onednn::multiply(left.plain(), right.plain(), &shift, floats(rows, width, y.data<float>()));
  return {y};
}

Tensors Backward(const Tensor& input, const Tensor& weight, const Tensor& gradient) {
  const Tensor x = dense(input), w = dense(weight), dy = dense(gradient);
  const int64_t depth = w.shape()[0], width = w.shape()[1], rows = x.numel() / depth;
  Tensor dx = paddle::empty_like(x), dw = paddle::empty_like(w);
  Tensor db = paddle::empty({width}, x.dtype(), x.place());
  const Factor left(x, depth), right(w, width), g(dy, width);
  onednn::multiply(g.plain(), right.turned(), nullptr, floats(rows, depth, dx.data<float>()));
  onednn::multiply(left.turned(), g.plain(), nullptr, floats(depth, width, dw.data<float>()));
  const float* from = dy.data<float>();
  const auto sums =
      column_sums(rows, width, [=](int64_t row, int64_t i) { return from[row * width + i]; });
  std::copy(sums.begin(), sums.end(), db.data<float>());
  return {dx, dw, db};
}

}  // namespace bfloat16
}  // namespace sot

PD_BUILD_OP(sot_bfloat16_linear)
    .Inputs({"X", "Weight", "Bias"})
    .Outputs({"Out"})
    .SetKernelFn(PD_KERNEL(sot::bfloat16::Forward));

PD_BUILD_GRAD_OP(sot_bfloat16_linear)
    .Inputs({"X", "Weight", paddle::Grad("Out")})
    .Outputs({paddle::Grad("X"), paddle::Grad("Weight"), paddle::Grad("Bias")})
    .SetKernelFn(PD_KERNEL(sot::bfloat16::Backward));

SOT_ONCE_ONLY(sot_bfloat16_linear, "X");
