// A dense block of the token embedding, float32: layer i maps the channels so far, relu, a 1x1
// convolution (hidden), relu and a 3x3 convolution (grown), and its channels come after them.
//
// Nothing between is kept: the features are one tensor, whose channels each layer reads from the
// first on; the backward pass makes the hidden channels again, image by image.
#include "blocks.h"
#include "planes.h"

extern "C" int omp_get_max_threads();

namespace sot::dense_block {

using namespace planes;  // NOLINT

// What layer i is made of: weights by use, and where its gradients lie among those of an image.
struct Layer {
  int64_t before, hidden, grown, squeeze_at, grow_at;
  Weights squeeze, grow, squeeze_back, grow_back;

  Layer(const Tensor& first, const Tensor& second, int64_t at, bool backward)
      : before(first.shape()[1]),
        hidden(first.shape()[0]),
        grown(second.shape()[0]),
        squeeze_at(at),
        grow_at(at + first.numel()),
        squeeze(hidden, before, [&, w = first.data<float>()](int64_t o, int64_t t) {
          return w[o * before + t];
        }),
        grow(grown, hidden * 9, [&, w = second.data<float>()](int64_t o, int64_t t) {
          return w[o * hidden * 9 + t];
        }),
        squeeze_back(backward ? before : 0, hidden, [&, w = first.data<float>()](
            int64_t o, int64_t t) { return w[t * before + o]; }),
        // taps (grown channel, window) of hidden channel o, the window turned round
        grow_back(backward ? hidden : 0, grown * 9, [&, w = second.data<float>()](
            int64_t o, int64_t t) { return w[(t / 9 * hidden + o) * 9 + 8 - t % 9]; }) {}
  int64_t numel() const { return hidden * (before + grown * kWindow * kWindow); }
};

// Sizes of a block, and pieces of an image: whole rows, about `kTilePixels` together.
struct Block {
  Tensors weights;
  std::vector<Layer> layers;
  int64_t batch, first, height, width, pixels, channels, hidden = 0, grown = 0, numel = 0, rows;
  Bordered bordered;

  Block(const std::vector<int64_t>& shape, int64_t first, const Tensors& given, bool backward)
      : weights(dense(given)),
        batch(shape[0]),
        first(first),
        height(shape[2]),
        width(shape[3]),
        pixels(height * width),
        channels(first),
        rows(std::max<int64_t>(1, kTilePixels / std::max<int64_t>(1, width))),
        bordered(height, width) {
    for (size_t i = 0; i + 1 < weights.size(); i += 2) {
      layers.emplace_back(weights[i], weights[i + 1], numel, backward);
      numel += layers.back().numel();
      channels += layers.back().grown;
      hidden = std::max(hidden, layers.back().hidden);
      grown = std::max(grown, layers.back().grown);
    }
  }
  int64_t tile() const { return padded(std::min(rows, height) * width); }
  int64_t image() const { return channels * pixels; }
};

// relu of `count` pixels of each channel, rows of a tile, zero to its end.
inline void relu_tile(const Block& b, const float* from, int64_t channels, int64_t count,
                      float* to) {
  for (int64_t c = 0; c < channels; ++c, from += b.pixels, to += b.tile()) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) to[i] = from[i] < 0.0f ? 0.0f : from[i];
    std::fill(to + count, to + b.tile(), 0.0f);
  }
}

// Hidden channels of a layer, after their relu, within borders.
void squeeze(const Block& b, const Layer& layer, const float* features, float* hidden) {
  const int64_t tile = b.tile();
  const Offsets taps = channels(layer.before, tile);
  in_blocks(b.height, b.rows, [&](int64_t begin, int64_t end) {
    const int64_t count = (end - begin) * b.width;
    float *in = scratch<1>((layer.before + layer.hidden) * tile), *out = in + layer.before * tile;
    relu_tile(b, features + begin * b.width, layer.before, count, in);
    mix(in, taps, layer.squeeze, count, [=](int64_t o, int64_t p, int64_t, Vec value) {
      store(out + o * tile + p, rectified(value));
    });
    for (int64_t c = 0; c < layer.hidden; ++c)
      for (int64_t y = begin; y < end; ++y)
        std::copy_n(out + c * tile + (y - begin) * b.width, b.width,
                    hidden + c * b.bordered.plane + b.bordered.inner(y));
  });
}

// New channels of a layer from the hidden ones.
void grow(const Block& b, const Layer& layer, const float* hidden, float* to) {
  const Offsets taps = windows(layer.hidden, b.bordered.plane, b.bordered.stride);
  in_blocks(b.height, b.rows, [&](int64_t begin, int64_t end) {
    for (int64_t y = begin; y < end; ++y) {
      float* row = to + y * b.width;
      mix(hidden + y * b.bordered.stride, taps, layer.grow, b.width,
          [&](int64_t o, int64_t p, int64_t count, Vec value) {
            store_some(row + o * b.pixels + p, count, value);
          });
    }
  });
}

// Images by threads, or one after the other with the threads within, where there are few.
template <class Work>
void each_image(int64_t batch, const Work& work) {
  if (batch >= omp_get_max_threads()) {
    in_blocks(batch, 1, [&](int64_t image, int64_t) { work(image); });
  } else {
    for (int64_t image = 0; image < batch; ++image) work(image);
  }
}

