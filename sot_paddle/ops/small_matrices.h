// Products of matrices that fit in the nearest caches, in vectors of the processor's width.
//
// A row of a packed matrix is padded with zeros to whole vectors, so that no loop has a remainder
// along it. Every sum is made in one order, whatever the number of threads.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>

namespace sot {

#if defined(__AVX512F__)
constexpr int kLanes = 16, kRows = 8;  // 8 x 2 sums in 32 registers
#elif defined(__AVX__)
constexpr int kLanes = 8, kRows = 4;
#else
constexpr int kLanes = 4, kRows = 4;
#endif
typedef float Vec __attribute__((vector_size(sizeof(float) * kLanes)));

inline Vec load(const float* from) {
  Vec vector;
  std::memcpy(&vector, from, sizeof vector);
  return vector;
}

inline void store(float* to, Vec vector) { std::memcpy(to, &vector, sizeof vector); }

inline int64_t padded(int64_t width) { return (width + kLanes - 1) / kLanes * kLanes; }

// Uninitialised memory of one piece of work.
class Workspace {
 public:
  explicit Workspace(int64_t size) : floats_(new float[size]), next_(floats_.get()) {}
  float* take(int64_t size) {
    float* taken = next_;
    next_ += size;
    return taken;
  }

 private:
  std::unique_ptr<float[]> floats_;
  float* next_;
};

// (rows, width) with `stride` floats from row to row, as (rows, padded width).
inline void pack(const float* from, int64_t stride, int64_t rows, int64_t width, float* to) {
  const int64_t wide = padded(width);
  for (int64_t row = 0; row < rows; ++row, from += stride, to += wide) {
    std::memcpy(to, from, sizeof(float) * width);
    for (int64_t i = width; i < wide; ++i) to[i] = 0.0f;
  }
}

// A matrix that is read as it is or transposed: element (i, k) is at[i * row + k * deep].
struct Left {
  const float* at;
  int64_t row, deep;
};

// Rows `stride` floats apart, of which whole vectors are read and written.
template <class Float>
struct Rows {
  Float* at;
  int64_t stride;
};

template <int R, int V>
void tile(Left a, Rows<const float> b, int64_t depth, Rows<float> c) {
  Vec sums[R][V] = {};
  for (int64_t k = 0; k < depth; ++k) {
    Vec right[V];
    for (int v = 0; v < V; ++v) right[v] = load(b.at + k * b.stride + v * kLanes);
    for (int r = 0; r < R; ++r) {
      const float left = a.at[r * a.row + k * a.deep];
      for (int v = 0; v < V; ++v) sums[r][v] += left * right[v];
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) store(c.at + r * c.stride + v * kLanes, sums[r][v]);
}

template <int R>
void band(Left a, Rows<const float> b, int64_t depth, int64_t width, Rows<float> c) {
  int64_t at = 0;
  for (; at + kLanes < width; at += 2 * kLanes)
    tile<R, 2>(a, {b.at + at, b.stride}, depth, {c.at + at, c.stride});
  if (at < width) tile<R, 1>(a, {b.at + at, b.stride}, depth, {c.at + at, c.stride});
}

// c (rows, width) = a (rows, depth) b (depth, width); the rows of b and c are read and written up
// to the next whole vector.
inline void product(Left a, Rows<const float> b, int64_t rows, int64_t depth, int64_t width,
                    Rows<float> c) {
  const auto from = [=](int64_t row) { return Left{a.at + row * a.row, a.row, a.deep}; };
  const auto to = [=](int64_t row) { return Rows<float>{c.at + row * c.stride, c.stride}; };
  int64_t row = 0;
  for (; row + kRows <= rows; row += kRows) band<kRows>(from(row), b, depth, width, to(row));
  for (; row < rows; ++row) band<1>(from(row), b, depth, width, to(row));
}

inline float dot(const float* x, const float* y, int64_t wide) {
  Vec sums = {};
  for (int64_t i = 0; i < wide; i += kLanes) sums += load(x + i) * load(y + i);
  float total = 0.0f;
  for (int lane = 0; lane < kLanes; ++lane) total += sums[lane];
  return total;
}

}  // namespace sot
