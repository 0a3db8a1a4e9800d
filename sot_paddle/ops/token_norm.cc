// Batch normalisation of tokens (rows, C), float32. In training mode
//   y = (x - m) r c + b, r = 1 / sqrt(v + eps), m = 1/n sum w x, v = 1/n sum w (x - m)^2
// with scale c, bias b and weights w of the rows (1 without a mask), n their sum, 1 at least; and
//   dx = c r (dy - w / n (sum dy + h sum dy h)), h = (x - m) r, the sums over all rows.
// In eval mode y = (x - m) c + b with what is given. See heads.pooling.TokenBatchNorm.
#include <cmath>

#include "blocks.h"

namespace sot {
namespace token_norm {

constexpr int64_t kBlock = 64;  // rows of a partial sum
using Optional = paddle::optional<paddle::Tensor>;

// to(row, channel) = what term gives, by blocks of rows.
template <class Term>
void fill(int64_t rows, int64_t channels, float* to, const Term& term) {
  in_blocks(rows, kBlock, [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t c = 0; c < channels; ++c) to[row * channels + c] = term(row, c);
  });
}

// Weights of the rows; without a mask all of them are one.
struct Rows {
  int64_t count, channels;
  std::vector<float> weights;
  float n;
  Rows(const paddle::Tensor& x, const Optional& mask) : channels(x.shape().back()) {
    count = channels ? x.numel() / channels : 0;
    weights.assign(count, 1.0f);
    double sum = static_cast<double>(count);
    if (mask) {
      const paddle::Tensor given = dense(mask.get());
      std::copy_n(given.data<float>(), count, weights.begin());
      sum = 0.0;
      for (float weight : weights) sum += weight;
    }
    n = std::max(1.0f, static_cast<float>(sum));
  }
};

paddle::Tensor row_of(const std::vector<double>& values, const paddle::Tensor& like) {
  const int64_t size = values.size();
  paddle::Tensor made = paddle::empty({size}, like.dtype(), like.place());
  std::copy(values.begin(), values.end(), made.data<float>());
  return made;
}

// Mean and variance of each channel, in double: where they are small beside the values, as for two
// tokens, little is left of the gradient.
struct Statistics {
  std::vector<double> mean, var;
  Statistics(const float* x, const Rows& rows) {
    const int64_t wide = rows.channels;
    const float* w = rows.weights.data();
    mean = column_sums(rows.count, wide, [=](int64_t r, int64_t i) {
      return static_cast<double>(w[r]) * x[r * wide + i];
    });
    for (double& sum : mean) sum /= rows.n;
    const double* m = mean.data();
    var = column_sums(rows.count, wide, [=](int64_t r, int64_t i) {
      const double apart = x[r * wide + i] - m[i];
      return w[r] * apart * apart;
    });
    for (double& sum : var) sum /= rows.n;
  }
};

std::vector<paddle::Tensor> Forward(const paddle::Tensor& input, const paddle::Tensor& scale,
                                    const paddle::Tensor& bias, const Optional& mask,
                                    float epsilon) {
  const paddle::Tensor x = dense(input), c = dense(scale), b = dense(bias);
  const Rows rows(x, mask);
  const int64_t wide = rows.channels;
  const float* from = x.data<float>();
  const Statistics found(from, rows);
  std::vector<float> mean(found.mean.begin(), found.mean.end()), factor(wide);
  for (int64_t i = 0; i < wide; ++i)
    factor[i] = static_cast<float>(c.data<float>()[i] / std::sqrt(found.var[i] + epsilon));
  const float *m = mean.data(), *f = factor.data(), *shift = b.data<float>();
  paddle::Tensor y = paddle::empty_like(x);
  fill(rows.count, wide, y.data<float>(),
       [=](int64_t r, int64_t i) { return (from[r * wide + i] - m[i]) * f[i] + shift[i]; });
  return {y, row_of(found.mean, x), row_of(found.var, x)};
}

std::vector<paddle::Tensor> Backward(const paddle::Tensor& input, const paddle::Tensor& scale,
                                     const Optional& mask, const paddle::Tensor& gradient,
                                     float epsilon) {
  const paddle::Tensor x = dense(input), c = dense(scale), dy = dense(gradient);
  const Rows rows(x, mask);
  const int64_t wide = rows.channels;
  const float *from = x.data<float>(), *g = dy.data<float>(), *w = rows.weights.data();
  const Statistics found(from, rows);
  const double* m = found.mean.data();
  const auto sum = column_sums(
      rows.count, wide, [=](int64_t r, int64_t i) { return static_cast<double>(g[r * wide + i]); });
  auto along = column_sums(rows.count, wide, [=](int64_t r, int64_t i) {
    return g[r * wide + i] * (from[r * wide + i] - m[i]);
  });
  std::vector<double> factor(wide), back(wide);
  for (int64_t i = 0; i < wide; ++i) {
    const double inverse = 1.0 / std::sqrt(found.var[i] + epsilon);
    factor[i] = c.data<float>()[i] * inverse;
    back[i] = along[i] * inverse * inverse;
    along[i] *= inverse;
  }
  paddle::Tensor dx = paddle::empty_like(x);
  const double *f = factor.data(), *s = sum.data(), *d = back.data();
  const double n = rows.n;
  fill(rows.count, wide, dx.data<float>(), [=](int64_t r, int64_t i) {
    const int64_t at = r * wide + i;
    return static_cast<float>(f[i] * (g[at] - w[r] / n * (s[i] + (from[at] - m[i]) * d[i])));
  });
  return {dx, row_of(along, x), row_of(sum, x)};
}

std::vector<paddle::Tensor> Shift(const paddle::Tensor& input, const paddle::Tensor& mean,
                                  const paddle::Tensor& scale, const paddle::Tensor& bias) {
  const paddle::Tensor x = dense(input), m = dense(mean), c = dense(scale), b = dense(bias);
  const Rows rows(x, paddle::none);
  const int64_t wide = rows.channels;
  const float *from = x.data<float>(), *centre = m.data<float>();
  const float *factor = c.data<float>(), *shift = b.data<float>();
  paddle::Tensor y = paddle::empty_like(x);
  fill(rows.count, wide, y.data<float>(), [=](int64_t r, int64_t i) {
    return (from[r * wide + i] - centre[i]) * factor[i] + shift[i];
  });
  return {y};
}

std::vector<paddle::Tensor> ShiftBackward(const paddle::Tensor& input, const paddle::Tensor& mean,
                                          const paddle::Tensor& scale,
                                          const paddle::Tensor& gradient) {
  const paddle::Tensor x = dense(input), m = dense(mean), c = dense(scale), dy = dense(gradient);
  const Rows rows(x, paddle::none);
  const int64_t wide = rows.channels;
  const float *from = x.data<float>(), *centre = m.data<float>();
  const float *factor = c.data<float>(), *g = dy.data<float>();
  paddle::Tensor dx = paddle::empty_like(x);
  fill(rows.count, wide, dx.data<float>(),
       [=](int64_t r, int64_t i) { return g[r * wide + i] * factor[i]; });
  const auto dscale = column_sums(rows.count, wide, [=](int64_t r, int64_t i) {
    const int64_t at = r * wide + i;
    return static_cast<double>(g[at] * (from[at] - centre[i]));
  });
  const auto dbias = column_sums(
      rows.count, wide, [=](int64_t r, int64_t i) { return static_cast<double>(g[r * wide + i]); });
  return {dx, row_of(dscale, x), row_of(dbias, x)};
}

using T = paddle::Tensor;

std::vector<T> Second(const T&, const T&, const Optional&, const T&, const T&, float) {
  PD_THROW(kOnceOnly);
}

std::vector<T> ShiftSecond(const T&, const T&, const T&, const T&) { PD_THROW(kOnceOnly); }

}  // namespace token_norm
}  // namespace sot

