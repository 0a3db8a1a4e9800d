// Dropout, float32: y = x / (1 - p) where a mask says so, else 0; dx = dy mask / (1 - p).
#include "mersenne.h"

namespace sot {
namespace dropout {

constexpr int64_t kBlock = 16384;

Tensors Forward(const Tensor& input, double chance) {
  const Tensor x = dense(input);
  const float p = static_cast<float>(chance), kept = 1.0f - p;
  Tensor y = paddle::empty_like(x);
  Tensor mask = paddle::empty(x.shape(), paddle::DataType::UINT8, x.place());
  const float* from = x.data<float>();
  uint8_t* drawn = mask.data<uint8_t>();
  float* to = y.data<float>();
  draw_mask(p, x.numel(), drawn);
  in_blocks(x.numel(), kBlock, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) to[i] = dropped(from[i], drawn[i], kept);
  });
  return {y, mask};
}

Tensors Backward(const Tensor& mask, const Tensor& gradient, double chance) {
  const Tensor dy = dense(gradient);
  const float kept = 1.0f - static_cast<float>(chance);
  Tensor dx = paddle::empty_like(dy);
  const uint8_t* drawn = mask.data<uint8_t>();
  const float* g = dy.data<float>();
  float* to = dx.data<float>();
  in_blocks(dy.numel(), kBlock, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) to[i] = dropped_gradient(g[i], drawn[i], kept);
  });
  return {dx};
}

}  // namespace dropout
}  // namespace sot

PD_BUILD_OP(sot_dropout)
    .Inputs({"X"})
    .Outputs({"Out", "Mask"})
    .Attrs({"p: double"})
    .SetKernelFn(PD_KERNEL(sot::dropout::Forward));

PD_BUILD_GRAD_OP(sot_dropout)
    .Inputs({"Mask", paddle::Grad("Out")})
    .Outputs({paddle::Grad("X")})
    .Attrs({"p: double"})
    .SetKernelFn(PD_KERNEL(sot::dropout::Backward));

SOT_ONCE_ONLY(sot_dropout, "X");
