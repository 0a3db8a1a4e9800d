// Sums over the rows of a matrix.
#pragma once

#include <vector>

#include "blocks.h"

namespace sot {

constexpr int64_t kSummedRows = 64;  // of a partial sum

// For each column the sum of term(row, column): in double, in one order.
template <class Term>
std::vector<double> column_sums(int64_t rows, int64_t columns, const Term& term) {
  const int64_t blocks = (rows + kSummedRows - 1) / kSummedRows;
  std::vector<double> parts(blocks * columns, 0.0);
  double* to = parts.data();
  in_blocks(rows, kSummedRows, [=](int64_t begin, int64_t end) {
    double* part = to + begin / kSummedRows * columns;
    for (int64_t row = begin; row < end; ++row)
      for (int64_t i = 0; i < columns; ++i) part[i] += term(row, i);
  });
  std::vector<double> total(columns, 0.0);
  for (int64_t block = 0; block < blocks; ++block)
    for (int64_t i = 0; i < columns; ++i) total[i] += parts[block * columns + i];
  return total;
}

}  // namespace sot
