// Batch normalisation of images, a 1x1 convolution and average pooling with steps of 1 or 2, float32.
//
// Both are linear for each channel, so the pixels are pooled first: the convolution has a quarter
// of the work. y = W ((p - m) r c + b), r = 1 / sqrt(v + eps), p the pooled pixels, m and v those of
// all n pixels of a channel, or given (evaluation). With g = W^T dy and h = (p - m) r,
//   dW = dy (h c + b)^T, dc = sum g h, db = sum g, dx = c r (u - (db + (x - m) r dc) / n),
// u = g / step^2 at each pixel that was pooled; the last term in training only.
#include <cmath>

#include "blocks.h"
#include "planes.h"

namespace sot::transition {

using namespace planes;  // NOLINT

// A batch normalisation of images (B, C, H, W): its statistics, and what becomes of them.
struct Norm {
  Tensor means, vars, scales, biases;
  std::vector<double> inverse;  // 1 / sqrt(v + eps)

  // With the mean and the biased variance of each channel of x, or with those that are given.
  Norm(const Tensor& x, const Tensor& scale, const Tensor& bias, const MaybeTensor& mean,
       const MaybeTensor& var, double epsilon)
      : means(paddle::empty({x.shape()[1]}, x.dtype(), x.place())),
        vars(paddle::empty_like(means)),
        scales(dense(scale)),
        biases(dense(bias)) {
    if (mean) {  // copied: running values go on changing
      std::copy_n(dense(*mean).data<float>(), means.numel(), means.data<float>());
      std::copy_n(dense(*var).data<float>(), vars.numel(), vars.data<float>());
    } else {
      measure(x);
    }
    const float* of = vars.data<float>();
    for (int64_t c = 0; c < vars.numel(); ++c) inverse.push_back(1.0 / std::sqrt(of[c] + epsilon));
  }
  float mean(int64_t c) const { return means.data<float>()[c]; }
  float scale(int64_t c) const { return scales.data<float>()[c]; }
  float bias(int64_t c) const { return biases.data<float>()[c]; }

 private:
  // In double: of each plane while it is in the cache, the planes put together in their order.
  void measure(const Tensor& x) {
    const int64_t batch = x.shape()[0], channels = x.shape()[1], planes = batch * channels;
    const int64_t size = planes ? x.numel() / planes : 0;
    const float* at = x.data<float>();
    std::vector<double> centres(planes), apart(planes);
    in_blocks(planes, 1, [&](int64_t plane, int64_t) {
      const float* from = at + plane * size;
      double sum = 0.0, squares = 0.0;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < size; ++i) sum += from[i];
      const double centre = sum / size;
#pragma omp simd reduction(+ : squares)
      for (int64_t i = 0; i < size; ++i) squares += (from[i] - centre) * (from[i] - centre);
      centres[plane] = centre;
      apart[plane] = squares;
    });
    for (int64_t c = 0; c < channels; ++c) {
      double centre = 0.0, squares = 0.0;
      for (int64_t i = c; i < planes; i += channels) centre += centres[i] / batch;
      for (int64_t i = c; i < planes; i += channels)
        squares += apart[i] + size * (centres[i] - centre) * (centres[i] - centre);
      means.data<float>()[c] = static_cast<float>(centre);
      vars.data<float>()[c] = static_cast<float>(squares / (batch * size));
    }
  }
};

// Sizes, and tiles of an image: whole pooled rows, about `kTilePixels` together.
struct Sizes {
  std::vector<int64_t> images;
  int64_t outputs, step;
  int64_t batch = images[0], channels = images[1], height = images[2], width = images[3];
  int64_t rows = height / step, columns = width / step;
  int64_t tile_rows = std::max<int64_t>(1, kTilePixels / std::max<int64_t>(1, columns));
  int64_t tiles = (rows + tile_rows - 1) / tile_rows;

  int64_t plane() const { return height * width; }
  int64_t pooled() const { return rows * columns; }
  int64_t tile() const { return padded(std::min(tile_rows, rows) * columns); }
};

