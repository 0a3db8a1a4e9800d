// Matrix products of one thread by the library of Paddle's wheel (MKL).
#pragma once

#include <cstdint>

extern "C" void cblas_sgemm(int layout, int transpose_a, int transpose_b, int rows, int columns,
                            int inner, float alpha, const float* a, int lda, const float* b,
                            int ldb, float beta, float* c, int ldc);

namespace sot {

// C = alpha op(A) op(B) + beta C, (rows, columns), rows apart by lda, ldb, ldc. Within a block of
// `in_blocks` MKL computes with the calling thread alone.
template <bool kTransposeA, bool kTransposeB>
inline void product(int64_t rows, int64_t columns, int64_t inner, double alpha, const float* a,
                    int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  constexpr int kRowMajor = 101, kPlain = 111, kTransposed = 112;
  cblas_sgemm(kRowMajor, kTransposeA ? kTransposed : kPlain, kTransposeB ? kTransposed : kPlain,
              static_cast<int>(rows), static_cast<int>(columns), static_cast<int>(inner),
              static_cast<float>(alpha), a, static_cast<int>(lda), b, static_cast<int>(ldb), beta,
              c, static_cast<int>(ldc));
}

}  // namespace sot
