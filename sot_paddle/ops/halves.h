// Matrices rounded to bfloat16 (to nearest even), for products of oneDNN.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "onednn.h"

namespace sot {

inline Half rounded(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const uint32_t nearest = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  return static_cast<Half>(value == value ? nearest : bits >> 16 | 0x40u);
}

// Memory that begins with a line of the cache: from elsewhere AMX takes twice the time.
struct Freed {
  void operator()(void* at) const { std::free(at); }
};
using Lines = std::unique_ptr<Half[], Freed>;

inline Lines lines(size_t bytes) {
  constexpr size_t kLine = 64;
  void* at = std::aligned_alloc(kLine, (bytes / kLine + 1) * kLine);
  if (!at) throw std::bad_alloc();
  return Lines(static_cast<Half*>(at));
}

// A matrix (rows, columns) in bfloat16.
struct Factor {
  static constexpr int64_t kBlock = 16384;
  int64_t rows, columns;
  Lines at;

  Factor(int64_t rows_, int64_t columns_)
      : rows(rows_), columns(columns_), at(lines(sizeof(Half) * rows_ * columns_)) {}

  Factor(const Tensor& tensor, int64_t width) : Factor(tensor.numel() / width, width) {
    const float* from = tensor.data<float>();
    Half* to = at.get();
    in_blocks(tensor.numel(), kBlock, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = rounded(from[i]);
    });
  }
  onednn::Matrix plain() const { return {rows, columns, onednn::kHalf, false, at.get()}; }
  onednn::Matrix turned() const { return {columns, rows, onednn::kHalf, true, at.get()}; }
};

inline onednn::Matrix floats(int64_t rows, int64_t columns, const float* at) {
  return {rows, columns, onednn::kFloat, false, at};
}

}  // namespace sot