// h of `rows` pooled rows of a channel.
void pool(const Sizes& n, const Norm& norm, int64_t c, const float* from, int64_t rows, float* to) {
  const float centre = norm.mean(c), by = static_cast<float>(norm.inverse[c]);
  for (int64_t y = 0; y < rows; ++y, from += n.step * n.width, to += n.columns) {
    const float* below = from + n.width;
    if (n.step == 1) {
#pragma omp simd
      for (int64_t x = 0; x < n.columns; ++x) to[x] = (from[x] - centre) * by;
      continue;
    }
#pragma omp simd
    for (int64_t x = 0; x < n.columns; ++x) {
      const float sum = from[2 * x] + from[2 * x + 1] + below[2 * x] + below[2 * x + 1];
      to[x] = (sum * 0.25f - centre) * by;
    }
  }
}

void transform(const Norm& norm, int64_t c, int64_t count, float* h) {
  const float by = norm.scale(c), shift = norm.bias(c);
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) h[i] = h[i] * by + shift;
}

// work(image, tile, first pooled row, rows) for all tiles.
template <class Work>
void each_tile(const Sizes& n, const Work& work) {
  in_blocks(n.batch * n.tiles, 1, [&](int64_t at, int64_t) {
    const int64_t begin = at % n.tiles * n.tile_rows;
    work(at / n.tiles, at, begin, std::min(n.tile_rows, n.rows - begin));
  });
}

Tensors Forward(const Tensor& input, const Tensor& scale, const Tensor& bias, const Tensor& weight,
                const MaybeTensor& mean, const MaybeTensor& var, int64_t step, double epsilon,
                bool) {
  const Tensor x = dense(input), w = dense(weight);
  const Sizes n{x.shape(), w.shape()[0], step};
  const Norm norm(x, scale, bias, mean, var, epsilon);
  Tensor y = paddle::empty({n.batch, n.outputs, n.rows, n.columns}, x.dtype(), x.place());
  const float *from = x.data<float>(), *matrix = w.data<float>();
  float* made = y.data<float>();
  const Weights weights(n.outputs, n.channels,
                        [=](int64_t o, int64_t c) { return matrix[o * n.channels + c]; });
  const Offsets taps = channels(n.channels, n.tile());
  each_tile(n, [&](int64_t image, int64_t, int64_t begin, int64_t rows) {
    float* in = scratch<1>(n.channels * n.tile());
    for (int64_t c = 0; c < n.channels; ++c) {
      const int64_t at = (image * n.channels + c) * n.plane() + begin * step * n.width;
      pool(n, norm, c, from + at, rows, in + c * n.tile());
      transform(norm, c, rows * n.columns, in + c * n.tile());
    }
    float* out = made + image * n.outputs * n.pooled() + begin * n.columns;
    mix(in, taps, weights, rows * n.columns, [&](int64_t o, int64_t p, int64_t left, Vec value) {
      store_some(out + o * n.pooled() + p, left, value);
    });
  });
  return {y, norm.means, norm.vars};
}

// Writes W^T dy of each pooled pixel; sums over all pixels: dW, dc and db, one after the other.
std::vector<double> collect(const Sizes& n, const Norm& norm, const float* x, const float* g,
                            const float* matrix, float* slopes) {
  const Weights back(n.channels, n.outputs,
                     [=](int64_t c, int64_t o) { return matrix[o * n.channels + c]; });
  const int64_t tile = n.tile(), wide = n.channels * (n.outputs + 2);
  std::vector<float> sums(n.batch * n.tiles * wide, 0.0f);
  const Offsets outer = channels(n.outputs, tile), inner = channels(n.channels, tile);
  each_tile(n, [&](int64_t image, int64_t at, int64_t begin, int64_t rows) {
    const int64_t count = rows * n.columns, first = begin * n.columns;
    float *h = scratch<1>((n.channels + n.outputs) * tile), *up = h + n.channels * tile;
    float *sum = sums.data() + at * wide, *along = sum + n.channels * n.outputs;
    for (int64_t o = 0; o < n.outputs; ++o) {
      std::copy_n(g + (image * n.outputs + o) * n.pooled() + first, count, up + o * tile);
      std::fill(up + o * tile + count, up + (o + 1) * tile, 0.0f);
    }
    float* slope = slopes + image * n.channels * n.pooled() + first;
    mix(up, outer, back, count, [&](int64_t c, int64_t p, int64_t left, Vec value) {
      store_some(slope + c * n.pooled() + p, left, value);
    });
    for (int64_t c = 0; c < n.channels; ++c) {
      float *row = h + c * tile, product = 0.0f, total = 0.0f;
      const float *of = slope + c * n.pooled(), *from = x + (image * n.channels + c) * n.plane();
      pool(n, norm, c, from + begin * n.step * n.width, rows, row);
#pragma omp simd reduction(+ : product, total)
      for (int64_t i = 0; i < count; ++i) {
        product += of[i] * row[i];
        total += of[i];
      }
      along[c] = product;
      along[n.channels + c] = total;
      transform(norm, c, count, row);
      std::fill(row + count, row + tile, 0.0f);
    }
    correlate({up, 0}, outer, {h, 0}, inner, 1, count, sum);
  });
  return totals(sums, wide);
}

