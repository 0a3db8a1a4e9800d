// What every native operator shares: blocks of work for the threads, memory, inputs without gaps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "paddle/phi/api/all.h"

namespace sot {

using Tensor = paddle::Tensor;
using Tensors = std::vector<Tensor>;
using MaybeTensor = paddle::optional<Tensor>;

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

// Rows of a matrix that one piece of work takes.
inline int64_t rows_of_block(int64_t rows) { return std::max<int64_t>(32, (rows + 255) / 256); }

// Sums over the rows of a matrix: each block of `rows_of_block` rows adds into a row of its own,
// and the blocks are added up in their order, whoever made them.
template <class Number = float>
class ColumnSums {
 public:
  ColumnSums(int64_t rows, int64_t width)
      : size_(rows_of_block(rows)), width_(width), parts_((rows + size_ - 1) / size_ * width) {}

  // Zeros for the block that begins with a row.
  Number* of_block(int64_t begin) { return parts_.data() + begin / size_ * width_; }

  // Write the sums of `count` columns from `first` on.
  void add_up(int64_t first, int64_t count, Number* to) const {
    std::fill(to, to + count, Number(0));
    for (size_t part = first; part < parts_.size(); part += width_) {
      const Number* from = parts_.data() + part;
      for (int64_t i = 0; i < count; ++i) to[i] += from[i];
    }
  }

 private:
  int64_t size_, width_;
  std::vector<Number> parts_;
};

// For each column the sum of term(row, column), in double.
template <class Term>
std::vector<double> column_sums(int64_t rows, int64_t columns, const Term& term) {
  ColumnSums<double> sums(rows, columns);
  in_blocks(rows, rows_of_block(rows), [=, &sums](int64_t begin, int64_t end) {
    double* part = sums.of_block(begin);
    for (int64_t row = begin; row < end; ++row)
      for (int64_t i = 0; i < columns; ++i) part[i] += term(row, i);
  });
  std::vector<double> total(columns);
  sums.add_up(0, columns, total.data());
  return total;
}

// Memory of the calling thread, kept from call to call; another one for each use at a time.
template <int kUse = 0>
float* scratch(int64_t size) {
  static thread_local std::vector<float> kept;
  if (static_cast<int64_t>(kept.size()) < size) kept.resize(size);
  return kept.data();
}

// The tensor itself, or a copy of a strided view.
inline Tensor dense(const Tensor& tensor) {
  return tensor.is_contiguous() ? tensor : tensor.contiguous();
}

// The second derivative of every native operator.
inline void refuse(paddle::CustomOpKernelContext*) {
  PD_THROW("a native operator can be differentiated once; for second derivatives set "
           "SOT_PADDLE_NATIVE=0 or call sot_paddle.ops.native(False)");
}

}  // namespace sot

// Register that refusal for the input x of an operator; without it the derivative is left out.
#define SOT_ONCE_ONLY(op, x)                                         \
  PD_BUILD_DOUBLE_GRAD_OP(op)                                        \
      .Inputs({paddle::Grad("Out"), paddle::Grad(paddle::Grad(x))})  \
      .Outputs({paddle::Grad(paddle::Grad("Out"))})                  \
      .SetKernelFn(sot::refuse)
