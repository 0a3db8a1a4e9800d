// Scaled dot-product attention of several heads, float32: for each head
//   P = softmax(scale Q K^T + bias), W = dropout(P), out = W V.
//
// Q, K and V are columns of (B, S, H d) tensors, so nothing is transposed, and a block of queries
// stays in the processor's cache from its scores to its output. Nothing of size S x S is kept but
// the dropout mask: backward makes P again from the largest score and the sum of each row.
//   dV = W^T dO; dP = dropout'(dO V^T); dT = P (dP - sum dP P); dQ = scale dT K; dK = scale dT^T Q.
#include <cmath>
#include <limits>

#include "exponential.h"
#include "mersenne.h"

extern "C" void cblas_sgemm(int layout, int transpose_a, int transpose_b, int rows, int columns,
                            int inner, float alpha, const float* a, int lda, const float* b,
                            int ldb, float beta, float* c, int ldc);

namespace sot::attention {

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

// Where queries, keys and values lie: three tensors (B, S, H d), or one (B, S, 3 H d).
struct Columns {
  float* part[3];
  int64_t row;  // from one token to the next

  explicit Columns(const Tensors& parts) : row(parts[0].shape()[2]) {
    const bool apart = parts.size() == 3;
    for (int64_t i = 0; i < 3; ++i)
      part[i] = const_cast<float*>(parts[apart ? i : 0].data<float>()) + (apart ? 0 : i * (row / 3));
  }
};

struct Sizes {
  int64_t batch, heads, tokens, width, block;  // width d; queries of a block

  Sizes(const Tensors& parts, int64_t heads_)
      : batch(parts[0].shape()[0]), heads(heads_), tokens(parts[0].shape()[1]) {
    width = parts[0].shape()[2] / heads / (parts.size() == 1 ? 3 : 1);
    block = std::max<int64_t>(16, std::min<int64_t>(tokens, 65536 / std::max<int64_t>(tokens, 1)));
  }
  int64_t pairs() const { return batch * heads; }
};

// (b, h, queries, keys), or (h, b, queries, keys) when heads come first; an axis of length 1 is
// shared, and so is one of w < B entries in turn by samples.
struct Bias {
  const float* from = nullptr;
  int64_t samples = 1, heads = 1, sample = 0, head = 0, query = 0;

  Bias(const MaybeTensor& tensor, bool heads_first) {
    if (!tensor) return;
    const std::vector<int64_t> shape = tensor->shape();
    from = tensor->data<float>();
    query = shape[2] > 1 ? shape[3] : 0;
    const int64_t inner = shape[2] * shape[3];
    samples = shape[heads_first ? 1 : 0];
    heads = shape[heads_first ? 0 : 1];
    sample = heads_first ? inner : inner * heads;
    head = heads_first ? inner * samples : inner;
  }
  const float* row(int64_t b, int64_t h, int64_t i) const {
    return from ? from + b % samples * sample + h % heads * head + i * query : nullptr;
  }
};

// One pair of sample and head: b, h, and its place in everything that is drawn or kept.
struct Pair {
  int64_t b, h, place;
  Pair(int64_t pair, const Sizes& n, bool heads_first)
      : b(pair / n.heads), h(pair % n.heads), place(heads_first ? h * n.batch + b : pair) {}
};

struct Row {
  float largest, share;  // P = exp(score - largest) share
};

// exp(-s) for s >= 0; 0 where a weight would not matter (2e-35). A masked score gives exactly 0, as in
// the framework, and no subnormal number, with which a processor multiplies a hundred times slower.
inline float weight(float s) {
  const float made = exp_minus(s, 0.0f);
  return s < 80.0f ? made : 0.0f;
}

// Add the bias and make weights of a row of scores.
inline Row softmax(float* at, const float* bias, int64_t count) {
  float largest = -std::numeric_limits<float>::infinity(), total = 0.0f;
  int broken = 0;
  if (bias) {
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) at[j] += bias[j];
  }
#pragma omp simd reduction(max : largest) reduction(| : broken)
  for (int64_t j = 0; j < count; ++j) {
    largest = at[j] > largest ? at[j] : largest;
    broken |= at[j] != at[j];
  }
  if (broken || std::isinf(largest)) {  // as the framework: not a number
    std::fill(at, at + count, std::numeric_limits<float>::quiet_NaN());
    return {largest, std::numeric_limits<float>::quiet_NaN()};
  }
#pragma omp simd reduction(+ : total)
  for (int64_t j = 0; j < count; ++j) {
    at[j] = weight(largest - at[j]);
    total += at[j];
  }
  const float share = 1.0f / total;
#pragma omp simd
  for (int64_t j = 0; j < count; ++j) at[j] *= share;
  return {largest, share};
}

