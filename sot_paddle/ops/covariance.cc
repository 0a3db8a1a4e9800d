// Cross-covariance of two token sets, float32: C = 1/n sum_t a_t b_t^T for each head, where
// a_t = w_t (l_t - mean of l) and likewise b_t of r; w are the weights of the tokens, 1 without a
// mask, and n is their sum, at least 1. See functional.cross_covariance.
//
// Backward, of G = dC: da_t = 1/n G b_t, dl_t = w_t (da_t - 1/n sum_s w_s da_s), where the scalar
// centring takes the mean of that sum over the channels.
//
// Both sets lie in one tensor (the projection of the multi-head form: left parts of all heads, then
// the right ones) or in two.
#include "blocks.h"
#include "small_matrices.h"

namespace sot::covariance {

constexpr int64_t kChunk = 16;  // tokens of a partial sum

// The weights of a sample's tokens and their sum.
struct Weights {
  const float* at;  // null: all are 1
  float n;
  Weights(const float* all, int64_t sample, int64_t count)
      : at(all ? all + sample * count : nullptr), n(static_cast<float>(count)) {
    if (!at) return;
    double sum = 0.0;
    for (int64_t t = 0; t < count; ++t) sum += at[t];
    n = std::max(1.0f, static_cast<float>(sum));
  }
  float of(int64_t token) const { return at ? at[token] : 1.0f; }
};

// What the centring of rows (count, columns) subtracts; the scalar one has a mean for each head,
// that is for each `width` columns.
void means(const float* rows, int64_t stride, int64_t count, int64_t columns, int64_t width,
           bool by_scalar, const Weights& weights, float* mean, float* part) {
  std::fill(mean, mean + columns, 0.0f);
  for (int64_t first = 0; first < count; first += kChunk) {
    std::fill(part, part + columns, 0.0f);
    for (int64_t t = first; t < std::min(count, first + kChunk); ++t) {
      const float weight = weights.of(t);
      for (int64_t i = 0; i < columns; ++i) part[i] += weight * rows[t * stride + i];
    }
    for (int64_t i = 0; i < columns; ++i) mean[i] += part[i];
  }
  if (!by_scalar)
    for (int64_t i = 0; i < columns; ++i) mean[i] /= weights.n;
  for (int64_t first = 0; by_scalar && first < columns; first += width) {
    double total = 0.0;
    for (int64_t i = first; i < first + width; ++i) total += mean[i];
    std::fill(mean + first, mean + first + width, static_cast<float>(total / width) / weights.n);
  }
}

// One set of tokens: columns from `first` on of a tensor (B, N, row), `width` for each head.
struct Tokens {
  const float* at;
  int64_t row, first, columns, width;
  int64_t begin(int64_t sample, int64_t count) const { return sample * count * row + first; }
  int64_t stride() const { return columns + padded(width); }  // of its rows in a workspace
  int64_t space(int64_t count) const { return (count + 2) * stride(); }
};

// The inputs without gaps: one tensor of both sets, or two; and the weights of all tokens.
struct Call {
  Tensors sets;
  MaybeTensor mask;
  int64_t heads;
  bool by_scalar;
  int64_t batch = sets[0].shape()[0], count = sets[0].shape()[1];
  Tokens x = tokens(0), y = tokens(1);
  const float* weights = mask ? mask->data<float>() : nullptr;

