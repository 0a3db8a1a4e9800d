// Products over planes of pixels, one thread, in vector registers: what convolutions are made of.
//
// Many planes lie in one piece of memory; a tap is a plane read from an offset: channel c of an
// image at c P, and the neighbour below it on the right at c P + stride + 1.
#pragma once

#include <algorithm>
#include <vector>

#include "small_matrices.h"

namespace sot::planes {

// Outputs x vectors of pixels at once, or sums x taps, as many as the registers hold.
constexpr int kOutputs = kLanes == 16 ? 8 : 4, kAtOnce = 3;
constexpr int kSums = 4, kTaps = kLanes == 16 ? 6 : 3;
constexpr int kWindow = 3;              // side of the window of a convolution
constexpr int64_t kTilePixels = 1024;  // of every plane: they stay in the cache

// max(value, 0), NaN kept; and a value where its gate is above 0, else 0.
typedef int32_t Bits __attribute__((vector_size(4 * kLanes)));
inline Vec rectified(Vec value) { return (Vec)((Bits)value & ~(Bits)(value < Vec{})); }
inline Vec where_positive(Vec gate, Vec value) {
  return (Vec)((Bits)value & (Bits)(gate > Vec{}));
}

// The first lanes of a vector, no more than there are.
inline void store_some(float* to, int64_t count, Vec value) {
  if (count >= kLanes) return store(to, value);
  std::memcpy(to, &value, count * sizeof(float));
}

// Weights (outputs, taps) by blocks of outputs, zeros up to a whole block; at(output, tap).
class Weights {
 public:
  template <class At>
  Weights(int64_t outputs, int64_t taps, const At& at)
      : outputs_(outputs), taps_(taps), packed_((outputs + kOutputs - 1) / kOutputs * kOutputs * taps) {
    for (int64_t o = 0; o < outputs; ++o)
      for (int64_t t = 0; t < taps; ++t)
        packed_[(o / kOutputs * taps + t) * kOutputs + o % kOutputs] = at(o, t);
  }
  int64_t outputs() const { return outputs_; }
  int64_t taps() const { return taps_; }
  const float* block(int64_t first) const { return packed_.data() + first * taps_; }

 private:
  int64_t outputs_, taps_;
  std::vector<float> packed_;
};

// Where the taps begin.
using Offsets = std::vector<int64_t>;

inline Offsets channels(int64_t count, int64_t plane) {
  Offsets made(count);
  for (int64_t c = 0; c < count; ++c) made[c] = c * plane;
  return made;
}

// (channel, row, column) of a square window over planes whose rows are `stride` apart.
inline Offsets windows(int64_t count, int64_t plane, int64_t stride) {
  Offsets made;
  for (int64_t c = 0; c < count; ++c)
    for (int64_t y = 0; y < kWindow; ++y)
      for (int64_t x = 0; x < kWindow; ++x) made.push_back(c * plane + y * stride + x);
  return made;
}

// Planes with a border of one zero; rows of whole vectors from any tap end within the next row.
struct Bordered {
  int64_t width, height, stride, plane;
  Bordered(int64_t height, int64_t width)
      : width(width), height(height), stride(std::max(padded(width), width + kWindow - 1)) {
    plane = (height + kWindow - 1) * stride;
  }
  int64_t size(int64_t count) const { return count * plane + kAtOnce * kLanes; }
  int64_t inner(int64_t row) const { return (row + 1) * stride + 1; }  // its first pixel
};

template <int kVectors, class Take>
inline void mix_block(const float* from, const Offsets& taps, const float* weights, int64_t outputs,
                      int64_t first, int64_t pixel, int64_t count, const Take& take) {
  Vec sums[kOutputs][kVectors] = {};
  const int64_t* offset = taps.data();
  const int64_t depth = taps.size();
  for (int64_t t = 0; t < depth; ++t, weights += kOutputs) {
    Vec at[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) at[v] = load(from + offset[t] + pixel + v * kLanes);
#pragma GCC unroll 8
    for (int o = 0; o < kOutputs; ++o)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[o][v] += weights[o] * at[v];
  }
#pragma GCC unroll 8
  for (int o = 0; o < kOutputs; ++o) {
    if (first + o >= outputs) break;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const int64_t begin = pixel + v * kLanes;
      take(first + o, begin, std::min<int64_t>(kLanes, count - begin), sums[o][v]);
    }
  }
}

