// The exponential function, float32, in a form that every compiler vectorises.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace sot {

// exp(-(s + rest)) for s >= 0 and a tiny rest; not below exp(-87).
inline float exp_minus(float s, float rest) {
  const float z = s < 87.0f ? -s : -87.0f;
  const float n = std::nearbyint(z * 1.44269504f);
  const float r = std::fma(n, -1.42860682e-6f, std::fma(n, -0.693145752f, z)) - rest;
  float p = std::fma(r, 0.00139485928f, 0.00837513727f);
  p = std::fma(p, r, 0.0416662181f);
  p = std::fma(p, r, 0.166664154f);
  p = std::fma(p, r, 0.500000011f);
  p = std::fma(p, r, 1.0f);
  p = std::fma(p, r, 1.0f);
  const int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof power);
  return p * power;
}

}  // namespace sot