inline void drop(float* at, const uint8_t* kept, int64_t count, float scale) {
#pragma omp simd
  for (int64_t j = 0; j < count; ++j) at[j] = kept[j] ? at[j] * scale : 0.0f;
}

Tensors Forward(const Tensors& given, const MaybeTensor& bias_tensor, int64_t heads, double scale,
                double chance, bool heads_first) {
  const Tensors parts = dense(given);
  const Sizes n(parts, heads);
  const paddle::Place place = parts[0].place();
  const paddle::DataType type = parts[0].dtype();
  const float p = static_cast<float>(chance), over_kept = 1.0f / (1.0f - p);
  const int64_t area = n.tokens * n.tokens, inner = n.heads * n.width;
  Tensor out = paddle::empty({n.batch, n.tokens, inner}, type, place);
  Tensor rows = paddle::empty({n.pairs() * n.tokens, 2}, type, place);
  Tensor mask = paddle::empty({p > 0.0f ? n.pairs() * area : 0}, paddle::DataType::UINT8, place);
  if (p > 0.0f) draw_mask(p, n.pairs() * area, mask.data<uint8_t>());
  const Columns from(parts);
  const MaybeTensor added = dense(bias_tensor);
  const Bias bias(added, heads_first);
  const uint8_t* kept = p > 0.0f ? mask.data<uint8_t>() : nullptr;
  Row* row_of = reinterpret_cast<Row*>(rows.data<float>());
  float* to = out.data<float>();
  in_blocks(n.pairs(), 1, [=](int64_t pair, int64_t) {
    const Pair at(pair, n, heads_first);
    const int64_t first = at.b * n.tokens * from.row + at.h * n.width;
    float* scores = scratch(n.block * n.tokens);
    for (int64_t start = 0; start < n.tokens; start += n.block) {
      const int64_t count = std::min(n.block, n.tokens - start);
      product<false, true>(count, n.tokens, n.width, scale, from.part[0] + first + start * from.row,
                           from.row, from.part[1] + first, from.row, 0.0f, scores, n.tokens);
      for (int64_t i = 0; i < count; ++i) {
        float* row = scores + i * n.tokens;
        const int64_t query = at.place * n.tokens + start + i;
        row_of[query] = softmax(row, bias.row(at.b, at.h, start + i), n.tokens);
        if (kept) drop(row, kept + query * n.tokens, n.tokens, over_kept);
      }
      product<false, false>(count, n.width, n.tokens, 1.0, scores, n.tokens, from.part[2] + first,
                            from.row, 0.0f,
                            to + (at.b * n.tokens + start) * inner + at.h * n.width, inner);
    }
  });
  return {out, rows, mask};
}

// Make P and W of a block again, then dT = P (dP - sum dP P) in the place of dW.
inline void step_back(float* scores, float* dropped, float* slope, const float* bias, Row row,
                      const uint8_t* kept, int64_t count, float over_kept) {
  if (bias) {
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) scores[j] += bias[j];
  }
