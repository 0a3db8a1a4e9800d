// Layer normalisation over the last axis, float32: y = (x - m) r w + b with r = 1 / sqrt(v + eps),
// m the mean and v the variance of a row.
//
// With g = dy w and n = (x - m) r: dx = r (g - mean(g) - n mean(g n)); dw = sum dy n, db = sum dy
// over the rows.
#include <cmath>

#include "blocks.h"

namespace sot::layer_norm {

Tensors Forward(const Tensor& input, const Tensor& weight, const Tensor& bias, double epsilon) {
  const Tensor x = dense(input);
  const int64_t width = weight.numel(), rows = x.numel() / width;
  Tensor y = paddle::empty_like(x);
  Tensor means = paddle::empty({rows}, x.dtype(), x.place());
  Tensor scales = paddle::empty({rows}, x.dtype(), x.place());
  const float *from = x.data<float>(), *w = weight.data<float>(), *b = bias.data<float>();
  float *to = y.data<float>(), *mean_of = means.data<float>(), *scale_of = scales.data<float>();
  in_blocks(rows, rows_of_block(rows), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* at = from + row * width;
      float *out = to + row * width, total = 0.0f, rest = 0.0f, squares = 0.0f;
#pragma omp simd reduction(+ : total)
      for (int64_t i = 0; i < width; ++i) total += at[i];
      const float near = total / width;
#pragma omp simd reduction(+ : rest, squares)
      for (int64_t i = 0; i < width; ++i) {
        rest += at[i] - near;
        squares += (at[i] - near) * (at[i] - near);
      }
      const double off = static_cast<double>(rest) / width, var = squares / width - off * off;
      const float mean = static_cast<float>(near + off);
      const float scale = static_cast<float>(1.0 / std::sqrt(var + epsilon));
#pragma omp simd
      for (int64_t i = 0; i < width; ++i) out[i] = std::fma((at[i] - mean) * scale, w[i], b[i]);
      mean_of[row] = mean;
      scale_of[row] = scale;
    }
  });
  return {y, means, scales};
}

Tensors Backward(const Tensor& input, const Tensor& weight, const Tensor& means,
                 const Tensor& scales, const Tensor& gradient, double) {
  const Tensor x = dense(input), dy = dense(gradient);
  const int64_t width = weight.numel(), rows = means.numel();
  Tensor dx = paddle::empty_like(x);
  Tensor dw = paddle::empty({width}, x.dtype(), x.place());
  Tensor db = paddle::empty({width}, x.dtype(), x.place());
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

const Operator kLayerNorm("sot_layer_norm", {"epsilon: double"},
                          {{"X", "Weight", "Bias"}, {"Out", "Mean", "Scale"}, PD_KERNEL(Forward)},
                          {{"X", "Weight", "Mean", "Scale", Grad("Out")},
                           {Grad("X"), Grad("Weight"), Grad("Bias")}, PD_KERNEL(Backward)});

}  // namespace sot::layer_norm
