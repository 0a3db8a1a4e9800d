// What every native operator shares: blocks of work for the threads, memory, inputs without gaps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "paddle/phi/api/all.h"

namespace sot {

using Tensor = paddle::Tensor;
using Tensors = std::vector<Tensor>;
using MaybeTensor = paddle::optional<Tensor>;
using Names = std::vector<std::string>;
using paddle::Grad;
using paddle::Optional;

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

// Call work(i) for each i in [0, count), in vectors of the processor.
template <class Work>
void for_each(int64_t count, const Work& work) {
  in_blocks(count, 16384, [&](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) work(i);
  });
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
  void add_up(int64_t first, int64_t count, float* to) const {
    std::vector<Number> total(count);
    for (size_t part = first; part < parts_.size(); part += width_) {
      const Number* from = parts_.data() + part;
      for (int64_t i = 0; i < count; ++i) total[i] += from[i];
    }
    std::copy(total.begin(), total.end(), to);
  }

 private:
  int64_t size_, width_;
  std::vector<Number> parts_;
};

// Write the sum of each column of a matrix, made in numbers of that kind.
template <class Number>
void column_sums(int64_t rows, int64_t width, const float* from, float* to) {
  ColumnSums<Number> sums(rows, width);
  in_blocks(rows, rows_of_block(rows), [=, &sums](int64_t begin, int64_t end) {
    Number* part = sums.of_block(begin);
    for (int64_t row = begin; row < end; ++row) {
      const float* at = from + row * width;
#pragma omp simd
      for (int64_t i = 0; i < width; ++i) part[i] += at[i];
    }
  });
  sums.add_up(0, width, to);
}

// x = f(x + bias), (rows, width), on the memory of x.
template <class Function>
Tensors add_bias(const Tensor& x, const Tensor& bias, const Function& f) {
  const int64_t width = bias.numel(), rows = x.numel() / width;
  float* at = const_cast<float*>(x.data<float>());
  const float* b = bias.data<float>();
  in_blocks(rows, rows_of_block(rows), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* to = at + row * width;
#pragma omp simd
      for (int64_t i = 0; i < width; ++i) to[i] = f(to[i] + b[i]);
    }
  });
  return {x};
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

inline MaybeTensor dense(const MaybeTensor& tensor) {
  return tensor ? MaybeTensor(dense(*tensor)) : tensor;
}

inline Tensors dense(const Tensors& tensors) {
  Tensors made;
  for (const Tensor& tensor : tensors) made.push_back(dense(tensor));
  return made;
}

inline Tensors empty_like(const Tensors& tensors) {
  Tensors made;
  for (const Tensor& tensor : tensors) made.push_back(paddle::empty_like(tensor));
  return made;
}

// The second derivative of every native operator.
inline void refuse(paddle::CustomOpKernelContext*) {
  PD_THROW("a native operator can be differentiated once; for second derivatives set "
           "SOT_PADDLE_NATIVE=0 or call sot_paddle.ops.native(False)");
}

// A function, and the names of the tensors that it takes and gives.
struct Kernel {
  Names inputs, outputs;
  paddle::KernelFunc compute;
};

// Registers an operator for Paddle, and its gradient, which can be taken once.
struct Operator {
  Operator(const char* name, const Names& attributes, const Kernel& forward) {
    add(name, 0, attributes, forward);
  }

  // `backward` gives the gradient of a tensor that is always there first.
  Operator(const char* name, const Names& attributes, const Kernel& forward, const Kernel& backward)
      : Operator(name, attributes, forward) {
    add(name, 1, attributes, backward);
    const std::string slope = Grad("Out"), first = Grad(backward.outputs[0]);
    add(name, 2, {}, {{slope, first}, {Grad(slope)}, refuse});  // else it would be left out
  }

 private:
  void add(const char* name, size_t derivative, Names attributes, Kernel kernel) {
    paddle::OpMetaInfoBuilder(name, derivative)
        .Inputs(std::move(kernel.inputs))
        .Outputs(std::move(kernel.outputs))
        .Attrs(std::move(attributes))
        .SetKernelFn(kernel.compute);
  }
};

}  // namespace sot