#pragma omp simd
  for (int64_t j = 0; j < count; ++j) scores[j] = weight(row.largest - scores[j]) * row.share;
  float along = 0.0f;
  if (kept) {
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) {
      const float factor = static_cast<float>(kept[j]) * over_kept;
      dropped[j] = scores[j] * factor;
      slope[j] *= factor;
    }
  }
#pragma omp simd reduction(+ : along)
  for (int64_t j = 0; j < count; ++j) along += slope[j] * scores[j];
#pragma omp simd
  for (int64_t j = 0; j < count; ++j) slope[j] = scores[j] * (slope[j] - along);
}

Tensors Backward(const Tensors& given, const MaybeTensor& bias_tensor, const Tensor& rows,
                 const Tensor& mask, const Tensor& gradient, int64_t heads, double scale,
                 double chance, bool heads_first) {
  const Tensors parts = dense(given);
  const Tensor dense_gradient = dense(gradient);
  const Sizes n(parts, heads);
  const int64_t inner = n.heads * n.width;
  Tensors made = empty_like(parts);
  const float p = static_cast<float>(chance), over_kept = 1.0f / (1.0f - p);
  const Columns from(parts);
  const Columns to(made);
  const MaybeTensor added = dense(bias_tensor);
  const Bias bias(added, heads_first);
  const uint8_t* kept = p > 0.0f ? mask.data<uint8_t>() : nullptr;
  const Row* row_of = reinterpret_cast<const Row*>(rows.data<float>());
  const float* outer = dense_gradient.data<float>();
  in_blocks(n.pairs(), 1, [=](int64_t pair, int64_t) {
    const Pair at(pair, n, heads_first);
    const int64_t first = at.b * n.tokens * from.row + at.h * n.width, size = n.block * n.tokens;
    float *scores = scratch(3 * size), *slope = scores + size;
    float* dropped = kept ? slope + size : scores;
    const float *q = from.part[0] + first, *k = from.part[1] + first, *v = from.part[2] + first;
    float *dq = to.part[0] + first, *dk = to.part[1] + first, *dv = to.part[2] + first;
    for (int64_t start = 0; start < n.tokens; start += n.block) {
      const int64_t count = std::min(n.block, n.tokens - start), down = start * from.row;
      const float* g = outer + (at.b * n.tokens + start) * inner + at.h * n.width;
      const float more = start ? 1.0f : 0.0f;  // the first block writes, the others add
      product<false, true>(count, n.tokens, n.width, scale, q + down, from.row, k, from.row, 0.0f,
                           scores, n.tokens);
      product<false, true>(count, n.tokens, n.width, 1.0, g, inner, v, from.row, 0.0f, slope,
                           n.tokens);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t query = at.place * n.tokens + start + i, row = i * n.tokens;
        step_back(scores + row, dropped + row, slope + row, bias.row(at.b, at.h, start + i),
                  row_of[query], kept ? kept + query * n.tokens : nullptr, n.tokens, over_kept);
      }
      product<true, false>(n.tokens, n.width, count, 1.0, dropped, n.tokens, g, inner, more, dv,
                           from.row);
      product<false, false>(count, n.width, n.tokens, scale, slope, n.tokens, k, from.row, 0.0f,
                            dq + down, from.row);
      product<true, false>(n.tokens, n.width, count, scale, slope, n.tokens, q + down, from.row,
                           more, dk, from.row);
    }
  });
  return made;
}

const Operator kAttention("sot_attention",
                          {"heads: int64_t", "scale: double", "p: double", "heads_first: bool"},
                          {{paddle::Vec("Parts"), Optional("Bias")},
                           {"Out", "Rows", "Mask"}, PD_KERNEL(Forward)},
                          {{paddle::Vec("Parts"), Optional("Bias"), "Rows", "Mask", Grad("Out")},
                           {Grad(paddle::Vec("Parts"))}, PD_KERNEL(Backward)});

}  // namespace sot::attention
