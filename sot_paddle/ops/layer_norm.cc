// Layer normalisation over the last axis, float32: y = (x - m) r w + b with r = 1 / sqrt(v + eps),
// m the mean and v the variance of a row.
//
// With g = dy w and n = (x - m) r: dx = r (g - mean(g) - n mean(g n)); dw = sum dy n, db = sum dy
// over the rows.
//
// Also of the sum of a residual and of x after dropout, as an encoder has it.
#include <cmath>

#include "mersenne.h"

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

// Normalises rows `from`, each after prepare(where it begins); returns y, means and scales.
template <class Prepare>
Tensors normalized(const float* from, const Tensor& weight, const Tensor& bias, double epsilon,
                   Tensor y, const Prepare& prepare) {
  const int64_t width = weight.numel(), rows = y.numel() / width;
  Tensor means = paddle::empty({rows}, y.dtype(), y.place());
  Tensor scales = paddle::empty({rows}, y.dtype(), y.place());
  const float *w = weight.data<float>(), *b = bias.data<float>();
  float *to = y.data<float>(), *mean_of = means.data<float>(), *scale_of = scales.data<float>();
  in_blocks(rows, rows_of_block(rows), [=, &prepare](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * width;
      prepare(at);
      const Moments found = normalize(from + at, width, w, b, epsilon, to + at);
      mean_of[row] = found.mean;
      scale_of[row] = found.scale;
    }
  });
  return {y, means, scales};
}

Tensors Forward(const Tensor& input, const Tensor& weight, const Tensor& bias, double epsilon) {
  const Tensor x = dense(input);
  return normalized(x.data<float>(), weight, bias, epsilon, paddle::empty_like(x), [](int64_t) {});
}

// Of dropout(x) + residual. Without a backward pass (keep is false) the sum takes y's memory.
Tensors OfSum(const Tensor& input, const Tensor& other, const Tensor& weight, const Tensor& bias,
              double epsilon, double chance, bool keep) {
  const Tensor x = dense(input), residual = dense(other);
  const int64_t width = weight.numel();
  const float p = static_cast<float>(chance), left = 1.0f - p;
  Tensor y = paddle::empty_like(x);
  Tensor sum = keep ? paddle::empty_like(x) : y;
  Tensor mask = paddle::empty({p > 0 ? x.numel() : 0}, paddle::DataType::UINT8, x.place());
  const float *from = x.data<float>(), *more = residual.data<float>();
  float* sums = sum.data<float>();
  uint8_t* drawn = p > 0 ? mask.data<uint8_t>() : nullptr;
  if (drawn) draw_mask(p, x.numel(), drawn);
  const auto add = [=](int64_t at) {
    if (drawn) {
#pragma omp simd
      for (int64_t i = at; i < at + width; ++i) {
        sums[i] = dropped(from[i], drawn[i], left) + more[i];
      }
    } else {
#pragma omp simd
      for (int64_t i = at; i < at + width; ++i) sums[i] = from[i] + more[i];
    }
  };
  const Tensors made = normalized(sums, weight, bias, epsilon, y, add);
  return {y, sum, mask, made[1], made[2]};
}

// Writes the gradient of each row to `dx` and calls done(row); returns dw and db.
template <class Done>
Tensors gradients(const Tensor& x, const Tensor& weight, const Tensor& means, const Tensor& scales,
                  const Tensor& gradient, float* dx, const Done& done) {
  const Tensor dy = dense(gradient);
  const int64_t width = weight.numel(), rows = means.numel();
  Tensor dw = paddle::empty({width}, x.dtype(), x.place());
  Tensor db = paddle::empty({width}, x.dtype(), x.place());
  const float *from = x.data<float>(), *g_of = dy.data<float>(), *w = weight.data<float>();
  const float *mean_of = means.data<float>(), *scale_of = scales.data<float>();
  ColumnSums<> sums(rows, 2 * width);  // dw and db, side by side
  in_blocks(rows, rows_of_block(rows), [=, &sums, &done](int64_t begin, int64_t end) {
    float *sum_w = sums.of_block(begin), *sum_b = sum_w + width;
    for (int64_t row = begin; row < end; ++row) {
      const float *at = from + row * width, *g = g_of + row * width;
      float* out = dx + row * width;
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
      done(row);
    }
  });
  sums.add_up(0, width, dw.data<float>());
  sums.add_up(width, width, db.data<float>());
  return {dw, db};
}

Tensors Backward(const Tensor& input, const Tensor& weight, const Tensor& means,
                 const Tensor& scales, const Tensor& gradient) {
  const Tensor x = dense(input);
  Tensor dx = paddle::empty_like(x);
  const auto rest =
      gradients(x, weight, means, scales, gradient, dx.data<float>(), [](int64_t) {});
  return {dx, rest[0], rest[1]};
}

Tensors BackwardOfSum(const Tensor& sum, const Tensor& mask, const Tensor& weight,
                      const Tensor& means, const Tensor& scales, const Tensor& gradient, double,
                      double chance, bool) {
  const int64_t width = weight.numel();
  const float p = static_cast<float>(chance), left = 1.0f - p;
  Tensor dx = paddle::empty_like(sum), dr = paddle::empty_like(sum);
  const uint8_t* drawn = p > 0 ? mask.data<uint8_t>() : nullptr;
  float *to = dx.data<float>(), *whole = dr.data<float>();
  const auto drop = [=](int64_t row) {
    const int64_t at = row * width;
    if (!drawn) {
      std::copy(whole + at, whole + at + width, to + at);
      return;
    }
#pragma omp simd
    for (int64_t i = at; i < at + width; ++i) {
      to[i] = dropped_gradient(whole[i], drawn[i], left);
    }
  };
  const auto rest = gradients(sum, weight, means, scales, gradient, whole, drop);
  return {dx, dr, rest[0], rest[1]};
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

SOT_ONCE_ONLY(sot_layer_norm, "X");

PD_BUILD_OP(sot_layer_norm_of_sum)
    .Inputs({"X", "Residual", "Weight", "Bias"})
    .Outputs({"Out", "Sum", "Mask", "Mean", "Scale"})
    .Attrs({"epsilon: double", "p: double", "keep: bool"})
    .SetKernelFn(PD_KERNEL(sot::layer_norm::OfSum));

PD_BUILD_GRAD_OP(sot_layer_norm_of_sum)
    .Inputs({"Sum", "Mask", "Weight", "Mean", "Scale", paddle::Grad("Out")})
    .Outputs({paddle::Grad("X"), paddle::Grad("Residual"), paddle::Grad("Weight"),
              paddle::Grad("Bias")})
    .Attrs({"epsilon: double", "p: double", "keep: bool"})
    .SetKernelFn(PD_KERNEL(sot::layer_norm::BackwardOfSum));

SOT_ONCE_ONLY(sot_layer_norm_of_sum, "X");
