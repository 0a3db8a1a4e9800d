// A linear layer whose products take their factors in bfloat16 (rounded to nearest even) and add up
// in float32: y = x w + b, dx = dy w^T, dw = x^T dy; db, the sum of dy over the rows, in float32.
//
// The products are oneDNN's, see onednn.h. A weight that is trained is not kept; in inference it is
// kept packed, and nothing is differentiated.
#include "packed_weights.h"

namespace sot::bfloat16 {

Tensor rows_like(const Tensor& x, int64_t width) {
  auto shape = x.shape();
  shape.back() = width;
  return paddle::empty(shape, x.dtype(), x.place());
}

// y (rows, n) = f(x w + b) in one precision or the other; f is GELU or nothing.
void apply(const Factor& x, const onednn::Matrix& w, const Tensor& b, const onednn::Matrix& y,
           bool gelu) {
  const onednn::Matrix shift = floats(1, b.numel(), b.data<float>());
  onednn::multiply(x.plain(), w, &shift, y, gelu);
}

Tensors Forward(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  const Tensor x = dense(input), w = dense(weight), b = dense(bias);
  const int64_t depth = w.shape()[0], width = w.shape()[1], rows = x.numel() / depth;
  Tensor y = rows_like(x, width);
  packed::forget(w);
  const Factor right(w, width);
  apply(Factor(x, depth), right.plain(), b, floats(rows, width, y.data<float>()), false);
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
  column_sums<double>(rows, width, dy.data<float>(), db.data<float>());
  return {dx, dw, db};
}

Tensors PackedLinear(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  const Tensor x = dense(input), w = dense(weight), b = dense(bias);
  const int64_t depth = w.shape()[0], width = w.shape()[1], rows = x.numel() / depth;
  Tensor y = rows_like(x, width);
  apply(Factor(x, depth), *packed::of(w, rows)->matrix, b, floats(rows, width, y.data<float>()), false);
  return {y};
}

// gelu(x w1 + b1) w2 + b2: what lies between the two is written once, rounded.
Tensors PackedFeedForward(const Tensor& input, const Tensor& weight1, const Tensor& bias1,
                          const Tensor& weight2, const Tensor& bias2) {
  const Tensor x = dense(input), w1 = dense(weight1), b1 = dense(bias1);
  const Tensor w2 = dense(weight2), b2 = dense(bias2);
  const int64_t depth = w1.shape()[0], inner = w1.shape()[1], width = w2.shape()[1];
  const int64_t rows = x.numel() / depth;
  const Factor between(rows, inner);
  apply(Factor(x, depth), *packed::of(w1, rows)->matrix, b1, between.plain(), true);
  Tensor y = rows_like(x, width);
  apply(between, *packed::of(w2, rows)->matrix, b2, floats(rows, width, y.data<float>()), false);
  return {y};
}

const Operator kBfloat16Linear("sot_bfloat16_linear", {},
                               {{"X", "Weight", "Bias"}, {"Out"}, PD_KERNEL(Forward)},
                               {{"X", "Weight", Grad("Out")},
                                {Grad("X"), Grad("Weight"), Grad("Bias")}, PD_KERNEL(Backward)});
const Operator kPackedLinear("sot_packed_linear", {},
                             {{"X", "Weight", "Bias"}, {"Out"}, PD_KERNEL(PackedLinear)});
const Operator kPackedFeedForward("sot_packed_feed_forward", {},
                                  {{"X", "Weight1", "Bias1", "Weight2", "Bias2"},
                                   {"Out"}, PD_KERNEL(PackedFeedForward)});

}  // namespace sot::bfloat16
