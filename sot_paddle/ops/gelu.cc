// GELU by the error function, float32: y = x Phi(x) and dx = dy (Phi(x) + x phi(x)); the slope dx / dy
// is made with y where a backward pass follows. Without one also of x + b, with the bias b of a linear
// layer, on the product's own memory.
//
// With t = 1 / (1 + 0.4 |x|), Phi(-|x|) = t P(t) exp(-x^2 / 2), where P of degree 9 fits
// exp(x^2 / 2) Phi(-|x|) / t for 0 <= |x| <= 14 to 1.5e-8 of its value (least squares with Lawson's
// weights). Exponential and quotient keep their relative precision, so Phi does in its lower tail.
#include <cmath>

#include "blocks.h"
#include "exponential.h"

namespace sot::gelu {

struct Normal {
  float cumulative, bell;  // Phi(x), exp(-x^2 / 2): phi(x) is the bell over the root of 2 pi
};

inline Normal normal(float x) {
  const float half = 0.5f * x * x;
  const float rest = half < 87.0f ? std::fma(0.5f * x, x, -half) : 0.0f;  // of the rounding
  const float near = exp_minus(half, rest), bell = half < 87.0f ? near : 0.0f;  // x bell falls to 0
  const float t = 1.0f / std::fma(0.4f, std::fabs(x), 1.0f);
  float p = std::fma(t, 0.0320989071f, -0.176181415f);
  p = std::fma(p, t, 0.380800173f);
  p = std::fma(p, t, -0.371992562f);
  p = std::fma(p, t, 0.117762281f);
  p = std::fma(p, t, -0.0258993964f);
  p = std::fma(p, t, 0.0910066944f);
  p = std::fma(p, t, 0.133209786f);
  p = std::fma(p, t, 0.15961924f);
  p = std::fma(p, t, 0.1595763f);
  const float tail = p * t * bell;
  return {x > 0.0f ? 1.0f - tail : tail, bell};
}

Tensors Forward(const Tensor& input, bool trained) {
  const Tensor x = dense(input);
  Tensor y = paddle::empty_like(x);
  Tensor slopes = trained ? paddle::empty_like(x) : paddle::empty({0}, x.dtype(), x.place());
  const float* from = x.data<float>();
  float *to = y.data<float>(), *slope_of = slopes.data<float>();
  if (!trained) {
    for_each(x.numel(), [=](int64_t i) { to[i] = from[i] * normal(from[i]).cumulative; });
    return {y, slopes};
  }
  for_each(x.numel(), [=](int64_t i) {
    const Normal of = normal(from[i]);
    to[i] = from[i] * of.cumulative;
    slope_of[i] = std::fma(from[i] * 0.398942280f, of.bell, of.cumulative);
  });
  return {y, slopes};
}

Tensors OfSum(const Tensor& x, const Tensor& bias) {
  return add_bias(x, bias, [](float sum) { return sum * normal(sum).cumulative; });
}

Tensors Backward(const Tensor& slopes, const Tensor& gradient, bool) {
  const Tensor dy = dense(gradient);
  Tensor dx = paddle::empty_like(slopes);
  const float *slope_of = slopes.data<float>(), *g = dy.data<float>();
  float* to = dx.data<float>();
  for_each(dx.numel(), [=](int64_t i) { to[i] = g[i] * slope_of[i]; });
  return {dx};
}

const Operator kGelu("sot_gelu", {"trained: bool"},
                     {{"X"}, {"Out", "Slope"}, PD_KERNEL(Forward)},
                     {{"Slope", Grad("Out")}, {Grad("X")}, PD_KERNEL(Backward)});
const Operator kGeluOfSum("sot_gelu_of_sum", {},
                          {{"X", "Bias"}, {"Out"}, PD_KERNEL(OfSum)});

}  // namespace sot::gelu