PD_BUILD_OP(sot_token_norm)
    .Inputs({"X", "Scale", "Bias", paddle::Optional("Mask")})
    .Outputs({"Out", "Mean", "Var"})
    .Attrs({"epsilon: float"})
    .SetKernelFn(PD_KERNEL(sot::token_norm::Forward));

PD_BUILD_GRAD_OP(sot_token_norm)
    .Inputs({"X", "Scale", paddle::Optional("Mask"), paddle::Grad("Out")})
    .Outputs({paddle::Grad("X"), paddle::Grad("Scale"), paddle::Grad("Bias")})
    .Attrs({"epsilon: float"})
    .SetKernelFn(PD_KERNEL(sot::token_norm::Backward));

PD_BUILD_DOUBLE_GRAD_OP(sot_token_norm)
    .Inputs({"X", "Scale", paddle::Optional("Mask"), paddle::Grad("Out"),
             paddle::Grad(paddle::Grad("X"))})
    .Outputs({paddle::Grad(paddle::Grad("Out"))})
    .Attrs({"epsilon: float"})
    .SetKernelFn(PD_KERNEL(sot::token_norm::Second));

PD_BUILD_OP(sot_token_shift)
    .Inputs({"X", "Mean", "Scale", "Bias"})
    .Outputs({"Out"})
    .SetKernelFn(PD_KERNEL(sot::token_norm::Shift));

PD_BUILD_GRAD_OP(sot_token_shift)
    .Inputs({"X", "Mean", "Scale", paddle::Grad("Out")})
    .Outputs({paddle::Grad("X"), paddle::Grad("Scale"), paddle::Grad("Bias")})
    .SetKernelFn(PD_KERNEL(sot::token_norm::ShiftBackward));

PD_BUILD_DOUBLE_GRAD_OP(sot_token_shift)
    .Inputs({"X", "Scale", paddle::Grad("Out"), paddle::Grad(paddle::Grad("X"))})
    .Outputs({paddle::Grad(paddle::Grad("Out"))})
    .SetKernelFn(PD_KERNEL(sot::token_norm::ShiftSecond));
