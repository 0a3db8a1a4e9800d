// What every native operator shares: blocks of work for the threads, and inputs without gaps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "paddle/phi/api/all.h"

namespace sot {

// Call work(begin, end) on pieces of [0, count) of `size` each, on Paddle's threads. The pieces do
// not depend on the number of threads, so sums that are made piece by piece do not either.
template <class Work>
void in_blocks(int64_t count, int64_t size, const Work& work) {
  const int64_t pieces = (count + size - 1) / size;
#pragma omp parallel for schedule(static) if (pieces > 1)
  for (int64_t piece = 0; piece < pieces; ++piece) {
    work(piece * size, std::min(count, (piece + 1) * size));
  }
}

// The tensor itself, or a copy of a strided view.
inline paddle::Tensor dense(const paddle::Tensor& tensor) {
  return tensor.is_contiguous() ? tensor : tensor.contiguous();
}

// What the second derivative of every native operator says; without one, Paddle leaves it out.
constexpr char kOnceOnly[] =
    "a native operator can be differentiated once; set SOT_PADDLE_NATIVE=0 for second derivatives";

}  // namespace sot
