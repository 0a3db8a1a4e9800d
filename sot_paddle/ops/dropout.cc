// Dropout, float32: y = x / (1 - p) where a mask says so, else 0; dx = dy mask / (1 - p).
#include "mersenne.h"

namespace sot::dropout {

Tensors Forward(const Tensor& input, double chance) {
  const Tensor x = dense(input);
  const float p = static_cast<float>(chance), kept = 1.0f - p;
  Tensor y = paddle::empty_like(x);
  Tensor mask = paddle::empty(x.shape(), paddle::DataType::UINT8, x.place());
  const float* from = x.data<float>();
  uint8_t* drawn = mask.data<uint8_t>();
  float* to = y.data<float>();
  draw_mask(p, x.numel(), drawn);
  for_each(x.numel(), [=](int64_t i) {
    const float scaled = from[i] / kept;  // of all: a branch would take twice the time
    to[i] = drawn[i] ? scaled : 0.0f;
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
  for_each(dy.numel(), [=](int64_t i) { to[i] = g[i] * static_cast<float>(drawn[i]) / kept; });
  return {dx};
}

const Operator kDropout("sot_dropout", {"p: double"},
                        {{"X"}, {"Out", "Mask"}, PD_KERNEL(Forward)},
                        {{"Mask", Grad("Out")}, {Grad("X")}, PD_KERNEL(Backward)});

}  // namespace sot::dropout
