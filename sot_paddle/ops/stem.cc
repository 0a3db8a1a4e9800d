// The stem of the token embedding, float32: 3x3 convolution with bias, 3x3 max-pooling with stride 2.
//
// The channels are made by groups, a band of rows at a time, and pooled at once; of the convolution
// nothing is kept but where each maximum was (row x 3 + column of its window). The bias is added
// after the pooling: rounding reverses no order. No gradient of the images.
#include <limits>

#include "blocks.h"
#include "planes.h"

namespace sot::stem {

using namespace planes;  // NOLINT

constexpr int64_t kBand = 16;      // pooled rows at a time
constexpr uint8_t kNowhere = 255;  // nothing above -inf in a window
constexpr float kLowest = -std::numeric_limits<float>::infinity();

struct Sizes {
  std::vector<int64_t> images;
  int64_t outputs;
  int64_t batch = images[0], inputs = images[1], height = images[2], width = images[3];
  int64_t rows = (height + 1) / 2, columns = (width + 1) / 2;
  int64_t bands = (rows + kBand - 1) / kBand, groups = (outputs + kOutputs - 1) / kOutputs;
  int64_t taps() const { return inputs * kWindow * kWindow; }
  int64_t group(int64_t first) const { return std::min<int64_t>(kOutputs, outputs - first); }
};

// Pooled rows of an image, the rows of the convolution under them, and its input with borders.
struct Band {
  const Sizes& n;
  int64_t at;
  int64_t image = at / n.bands, begin = at % n.bands * kBand, end = std::min(n.rows, begin + kBand);
  int64_t top = std::max<int64_t>(0, 2 * begin - 1), bottom = std::min(n.height, 2 * end);
  Bordered in{bottom - top, n.width};

  float* input(const float* images) const {
    float* to = scratch<0>(in.size(n.inputs));
    std::fill_n(to, in.size(n.inputs), 0.0f);
    const int64_t first = std::max<int64_t>(0, top - 1), last = std::min(n.height, bottom + 1);
    for (int64_t c = 0; c < n.inputs; ++c)
      for (int64_t y = first; y < last; ++y)
        std::copy_n(images + ((image * n.inputs + c) * n.height + y) * n.width, n.width,
                    to + c * in.plane + in.inner(y - top));
    return to;
  }
  int64_t upper(int64_t y) const { return std::max(top, 2 * y - 1); }
  int64_t lower(int64_t y) const { return std::min(bottom, 2 * y + 2); }
};

// Of each column of a row of windows the largest number, NaN where there is one, and 3 x its row in
// the window; a column of -inf lies to the left of the image's, and one or two to the right.
class Columns {
 public:
  explicit Columns(const Sizes& n) : width_(n.width), best_(n.width + 3), place_(n.width + 3) {}

  // `count` rows, the first of which is row `first` of the window.
  void take(const float* rows, int64_t stride, int64_t count, int32_t first) {
    std::fill(best_.begin(), best_.end(), kLowest);
    std::fill(place_.begin(), place_.end(), kNowhere);
    float* best = best_.data() + 1;
    int32_t* place = place_.data() + 1;
    for (int32_t at = kWindow * first; count > 0; --count, at += kWindow, rows += stride) {
#pragma omp simd
      for (int64_t x = 0; x < width_; ++x) {
        const bool more = rows[x] > best[x] || rows[x] != rows[x];  // NaN stays
        best[x] = more ? rows[x] : best[x];
        place[x] = more ? at : place[x];
      }
    }
  }

  // The largest of each window, plus the bias, and where it is: the first of equals.
  void pool(int64_t windows, float bias, float* to, uint8_t* where) const {
    const float* best = best_.data();
    const int32_t* place = place_.data();
#pragma omp simd
    for (int64_t x = 0; x < windows; ++x) {
      float top = best[2 * x];
      int32_t at = place[2 * x];
      for (int32_t right = 1; right < kWindow; ++right) {
        const float value = best[2 * x + right];
        const int32_t other = place[2 * x + right] + right;
        const bool first = value > top || value != value || (value == top && other < at);
        top = first ? value : top;
        at = first ? other : at;
      }
      to[x] = top + bias;
      where[x] = static_cast<uint8_t>(at);
    }
  }