// dx of a plane: out = each slope / step^2 - (x - m) turned - fixed.
void spread(const Sizes& n, const float* x, const float* slope, double each, float centre,
            float turned, float fixed, float* out) {
  const float part = static_cast<float>(each / (n.step * n.step));
#pragma omp simd
  for (int64_t i = 0; i < n.plane(); ++i) out[i] = -fixed - (x[i] - centre) * turned;
  for (int64_t y = 0; y < n.rows * n.step; ++y, out += n.width) {
    const float* of = slope + y / n.step * n.columns;
    if (n.step == 1) {
#pragma omp simd
      for (int64_t p = 0; p < n.columns; ++p) out[p] += part * of[p];
      continue;
    }
#pragma omp simd
    for (int64_t p = 0; p < n.columns; ++p) {
      out[2 * p] += part * of[p];
      out[2 * p + 1] += part * of[p];
    }
  }
}

Tensors Backward(const Tensor& input, const Tensor& scale, const Tensor& bias, const Tensor& weight,
                 const Tensor& mean, const Tensor& var, const Tensor& gradient, int64_t step,
                 double epsilon, bool trained) {
  const Tensor x = dense(input), w = dense(weight), dy = dense(gradient);
  const Sizes n{x.shape(), w.shape()[0], step};
  const Norm norm(x, scale, bias, mean, var, epsilon);
  std::vector<float> slopes(n.batch * n.channels * n.pooled());
  const std::vector<double> sums = collect(n, norm, x.data<float>(), dy.data<float>(),
                                           w.data<float>(), slopes.data());
  Tensor dx = paddle::empty_like(x), dw = paddle::empty_like(w);
  Tensor dc = paddle::empty_like(mean), db = paddle::empty_like(mean);
  const double *along = sums.data() + w.numel(), *plain = along + n.channels;
  std::copy_n(sums.data(), w.numel(), dw.data<float>());
  std::copy_n(along, n.channels, dc.data<float>());
  std::copy_n(plain, n.channels, db.data<float>());
  const float *from = x.data<float>(), *slope = slopes.data();
  float* to = dx.data<float>();
  in_blocks(n.batch * n.channels, 1, [&](int64_t plane, int64_t) {
    const int64_t c = plane % n.channels;
    const double each = norm.scale(c) * norm.inverse[c];
    const double share = trained ? each / (n.batch * n.plane()) : 0.0;
    spread(n, from + plane * n.plane(), slope + plane * n.pooled(), each, norm.mean(c),
           static_cast<float>(share * along[c] * norm.inverse[c]),
           static_cast<float>(share * plain[c]), to + plane * n.plane());
  });
  return {dx, dc, db, dw};
}

const Operator kTransition("sot_transition", {"step: int64_t", "epsilon: double", "trained: bool"},
                           {{"X", "Scale", "Bias", "Weight", Optional("GivenMean"),
                             Optional("GivenVar")}, {"Out", "Mean", "Var"}, PD_KERNEL(Forward)},
                           {{"X", "Scale", "Bias", "Weight", "Mean", "Var", Grad("Out")},
                            {Grad("X"), Grad("Scale"), Grad("Bias"), Grad("Weight")},
                            PD_KERNEL(Backward)});

}  // namespace sot::transition