// take(output, pixel, how many, sum over the taps of weight x tap at this and the next pixels) for
// all outputs and pixels. Taps are read to a whole vector.
template <class Take>
void mix(const float* from, const Offsets& taps, const Weights& weights, int64_t count,
         const Take& take) {
  const int64_t outputs = weights.outputs();
  for (int64_t pixel = 0; pixel < count; pixel += kAtOnce * kLanes) {
    const int64_t vectors = std::min<int64_t>(kAtOnce, (count - pixel + kLanes - 1) / kLanes);
    for (int64_t o = 0; o < outputs; o += kOutputs) {
      const float* block = weights.block(o);
      if (vectors == 3) mix_block<3>(from, taps, block, outputs, o, pixel, count, take);
      if (vectors == 2) mix_block<2>(from, taps, block, outputs, o, pixel, count, take);
      if (vectors == 1) mix_block<1>(from, taps, block, outputs, o, pixel, count, take);
    }
  }
}

// A piece of planes: `rows` rows of whole vectors, `stride` apart.
struct Piece {
  const float* from;
  int64_t stride;
};

inline float sum_of(Vec value) {
  float parts[kLanes];
  store(parts, value);
  for (int half = kLanes / 2; half; half /= 2)
    for (int i = 0; i < half; ++i) parts[i] += parts[i + half];
  return parts[0];
}

// sums (left taps, right taps) += the products of each two, summed over rows of whole vectors.
// Pixels that do not count are zero on the left and finite on the right.
inline void correlate(const Piece& left, const Offsets& left_taps, const Piece& right,
                      const Offsets& right_taps, int64_t rows, int64_t width, float* sums) {
  const int64_t lefts = left_taps.size(), rights = right_taps.size();
  for (int64_t r = 0; r < rights; r += kTaps) {
    const float* b[kTaps];
    for (int i = 0; i < kTaps; ++i) b[i] = right.from + right_taps[std::min(r + i, rights - 1)];
    for (int64_t l = 0; l < lefts; l += kSums) {
      const float* a[kSums];
      for (int i = 0; i < kSums; ++i) a[i] = left.from + left_taps[std::min(l + i, lefts - 1)];
      Vec parts[kSums][kTaps] = {};
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t at = row * left.stride, to = row * right.stride;
        for (int64_t p = 0; p < width; p += kLanes) {
          Vec of[kTaps];
#pragma GCC unroll 8
          for (int i = 0; i < kTaps; ++i) of[i] = load(b[i] + to + p);
#pragma GCC unroll 8
          for (int j = 0; j < kSums; ++j) {
            const Vec by = load(a[j] + at + p);
#pragma GCC unroll 8
            for (int i = 0; i < kTaps; ++i) parts[j][i] += by * of[i];
          }
        }
      }
      for (int j = 0; j < kSums && l + j < lefts; ++j)
        for (int i = 0; i < kTaps && r + i < rights; ++i)
          sums[(l + j) * rights + r + i] += sum_of(parts[j][i]);
    }
  }
}

// Totals of parts of `size` numbers that lie one after the other, added in their order.
inline std::vector<double> totals(const std::vector<float>& parts, int64_t size) {
  std::vector<double> total(size, 0.0);
  for (size_t part = 0; part < parts.size(); part += size)
    for (int64_t i = 0; i < size; ++i) total[i] += parts[part + i];
  return total;
}

}  // namespace sot::planes