  Tokens tokens(int64_t set) const {
    const bool apart = sets.size() == 2;
    const Tensor& tensor = sets[apart ? set : 0];
    const int64_t row = tensor.shape()[2], columns = apart ? row : row / 2;
    return {tensor.data<float>(), row, apart ? 0 : set * columns, columns, columns / heads};
  }
};

// to_t = w_t (rows_t - mean) of the tokens of a sample; rows and their results in two strides.
void centre(const Call& call, const Tokens& tokens, const Weights& weights, const float* rows,
            int64_t stride, Workspace* space, float* to, int64_t apart) {
  float *mean = space->take(tokens.stride()), *part = space->take(tokens.stride());
  means(rows, stride, call.count, tokens.columns, tokens.width, call.by_scalar, weights, mean,
        part);
  for (int64_t t = 0; t < call.count; ++t) {
    const float weight = weights.of(t);
    const float* from = rows + t * stride;
    for (int64_t i = 0; i < tokens.columns; ++i) to[t * apart + i] = weight * (from[i] - mean[i]);
  }
}

// The centred tokens of a sample; whole vectors can be read from any column on.
float* centred(const Call& call, const Tokens& tokens, int64_t sample, const Weights& weights,
               Workspace* space) {
  const int64_t stride = tokens.stride();
  float* rows = space->take(call.count * stride);
  for (int64_t t = 0; t < call.count; ++t)
    std::fill(rows + t * stride + tokens.columns, rows + (t + 1) * stride, 0.0f);
  centre(call, tokens, weights, tokens.at + tokens.begin(sample, call.count), tokens.row, space,
         rows, stride);
  return rows;
}

Tensors Forward(const Tensors& sets, const MaybeTensor& mask, int64_t heads, bool by_scalar) {
  const Call call{dense(sets), dense(mask), heads, by_scalar};
  const int64_t w1 = call.x.width, w2 = call.y.width, wide = padded(w2);
  const Tensor& x = call.sets[0];
  Tensor made = paddle::empty({call.batch * heads, w1, w2}, x.dtype(), x.place());
  float* out = made.data<float>();
  in_blocks(call.batch, 1, [&](int64_t sample, int64_t) {
    Workspace space(call.x.space(call.count) + call.y.space(call.count) + w1 * wide);
    const Weights weights(call.weights, sample, call.count);
    const float* a = centred(call, call.x, sample, weights, &space);
    const float* b = centred(call, call.y, sample, weights, &space);
    float* c = space.take(w1 * wide);
    for (int64_t head = 0; head < call.heads; ++head) {
      product({a + head * w1, 1, call.x.stride()}, {b + head * w2, call.y.stride()}, w1, call.count,
              w2, {c, wide});
      float* to = out + (sample * call.heads + head) * w1 * w2;
      for (int64_t i = 0; i < w1; ++i)
        for (int64_t j = 0; j < w2; ++j) to[i * w2 + j] = c[i * wide + j] / weights.n;
    }
  });
  return {made};
}

Tensors Backward(const Tensors& sets, const MaybeTensor& mask, const Tensor& gradient,
                 int64_t heads, bool by_scalar) {
  const Call call{dense(sets), dense(mask), heads, by_scalar};
  const Tensor dense_gradient = dense(gradient);
  Tensors slopes = empty_like(call.sets);
  const float* dc = dense_gradient.data<float>();
  float *dx = slopes.front().data<float>(), *dy = slopes.back().data<float>();
  in_blocks(call.batch, 1, [&](int64_t sample, int64_t) {
    const Tokens &x = call.x, &y = call.y;
    const int64_t w1 = x.width, w2 = y.width, wide = padded(w2), tall = padded(w1);
    Workspace space(2 * (x.space(call.count) + y.space(call.count)) + w1 * wide + w2 * tall);
    const Weights weights(call.weights, sample, call.count);
    const float* a = centred(call, x, sample, weights, &space);
    const float* b = centred(call, y, sample, weights, &space);
    float* da = space.take(call.count * x.stride());
    float* db = space.take(call.count * y.stride());
    float *g = space.take(w1 * wide), *turned = space.take(w2 * tall);
    std::fill(g, turned + w2 * tall, 0.0f);
    for (int64_t head = 0; head < call.heads; ++head) {
      const float* from = dc + (sample * call.heads + head) * w1 * w2;
      for (int64_t i = 0; i < w1; ++i)
        for (int64_t j = 0; j < w2; ++j)
          g[i * wide + j] = turned[j * tall + i] = from[i * w2 + j] / weights.n;
      // what a product writes beyond a head, the next one overwrites
      product({b + head * w2, y.stride(), 1}, {turned, tall}, call.count, w2, w1,
              {da + head * w1, x.stride()});
      product({a + head * w1, x.stride(), 1}, {g, wide}, call.count, w1, w2,
              {db + head * w2, y.stride()});
    }
    centre(call, x, weights, da, x.stride(), &space, dx + x.begin(sample, call.count), x.row);
    centre(call, y, weights, db, y.stride(), &space, dy + y.begin(sample, call.count), y.row);
  });
  return slopes;
}

const Operator kCovariance("sot_covariance", {"heads: int64_t", "by_scalar: bool"},
                           {{paddle::Vec("Sets"), Optional("Mask")}, {"Out"}, PD_KERNEL(Forward)},
                           {{paddle::Vec("Sets"), Optional("Mask"), Grad("Out")},
                            {Grad(paddle::Vec("Sets"))}, PD_KERNEL(Backward)});

}  // namespace sot::covariance
