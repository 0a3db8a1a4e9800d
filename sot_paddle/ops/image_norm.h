// A batch normalisation of images (B, C, H, W): its statistics, and what becomes of them.
#pragma once

#include <cmath>

#include "blocks.h"

namespace sot {

struct Norm {
  paddle::Tensor means, vars, scales, biases;
  std::vector<double> inverse;  // 1 / sqrt(v + eps)

  Norm(const paddle::Tensor& mean, const paddle::Tensor& var, const paddle::Tensor& scale,
       const paddle::Tensor& bias, double epsilon)
      : means(copied(mean)), vars(copied(var)), scales(dense(scale)), biases(dense(bias)) {
    invert(epsilon);
  }
  // With the mean and the biased variance of each channel of x.
  Norm(const paddle::Tensor& x, const paddle::Tensor& scale, const paddle::Tensor& bias,
       double epsilon)
      : means(paddle::empty({x.shape()[1]}, x.dtype(), x.place())),
        vars(paddle::empty_like(means)),
        scales(dense(scale)),
        biases(dense(bias)) {
    measure(x);
    invert(epsilon);
  }
  float mean(int64_t c) const { return means.data<float>()[c]; }
  float scale(int64_t c) const { return scales.data<float>()[c]; }
  float bias(int64_t c) const { return biases.data<float>()[c]; }

 private:
  static paddle::Tensor copied(const paddle::Tensor& values) {  // running values go on changing
    paddle::Tensor made = paddle::empty(values.shape(), values.dtype(), values.place());
    std::copy_n(dense(values).data<float>(), values.numel(), made.data<float>());
    return made;
  }

  void invert(double epsilon) {
    const float* var = vars.data<float>();
    for (int64_t c = 0; c < vars.numel(); ++c) inverse.push_back(1.0 / std::sqrt(var[c] + epsilon));
  }

  // In double: of each plane while it is in the cache, the planes put together in their order.
  void measure(const paddle::Tensor& x) {
    const int64_t batch = x.shape()[0], channels = x.shape()[1], planes = batch * channels;
    const int64_t size = planes ? x.numel() / planes : 0;
    const float* at = x.data<float>();
    std::vector<double> centres(planes), apart(planes);
    in_blocks(planes, 1, [&](int64_t plane, int64_t) {
      const float* from = at + plane * size;
      double sum = 0.0, squares = 0.0;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < size; ++i) sum += from[i];
      const double centre = sum / size;
#pragma omp simd reduction(+ : squares)
      for (int64_t i = 0; i < size; ++i) squares += (from[i] - centre) * (from[i] - centre);
      centres[plane] = centre;
      apart[plane] = squares;
    });
    for (int64_t c = 0; c < channels; ++c) {
      double centre = 0.0, squares = 0.0;
      for (int64_t i = c; i < planes; i += channels) centre += centres[i] / batch;
      for (int64_t i = c; i < planes; i += channels)
        squares += apart[i] + size * (centres[i] - centre) * (centres[i] - centre);
      means.data<float>()[c] = static_cast<float>(centre);
      vars.data<float>()[c] = static_cast<float>(squares / (batch * size));
    }
  }
};

}  // namespace sot
