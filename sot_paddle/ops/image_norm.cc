// Batch normalisation of images (B, C, H, W), float32: y = h c + b, h = (x - m) r,
// r = 1 / sqrt(v + eps), m and v those of all n pixels of a channel, or given (evaluation).
//   dc = sum dy h, db = sum dy, dx = c r (dy - (db + h dc) / n), the last term in training only.
#include "image_norm.h"

namespace sot {
namespace image_norm {

using Tensors = std::vector<paddle::Tensor>;
using Optional = paddle::optional<paddle::Tensor>;

// work(channel, offset of the plane) for the planes of all images.
template <class Work>
void each_plane(const paddle::Tensor& x, const Work& work) {
  const int64_t channels = x.shape()[1], size = x.shape()[2] * x.shape()[3];
  in_blocks(x.shape()[0] * channels, 1,
            [&](int64_t plane, int64_t) { work(plane % channels, plane * size); });
}

Tensors Forward(const paddle::Tensor& input, const paddle::Tensor& scale,
                const paddle::Tensor& bias, const Optional& mean, const Optional& var,
                double epsilon, bool trained) {
  const paddle::Tensor x = dense(input);
  const Norm norm = trained ? Norm(x, scale, bias, epsilon)
                            : Norm(*mean, *var, scale, bias, epsilon);
  const int64_t size = x.shape()[2] * x.shape()[3];
  paddle::Tensor y = paddle::empty_like(x);
  const float* from = x.data<float>();
  float* to = y.data<float>();
  each_plane(x, [&](int64_t c, int64_t at) {
    const float centre = norm.mean(c), shift = norm.bias(c), *in = from + at;
    const float by = static_cast<float>(norm.scale(c) * norm.inverse[c]);
    float* out = to + at;
#pragma omp simd
    for (int64_t i = 0; i < size; ++i) out[i] = (in[i] - centre) * by + shift;
  });
  return {y, norm.means, norm.vars};
}

Tensors Backward(const paddle::Tensor& input, const paddle::Tensor& scale,
                 const paddle::Tensor& mean, const paddle::Tensor& var,
                 const paddle::Tensor& gradient, double epsilon, bool trained) {
  const paddle::Tensor x = dense(input), dy = dense(gradient);
  const Norm norm(mean, var, scale, scale, epsilon);
  const int64_t channels = mean.numel(), size = x.shape()[2] * x.shape()[3];
  const int64_t planes = x.shape()[0] * channels;
  const float *from = x.data<float>(), *g = dy.data<float>();
  std::vector<double> along(planes), plain(planes);
  each_plane(x, [&](int64_t c, int64_t at) {
    const float centre = norm.mean(c), *in = from + at, *up = g + at;
    double product = 0.0, sum = 0.0;
#pragma omp simd reduction(+ : product, sum)
    for (int64_t i = 0; i < size; ++i) {
      product += up[i] * (in[i] - centre);
      sum += up[i];
    }
    along[at / size] = product * norm.inverse[c];
    plain[at / size] = sum;
  });
  for (int64_t plane = channels; plane < planes; ++plane) {  // totals in the first image's place
    along[plane % channels] += along[plane];
    plain[plane % channels] += plain[plane];
  }
  paddle::Tensor dx = paddle::empty_like(x), dc = paddle::empty_like(mean);
  paddle::Tensor db = paddle::empty_like(mean);
  std::copy_n(along.begin(), channels, dc.data<float>());
  std::copy_n(plain.begin(), channels, db.data<float>());
  float* to = dx.data<float>();
  each_plane(x, [&](int64_t c, int64_t at) {
    const double each = norm.scale(c) * norm.inverse[c];
    const double share = trained ? each / (planes / channels * size) : 0.0;
    const float centre = norm.mean(c), by = static_cast<float>(each), *in = from + at;
    const float fixed = static_cast<float>(share * plain[c]);
    const float turned = static_cast<float>(share * along[c] * norm.inverse[c]);
    const float* up = g + at;
    float* out = to + at;
#pragma omp simd
    for (int64_t i = 0; i < size; ++i) out[i] = by * up[i] - fixed - (in[i] - centre) * turned;
  });
  return {dx, dc, db};
}

using T = paddle::Tensor;

Tensors Second(const T&, const T&, const T&, const T&, double, bool) { PD_THROW(kOnceOnly); }

}  // namespace image_norm
}  // namespace sot

PD_BUILD_OP(sot_image_norm)
    .Inputs({"X", "Scale", "Bias", paddle::Optional("GivenMean"), paddle::Optional("GivenVar")})
    .Outputs({"Out", "Mean", "Var"})
    .Attrs({"epsilon: double", "trained: bool"})
    .SetKernelFn(PD_KERNEL(sot::image_norm::Forward));

PD_BUILD_GRAD_OP(sot_image_norm)
    .Inputs({"X", "Scale", "Mean", "Var", paddle::Grad("Out")})
    .Outputs({paddle::Grad("X"), paddle::Grad("Scale"), paddle::Grad("Bias")})
    .Attrs({"epsilon: double", "trained: bool"})
    .SetKernelFn(PD_KERNEL(sot::image_norm::Backward));

PD_BUILD_DOUBLE_GRAD_OP(sot_image_norm)
    .Inputs({"X", "Scale", paddle::Grad("Out"), paddle::Grad(paddle::Grad("X"))})
    .Outputs({paddle::Grad(paddle::Grad("Out"))})
    .Attrs({"epsilon: double", "trained: bool"})
    .SetKernelFn(PD_KERNEL(sot::image_norm::Second));