 private:
  int64_t width_;
  std::vector<float> best_;
  std::vector<int32_t> place_;
};

std::vector<Weights> by_groups(const Sizes& n, const float* weight) {
  std::vector<Weights> made;
  for (int64_t first = 0; first < n.outputs; first += kOutputs)
    made.emplace_back(n.group(first), n.taps(), [=](int64_t o, int64_t t) {
      return weight[(first + o) * n.taps() + t];
    });
  return made;
}

Tensors Forward(const Tensor& images, const Tensor& weight, const Tensor& bias) {
  const Tensor x = dense(images), w = dense(weight), b = dense(bias);
  const Sizes n{x.shape(), w.shape()[0]};
  const std::vector<int64_t> shape{n.batch, n.outputs, n.rows, n.columns};
  Tensor y = paddle::empty(shape, x.dtype(), x.place());
  Tensor index = paddle::empty(shape, paddle::DataType::UINT8, x.place());
  const std::vector<Weights> groups = by_groups(n, w.data<float>());
  const float *from = x.data<float>(), *shift = b.data<float>();
  float* to = y.data<float>();
  uint8_t* where = index.data<uint8_t>();
  in_blocks(n.batch * n.bands, 1, [&](int64_t at, int64_t) {
    const Band band{n, at};
    const float* in = band.input(from);
    const Offsets taps = windows(n.inputs, band.in.plane, band.in.stride);
    const int64_t stride = padded(n.width), plane = band.in.height * stride;
    float* made = scratch<1>(kOutputs * plane);
    Columns columns(n);
    for (int64_t group = 0; group < n.groups; ++group) {
      for (int64_t row = 0; row < band.in.height; ++row)
        mix(in + row * band.in.stride, taps, groups[group], n.width,
            [&](int64_t o, int64_t p, int64_t, Vec value) {
              store(made + o * plane + row * stride + p, value);
            });
      for (int64_t o = 0; o < groups[group].outputs(); ++o) {
        const int64_t channel = group * kOutputs + o;
        for (int64_t row = band.begin; row < band.end; ++row) {
          const int64_t upper = band.upper(row);
          const int64_t out = ((band.image * n.outputs + channel) * n.rows + row) * n.columns;
          columns.take(made + o * plane + (upper - band.top) * stride, stride,
                       band.lower(row) - upper, static_cast<int32_t>(upper - (2 * row - 1)));
          columns.pool(n.columns, shift[channel], to + out, where + out);
        }
      }
    }
  });
  return {y, index};
}

Tensors Backward(const Tensor& images, const Tensor& weight, const Tensor& index,
                 const Tensor& gradient) {
  const Tensor x = dense(images), dy = dense(gradient);
  const Sizes n{x.shape(), weight.shape()[0]};
  const int64_t wide = n.outputs * n.taps();
  std::vector<float> sums(n.batch * n.bands * wide, 0.0f), biases(n.batch * n.bands * n.outputs);
  const float *from = x.data<float>(), *g = dy.data<float>();
  const uint8_t* where = index.data<uint8_t>();
  in_blocks(n.batch * n.bands, 1, [&](int64_t at, int64_t) {
    const Band band{n, at};
    const float* in = band.input(from);
    const Offsets taps = windows(n.inputs, band.in.plane, band.in.stride);
    const int64_t stride = padded(n.width), plane = band.in.height * stride;
    float* slope = scratch<1>(kOutputs * plane);
    for (int64_t first = 0; first < n.outputs; first += kOutputs) {
      std::fill_n(slope, kOutputs * plane, 0.0f);
      for (int64_t o = 0; o < n.group(first); ++o) {
        float total = 0.0f;
        for (int64_t row = band.begin; row < band.end; ++row) {
          const int64_t out = ((band.image * n.outputs + first + o) * n.rows + row) * n.columns;
          float* corner = slope + o * plane + (2 * row - 1 - band.top) * stride - 1;
          for (int64_t c = 0; c < n.columns; ++c) {
            const int place = where[out + c];
            total += g[out + c];
            if (place == kNowhere) continue;
            corner[place / kWindow * stride + 2 * c + place % kWindow] += g[out + c];
          }
        }
        biases[at * n.outputs + first + o] = total;
      }
      correlate({slope, stride}, channels(n.group(first), plane), {in, band.in.stride}, taps,
                band.in.height, n.width, sums.data() + at * wide + first * n.taps());
    }
  });
  Tensor dw = paddle::empty_like(weight);
  Tensor db = paddle::empty({n.outputs}, x.dtype(), x.place());
  const std::vector<double> weights = totals(sums, wide), shifts = totals(biases, n.outputs);
  std::copy(weights.begin(), weights.end(), dw.data<float>());
  std::copy(shifts.begin(), shifts.end(), db.data<float>());
  return {dw, db};
}

const Operator kStem("sot_stem", {},
                     {{"Images", "Weight", "Bias"}, {"Out", "Index"}, PD_KERNEL(Forward)},
                     {{"Images", "Weight", "Index", Grad("Out")},
                      {Grad("Weight"), Grad("Bias")}, PD_KERNEL(Backward)});

}  // namespace sot::stem
