// Dropout masks from the generator that paddle.seed starts, the same that Paddle's own kernel draws.
//
// That kernel asks std::uniform_real_distribution<float>(0, 1) once for each element: one number z
// of the generator (std::mt19937_64) as float(z) / 2^64, just below 1 where that is 1; the element
// is dropped where it is below p. Here a whole state of the generator is made and compared at once,
// and the generator is left where Paddle's would be.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <type_traits>

#include "blocks.h"
#include "paddle/phi/core/generator.h"

#ifndef __GLIBCXX__
#error "the state of std::mt19937_64 is known for GNU's C++ library only"
#endif

namespace sot {

constexpr int kWords = 312, kApart = 156;

struct Twister {  // as libstdc++ lays out std::mt19937_64
  uint64_t word[kWords];
  size_t next;
};
static_assert(sizeof(Twister) == sizeof(std::mt19937_64), "another std::mt19937_64");
static_assert(std::is_trivially_copyable<std::mt19937_64>::value, "another std::mt19937_64");

inline uint64_t twisted(uint64_t high, uint64_t low, uint64_t far) {
  const uint64_t y = (high & 0xffffffff80000000ull) | (low & 0x7fffffffull);
  return far ^ (y >> 1) ^ ((0 - (y & 1)) & 0xb5026f5aa96619e9ull);
}

// The state after w, in other memory: made in place it takes twice as long.
inline void twist(const uint64_t* w, uint64_t* __restrict to) {
#pragma omp simd
  for (int i = 0; i < kApart; ++i) to[i] = twisted(w[i], w[i + 1], w[i + kApart]);
#pragma omp simd
  for (int i = kApart; i < kWords - 1; ++i) to[i] = twisted(w[i], w[i + 1], to[i - kApart]);
  to[kWords - 1] = twisted(w[kWords - 1], to[0], to[kApart - 1]);
}

inline uint64_t tempered(uint64_t z) {
  z ^= (z >> 29) & 0x5555555555555555ull;
  z ^= (z << 17) & 0x71d67fffeda60000ull;
  z ^= (z << 37) & 0xfff7eee000000000ull;
  return z ^ (z >> 43);
}

// The smallest z that is kept: a float of it over 2^64 is not below p (0 < p < 1).
inline uint64_t first_kept(float p) {
  uint64_t low = 0, high = ~0ull;  // low is dropped, high kept: float(high) is 2^64
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    (std::ldexp(static_cast<float>(middle), -64) < p ? low : high) = middle;
  }
  return high;
}

// Write 1 for each element that is kept and 0 for each that is dropped with probability p.
inline void draw_mask(float p, int64_t count, uint8_t* mask) {
  std::mt19937_64& engine = *phi::DefaultCPUGenerator()->GetCPUEngine();
  Twister states[2];  // in turns
  Twister *state = states, *other = states + 1;
  std::memcpy(state, &engine, sizeof *state);
  const uint64_t threshold = first_kept(p);
  while (count > 0) {
    if (state->next >= kWords) {
      twist(state->word, other->word);
      std::swap(state, other);
      state->next = 0;
    }
    const int64_t taken = std::min<int64_t>(count, kWords - state->next);
    const uint64_t* from = state->word + state->next;
#pragma omp simd
    for (int64_t i = 0; i < taken; ++i) mask[i] = tempered(from[i]) >= threshold;
    state->next += taken;
    mask += taken;
    count -= taken;
  }
  std::memcpy(static_cast<void*>(&engine), state, sizeof *state);
}

}  // namespace sot
