// One step of AdamW, float32, in place, in one pass over the memory of a parameter:
//   g' = f g,  m = b1 m + (1 - b1) g',  v = b2 v + (1 - b2) g'^2,
//   p = after (before p - lr sqrt(1 - b2^t) / (1 - b1^t)  m / (sqrt(v) + e sqrt(1 - b2^t)))
// with the powers b^t as tensors that a step multiplies by b, and the factor f of the clipping.
// And the sum of squares that clipping asks for: in double, block by block.
#include <cmath>
#include <numeric>

#include "blocks.h"

namespace sot::adamw {

constexpr int64_t kBlock = 16384, kLanes = 16;

inline float* memory(const Tensor& tensor) { return const_cast<float*>(tensor.data<float>()); }

Tensors Step(const Tensor& parameter, const Tensor& gradient, const Tensor& moment1,
             const Tensor& moment2, const Tensor& power1, const Tensor& power2,
             const MaybeTensor& factor, double beta1, double beta2, double epsilon, double lr,
             double before, double after) {
  const Tensor dense_gradient = dense(gradient);
  float *p = memory(parameter), *m = memory(moment1), *v = memory(moment2);
  const float* g = dense_gradient.data<float>();
  const float f = factor ? factor->data<float>()[0] : 1.0f;
  const double left = std::sqrt(1.0 - *power2.data<float>());
  const float rate = lr * left / (1.0 - *power1.data<float>()), e = epsilon * left;
  const float b1 = beta1, b2 = beta2, c1 = 1.0 - beta1, c2 = 1.0 - beta2, a = after, b = before;
  for_each(parameter.numel(), [=](int64_t i) {
    const float slope = f * g[i];
    m[i] = b1 * m[i] + c1 * slope;
    v[i] = b2 * v[i] + c2 * (slope * slope);
    p[i] = a * (b * p[i] - rate * (m[i] / (std::sqrt(v[i]) + e)));
  });
  *memory(power1) *= b1;
  *memory(power2) *= b2;
  return {parameter};
}

Tensors SumOfSquares(const Tensor& input) {
  const Tensor x = dense(input);
  const float* from = x.data<float>();
  std::vector<double> parts((x.numel() + kBlock - 1) / kBlock);
  in_blocks(x.numel(), kBlock, [=, &parts](int64_t begin, int64_t end) {
    double lane[kLanes] = {};  // sums of their own: additions that do not wait for one another
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes)
      for (int64_t k = 0; k < kLanes; ++k) lane[k] += static_cast<double>(from[i + k]) * from[i + k];
    for (; i < end; ++i) lane[0] += static_cast<double>(from[i]) * from[i];
    parts[begin / kBlock] = std::accumulate(lane, lane + kLanes, 0.0);
  });
  Tensor made = paddle::empty({1}, x.dtype(), x.place());
  *made.data<float>() = std::accumulate(parts.begin(), parts.end(), 0.0);
  return {made};
}

const Operator kAdamw("sot_adamw",
                      {"beta1: double", "beta2: double", "epsilon: double", "lr: double",
                       "before: double", "after: double"},
                      {{"Parameter", "Gradient", "Moment1", "Moment2", "Power1", "Power2",
                        Optional("Factor")}, {"Out"}, PD_KERNEL(Step)});
const Operator kSumOfSquares("sot_sum_of_squares", {},
                             {{"X"}, {"Out"}, PD_KERNEL(SumOfSquares)});

}  // namespace sot::adamw