Tensors Forward(const Tensor& input, const Tensors& weights) {
  const Tensor x = dense(input);
  const Block b(x.shape(), x.shape()[1], weights, false);
  Tensor y = paddle::empty({b.batch, b.channels, b.height, b.width}, x.dtype(), x.place());
  const float* from = x.data<float>();
  float* to = y.data<float>();
  each_image(b.batch, [&](int64_t image) {
    float *features = to + image * b.image(), *hidden = scratch(b.bordered.size(b.hidden));
    std::fill_n(hidden, b.bordered.size(b.hidden), 0.0f);
    std::copy_n(from + image * b.first * b.pixels, b.first * b.pixels, features);
    for (const Layer& layer : b.layers) {
      squeeze(b, layer, features, hidden);
      grow(b, layer, hidden, features + layer.before * b.pixels);
    }
  });
  return {y};
}

// Gradients of one layer of one image, from that of its channels in `slope` (all channels), which
// gets the part of the channels before; `hidden` and `outer` have borders.
void back(const Block& b, const Layer& layer, const float* features, float* slope, float* hidden,
          float* outer, float* sums) {
  const Bordered& in = b.bordered;
  const int64_t tile = b.tile();
  squeeze(b, layer, features, hidden);
  for (int64_t c = 0; c < layer.grown; ++c)
    for (int64_t y = 0; y < b.height; ++y)
      std::copy_n(slope + (layer.before + c) * b.pixels + y * b.width, b.width,
                  outer + c * in.plane + in.inner(y));
  correlate({outer + in.inner(0), in.stride}, channels(layer.grown, in.plane), {hidden, in.stride},
            windows(layer.hidden, in.plane, in.stride), b.height, b.width, sums + layer.grow_at);
  const Offsets around = windows(layer.grown, in.plane, in.stride);
  const Offsets lefts = channels(layer.hidden, tile), rights = channels(layer.before, tile);
  for (int64_t begin = 0; begin < b.height; begin += b.rows) {
    const int64_t end = std::min(b.height, begin + b.rows), count = (end - begin) * b.width;
    float *x = scratch<1>((layer.before + layer.hidden) * tile), *g = x + layer.before * tile;
    relu_tile(b, features + begin * b.width, layer.before, count, x);
    for (int64_t y = begin; y < end; ++y)
      mix(outer + y * in.stride, around, layer.grow_back, b.width,
          [&](int64_t o, int64_t p, int64_t left, Vec value) {
            const Vec gate = load(hidden + o * in.plane + in.inner(y) + p);
            store_some(g + o * tile + (y - begin) * b.width + p, left, where_positive(gate, value));
          });
    for (int64_t c = 0; c < layer.hidden; ++c)
      std::fill(g + c * tile + count, g + (c + 1) * tile, 0.0f);
    correlate({g, 0}, lefts, {x, 0}, rights, 1, count, sums + layer.squeeze_at);
    mix(g, lefts, layer.squeeze_back, count, [&](int64_t o, int64_t p, int64_t left, Vec value) {
      float* to = slope + o * b.pixels + begin * b.width + p;
      value = where_positive(load(x + o * tile + p), value);
      if (left >= kLanes) return store(to, load(to) + value);
      for (int64_t i = 0; i < left; ++i) to[i] += value[i];
    });
  }
}

Tensors Backward(const Tensors& weights, const Tensor& output, const Tensor& gradient) {
  const Tensor y = dense(output), dy = dense(gradient);
  const Block b(y.shape(), weights.front().shape()[1], weights, true);
  Tensor dx = paddle::empty({b.batch, b.first, b.height, b.width}, y.dtype(), y.place());
  std::vector<float> sums(b.batch * b.numel, 0.0f);
  const float *from = y.data<float>(), *g = dy.data<float>();
  float* to = dx.data<float>();
  in_blocks(b.batch, 1, [&](int64_t image, int64_t) {
    const int64_t hidden = b.bordered.size(b.hidden), outer = b.bordered.size(b.grown);
    float *slope = scratch(b.image() + hidden + outer), *within = slope + b.image();
    std::fill_n(within, hidden + outer, 0.0f);
    std::copy_n(g + image * b.image(), b.image(), slope);
    for (auto layer = b.layers.rbegin(); layer != b.layers.rend(); ++layer)
      back(b, *layer, from + image * b.image(), slope, within, within + hidden,
           sums.data() + image * b.numel);
    std::copy_n(slope, b.first * b.pixels, to + image * b.first * b.pixels);
  });
  const std::vector<double> total = totals(sums, b.numel);
  Tensors made{dx};
  auto at = total.begin();
  for (const Tensor& weight : b.weights) {
    made.push_back(paddle::empty_like(weight));
    std::copy_n(at, weight.numel(), made.back().data<float>());
    at += weight.numel();
  }
  return made;
}

const Operator kDenseBlock("sot_dense_block", {},
                           {{"X", paddle::Vec("Weights")}, {"Out"}, PD_KERNEL(Forward)},
                           {{paddle::Vec("Weights"), "Out", Grad("Out")},
                            {Grad("X"), Grad(paddle::Vec("Weights"))}, PD_KERNEL(Backward)});

}  // namespace sot::dense_block
