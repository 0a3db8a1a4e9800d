// Layer normalisation over the last axis, float32: y = (x - m) r w + b with r = 1 / sqrt(v + eps),
// m the mean and v the variance of a row.
//
// With g = dy w and n = (x - m) r: dx = r (g - mean(g) - n mean(g n)); dw = sum dy n, db = sum dy
// over the rows.
#include <cmath>

#include "blocks.h"

namespace sot {
namespace layer_norm {

struct Moments {
  float mean, scale;  // scale r
};

// The result of a row, which may take its place.
inline Moments normalize(const float* at, int64_t width, const float* w, const float* b,
                         double epsilon, float* out) {
  float total = 0.0f, rest = 0.0f, squares = 0.0f;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < width; ++i) total += at[i];
  const float near = total / width;
#pragma omp simd reduction(+ : rest, squares)
  for (int64_t i = 0; i < width; ++i) {
    rest += at[i] - near;
    squares += (at[i] - near) * (at[i] - near);
  }
  const double off = static_cast<double>(rest) / width;
  const float mean = static_cast<float>(near + off);
  const float scale = static_cast<float>(1.0 / std::sqrt(squares / width - off * off + epsilon));
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) out[i] = std::fma((at[i] - mean) * scale, w[i], b[i]);
  return {mean, scale};
}

std::vector<paddle::Tensor> Forward(const paddle::Tensor& input, const paddle::Tensor& weight,
                                    const paddle::Tensor& bias, double epsilon) {
  const paddle::Tensor x = dense(input);
  const int64_t width = weight.numel(), rows = x.numel() / width;
  paddle::Tensor y = paddle::empty_like(x);
  paddle::Tensor means = paddle::empty({rows}, x.dtype(), x.place());
  paddle::Tensor scales = paddle::empty({rows}, x.dtype(), x.place());
  const float *from = x.data<float>(), *w = weight.data<float>(), *b = bias.data<float>();
  float *to = y.data<float>(), *mean_of = means.data<float>(), *scale_of = scales.data<float>();
  in_blocks(rows, rows_of_block(rows), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * width;
      const Moments found = normalize(from + at, width, w, b, epsilon, to + at);
      mean_of[row] = found.mean;
      scale_of[row] = found.scale;
    }
  });
  return {y, means, scales};
}

// Of x + residual; for inference.
std::vector<paddle::Tensor> OfSum(const paddle::Tensor& input, const paddle::Tensor& other,
                                  const paddle::Tensor& weight, const paddle::Tensor& bias,
                                  double epsilon) {
  const paddle::Tensor x = dense(input), residual = dense(other);
  const int64_t width = weight.numel(), rows = x.numel() / width;
  paddle::Tensor y = paddle::empty_like(x);
  const float *from = x.data<float>(), *more = residual.data<float>();
  const float *w = weight.data<float>(), *b = bias.data<float>();
  float* to = y.data<float>();
  in_blocks(rows, rows_of_block(rows), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * width;
#pragma omp simd
      for (int64_t i = at; i < at + width; ++i) to[i] = from[i] + more[i];
      normalize(to + at, width, w, b, epsilon, to + at);
    }
  });
  return {y};
}

std::vector<paddle::Tensor> Backward(const paddle::Tensor& input, const paddle::Tensor& weight,
                                     const paddle::Tensor& means, const paddle::Tensor& scales,
                                     const paddle::Tensor& gradient) {
  const paddle::Tensor x = dense(input), dy = dense(gradient);
  const int64_t width = weight.numel(), rows = means.numel();
  paddle::Tensor dx = paddle::empty_like(x);
  paddle::Tensor dw = paddle::empty({width}, x.dtype(), x.place());
  paddle::Tensor db = paddle::empty({width}, x.dtype(), x.place());
  const float *from = x.data<float>(), *g_of = dy.data<float>(), *w = weight.data<float>();
  const float *mean_of = means.data<float>(), *scale_of = scales.data<float>();
  float* to = dx.data<float>();
  ColumnSums<> sums(rows, 2 * width);  // dw and db, side by side
  in_blocks(rows, rows_of_block(rows), [=, &sums](int64_t begin, int64_t end) {
    float *sum_w = sums.of_block(begin), *sum_b = sum_w + width;
    for (int64_t row = begin; row < end; ++row) {
      const float *at = from + row * width, *g = g_of + row * width;
      float* out = to + row * width;
      const float mean = mean_of[row], scale = scale_of[row];
      float total = 0.0f, along = 0.0f;
#pragma omp simd reduction(+ : total, along)
      for (int64_t i = 0; i < width; ++i) {
        const float n = (at[i] - mean) * scale, gw = g[i] * w[i];
        sum_w[i] += g[i] * n;
        sum_b[i] += g[i];
        total += gw;
        along += gw * n;
      }
      total /= width;
      along /= width;
#pragma omp simd
      for (int64_t i = 0; i < width; ++i) {
        out[i] = scale * (g[i] * w[i] - total - (at[i] - mean) * scale * along);
      }
    }
  });
  sums.add_up(0, width, dw.data<float>());
  sums.add_up(width, width, db.data<float>());
  return {dx, dw, db};
}

std::vector<paddle::Tensor> Second(const paddle::Tensor&, const paddle::Tensor&,
                                   const paddle::Tensor&, const paddle::Tensor&,
                                   const paddle::Tensor&, const paddle::Tensor&) {
  PD_THROW(kOnceOnly);
}

}  // namespace layer_norm
}  // namespace sot

PD_BUILD_OP(sot_layer_norm)
    .Inputs({"X", "Weight", "Bias"})
    .Outputs({"Out", "Mean", "Scale"})
    .Attrs({"epsilon: double"})
    .SetKernelFn(PD_KERNEL(sot::layer_norm::Forward));

PD_BUILD_GRAD_OP(sot_layer_norm)
    .Inputs({"X", "Weight", "Mean", "Scale", paddle::Grad("Out")})
    .Outputs({paddle::Grad("X"), paddle::Grad("Weight"), paddle::Grad("Bias")})
    .SetKernelFn(PD_KERNEL(sot::layer_norm::Backward));

PD_BUILD_DOUBLE_GRAD_OP(sot_layer_norm)
    .Inputs({"X", "Weight", "Mean", "Scale", paddle::Grad("Out"), paddle::Grad(paddle::Grad("X"))})
    .Outputs({paddle::Grad(paddle::Grad("Out"))})
    .SetKernelFn(PD_KERNEL(sot::layer_norm::Second));

PD_BUILD_OP(sot_layer_norm_of_sum)
    .Inputs({"X", "Residual", "Weight", "Bias"})
    .Outputs({"Out"})
    .Attrs({"epsilon: double"})
    .SetKernelFn(PD_KERNEL(sot::layer_norm::OfSum));
