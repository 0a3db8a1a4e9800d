// Linear layers of inference: weights in bfloat16 that are kept packed, factors rounded to nearest
// even, sums in float32. Nothing is differentiated.
#include "packed_weights.h"

namespace sot {
namespace packed {

// y (rows, n) = f(x w + b) in one precision or the other; f is GELU or nothing.
void apply(const Factor& x, const Pack& w, const Tensor& b, const onednn::Matrix& y, bool gelu) {
  const onednn::Matrix shift = floats(1, w.width, b.data<float>());
  onednn::multiply(x.plain(), *w.matrix, &shift, y, gelu);
}

Tensor rows_like(const Tensor& x, int64_t width) {
  auto shape = x.shape();
  shape.back() = width;
  return paddle::empty(shape, x.dtype(), x.place());
}

Tensors Linear(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  const Tensor x = dense(input), w = dense(weight), b = dense(bias);
  const int64_t depth = w.shape()[0], width = w.shape()[1], rows = x.numel() / depth;
  Tensor y = rows_like(x, width);
  apply(Factor(x, depth), *of(w, rows), b, floats(rows, width, y.data<float>()), false);
  return {y};
}

// gelu(x w1 + b1) w2 + b2: what lies between the two is written once, rounded.
Tensors FeedForward(const Tensor& input, const Tensor& weight1, const Tensor& bias1,
                    const Tensor& weight2, const Tensor& bias2) {
  const Tensor x = dense(input), w1 = dense(weight1), b1 = dense(bias1);
  const Tensor w2 = dense(weight2), b2 = dense(bias2);
  const int64_t depth = w1.shape()[0], inner = w1.shape()[1], width = w2.shape()[1];
  const int64_t rows = x.numel() / depth;
  const Factor between(rows, inner);
  apply(Factor(x, depth), *of(w1, rows), b1, between.plain(), true);
  Tensor y = rows_like(x, width);
  apply(between, *of(w2, rows), b2, floats(rows, width, y.data<float>()), false);
  return {y};
}

}  // namespace packed
}  // namespace sot

PD_BUILD_OP(sot_packed_linear)
    .Inputs({"X", "Weight", "Bias"})
    .Outputs({"Out"})
    .SetKernelFn(PD_KERNEL(sot::packed::Linear));

PD_BUILD_OP(sot_packed_feed_forward)
    .Inputs({"X", "Weight1", "Bias1", "Weight2", "Bias2"})
    .Outputs({"Out"})
    .SetKernelFn(PD_KERNEL(sot::packed::FeedForward));
