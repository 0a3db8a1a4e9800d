// svPN with one singular triplet, float32: y = s^a u v^T + f (x - s u v^T), f = 1 / (s^(1-a) + 1e-5),
// where (u, v) come from power iterations from one start vector and s = u^T x v. See
// functional.sv_power_norm; nothing is kept for the backward pass, which iterates again.
//
// Backward, of g = dy: with t = u^T g v and q = s^a - f s,
//   du = q g v, dv = q g^T u, ds = (a s^(a-1) - f) t - f^2 (1 - a) s^(-a) <g, x - s u v^T>,
//   dx = f g + ds u v^T, du += ds x v, dv += ds x^T u,
// then through the iterations, last to first, each of which is a product and a division by a norm:
// for v = p / |p|, p = x^T u: dp = (dv - v <v, dv>) / |p|, dx += u dp^T, du += x dp; likewise for u.
#include <cmath>

#include "blocks.h"
#include "small_matrices.h"

namespace sot::power_norm {

constexpr int64_t kTogether = 4;         // matrices of a piece
constexpr float kLeastSquare = 1e-24f;   // of a norm, as in functional._unit
constexpr float kZeroNorm = 1e-12f;      // functional.ZERO_NORM
constexpr float kBeside = 1e-5f;         // stands beside the power of s

struct Call {
  std::vector<int64_t> shape;
  float alpha;
  int iterations;
  bool zeros;  // a zero matrix gives 0 with gradient 0
  int64_t matrices = shape[0], n = shape[1], d = shape[2];

  int64_t down() const { return padded(n); }
  int64_t wide() const { return padded(d); }
};

// to = x v (rows of x) or x^T u (its columns), zero beyond the end.
void across(const Call& call, const float* x, const float* v, float* to) {
  for (int64_t i = 0; i < call.n; ++i) to[i] = dot(x + i * call.wide(), v, call.wide());
  for (int64_t i = call.n; i < call.down(); ++i) to[i] = 0.0f;
}

void along(const Call& call, const float* x, const float* u, float* to) {
  product({u, 0, 1}, {x, call.wide()}, 1, call.n, call.wide(), {to, call.wide()});
}

// Divide by the norm, which is 1e-12 at least: 1 / norm, negative where that limit holds.
float unit(float* vector, int64_t wide) {
  const float square = dot(vector, vector, wide);
  const bool limited = square < kLeastSquare;
  const float norm = std::sqrt(limited ? kLeastSquare : square);
  for (int64_t i = 0; i < wide; ++i) vector[i] /= norm;
  return limited ? -1.0f / norm : 1.0f / norm;
}

// The gradient of `unit`, in place.
void through_unit(const float* vector, float inverse, float* gradient, int64_t wide) {
  const float radial = inverse < 0.0f ? 0.0f : dot(vector, gradient, wide);
  for (int64_t i = 0; i < wide; ++i)
    gradient[i] = (gradient[i] - radial * vector[i]) * std::fabs(inverse);
}

struct Step {
  float *u, *v, of_u, of_v;  // one iteration: both vectors and the inverses of their norms
};

struct Triplet {
  std::vector<Step> steps;
  float *xv, s;
  const float *u() const { return steps.back().u; }
  const float *v() const { return steps.back().v; }
};

int64_t triplet_space(const Call& call) {
  return call.iterations * (call.down() + call.wide()) + call.down();
}

Triplet leading(const Call& call, const float* x, const float* start, Workspace* space) {
  Triplet made;
  const float* v = start;
  for (int k = 0; k < call.iterations; ++k) {
    Step step{space->take(call.down()), space->take(call.wide()), 0.0f, 0.0f};
    across(call, x, v, step.u);
    step.of_u = unit(step.u, call.down());
    along(call, x, step.u, step.v);
    step.of_v = unit(step.v, call.wide());
    v = step.v;
    made.steps.push_back(step);
  }
  made.xv = space->take(call.down());
  across(call, x, v, made.xv);
  made.s = dot(made.u(), made.xv, call.down());
  return made;
}

bool is_zero(const Call& call, const float* x) {
  return std::sqrt(dot(x, x, call.n * call.wide())) <= kZeroNorm;
}

// add left right^T to x (n, wide)
void add_outer(const Call& call, const float* left, const float* right, float* x) {
  for (int64_t i = 0; i < call.n; ++i)
    for (int64_t j = 0; j < call.wide(); ++j) x[i * call.wide() + j] += left[i] * right[j];
}

void add(const float* from, float factor, float* to, int64_t size) {
  for (int64_t i = 0; i < size; ++i) to[i] += factor * from[i];
}

// The derivative of s^exponent; that of s^0 is 0 also at 0, as the frameworks have it.
float slope(float s, float exponent) {
  return exponent == 0.0f ? 0.0f : exponent * std::pow(s, exponent - 1.0f);
}

// dx and the share of dstart of one matrix; x and g are packed, dx (n, wide), dstart (wide).
void gradient(const Call& call, const float* x, const float* g, const float* start,
              Workspace* space, float* dx, float* dstart) {
  const int64_t wide = call.wide(), down = call.down();
  const Triplet made = leading(call, x, start, space);
  const float s = made.s, alpha = call.alpha;
  const float f = 1.0f / (std::pow(s, 1.0f - alpha) + kBeside), power = std::pow(s, alpha);
  float *du = space->take(down), *dv = space->take(wide), *more = space->take(down);
  across(call, g, made.v(), du);  // g v
  along(call, g, made.u(), dv);   // g^T u
  const float t = dot(made.u(), du, down);
  float rest = 0.0f;
  for (int64_t i = 0; i < call.n; ++i) {
    float* line = dx + i * wide;
    for (int64_t j = 0; j < wide; ++j) line[j] = x[i * wide + j] - s * made.u()[i] * made.v()[j];
    rest += dot(line, g + i * wide, wide);
    for (int64_t j = 0; j < wide; ++j) line[j] = f * g[i * wide + j];
  }
  const float ds = t * slope(s, alpha) - f * t - rest * f * f * slope(s, 1.0f - alpha);
  const float q = power - f * s;
  for (int64_t i = 0; i < down; ++i) du[i] = q * du[i] + ds * made.xv[i];
  float* xu = space->take(wide);
  along(call, x, made.u(), xu);
  for (int64_t j = 0; j < wide; ++j) dv[j] = q * dv[j] + ds * xu[j];
  for (int64_t i = 0; i < call.n; ++i) add(made.v(), ds * made.u()[i], dx + i * wide, wide);
  for (int k = call.iterations - 1; k >= 0; --k) {
    const Step& step = made.steps[k];
    const float* before = k ? made.steps[k - 1].v : start;
    through_unit(step.v, step.of_v, dv, wide);
    add_outer(call, step.u, dv, dx);
    across(call, x, dv, more);
    add(more, 1.0f, du, down);
    through_unit(step.u, step.of_u, du, down);
    add_outer(call, du, before, dx);
    along(call, x, du, dv);
    std::fill(du, du + down, 0.0f);
  }
  std::copy(dv, dv + wide, dstart);
}

Tensors Forward(const Tensor& input, const Tensor& vector, float alpha, int iterations,
                bool zeros) {
  const Tensor matrices = dense(input), dense_vector = dense(vector);
  const Call call{matrices.shape(), alpha, iterations, zeros};
  const int64_t size = call.n * call.d, wide = call.wide();
  Tensor made = paddle::empty_like(matrices);
  const float *from = matrices.data<float>(), *start = dense_vector.data<float>();
  float* to = made.data<float>();
  in_blocks(call.matrices, kTogether, [=](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      Workspace space((call.n + 1) * wide + triplet_space(call));
      float *x = space.take(call.n * wide), *first = space.take(wide), *y = to + m * size;
      pack(from + m * size, call.d, call.n, call.d, x);
      pack(start, call.d, 1, call.d, first);
      if (call.zeros && is_zero(call, x)) {
        std::fill(y, y + size, 0.0f);
        continue;
      }
      const Triplet of = leading(call, x, first, &space);
      const float power = std::pow(of.s, call.alpha);
      const float f = 1.0f / (std::pow(of.s, 1.0f - call.alpha) + kBeside);
      for (int64_t i = 0; i < call.n; ++i)
        for (int64_t j = 0; j < call.d; ++j) {
          const float outer = of.u()[i] * of.v()[j];
          y[i * call.d + j] = power * outer + (x[i * wide + j] - of.s * outer) * f;
        }
    }
  });
  return {made};
}

Tensors Backward(const Tensor& input, const Tensor& vector, const Tensor& gradient_tensor,
                 float alpha, int iterations, bool zeros) {
  const Tensor matrices = dense(input), dense_vector = dense(vector);
  const Tensor dense_gradient = dense(gradient_tensor);
  const Call call{matrices.shape(), alpha, iterations, zeros};
  const int64_t size = call.n * call.d, wide = call.wide();
  Tensor dx_tensor = paddle::empty_like(matrices), dstart = paddle::empty_like(dense_vector);
  std::vector<float> all_shares(call.matrices * wide);
  const float *from = matrices.data<float>(), *start = dense_vector.data<float>();
  const float* dy = dense_gradient.data<float>();
  float *to = dx_tensor.data<float>(), *shares = all_shares.data(), *sum = dstart.data<float>();
  in_blocks(call.matrices, kTogether, [=](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      Workspace space((3 * call.n + 3) * wide + 2 * call.down() + triplet_space(call));
      float *x = space.take(call.n * wide), *g = space.take(call.n * wide);
      float *dx = space.take(call.n * wide), *first = space.take(wide);
      pack(from + m * size, call.d, call.n, call.d, x);
      if (call.zeros && is_zero(call, x)) {
        std::fill(to + m * size, to + (m + 1) * size, 0.0f);
        std::fill(shares + m * wide, shares + (m + 1) * wide, 0.0f);
        continue;
      }
      pack(dy + m * size, call.d, call.n, call.d, g);
      pack(start, call.d, 1, call.d, first);
      gradient(call, x, g, first, &space, dx, shares + m * wide);
      for (int64_t i = 0; i < call.n; ++i)
        std::copy(dx + i * wide, dx + i * wide + call.d, to + m * size + i * call.d);
    }
  });
  for (int64_t j = 0; j < call.d; ++j) {
    double total = 0.0;
    for (int64_t m = 0; m < call.matrices; ++m) total += shares[m * wide + j];
    sum[j] = static_cast<float>(total);
  }
  return {dx_tensor, dstart};
}

const Operator kSvPowerNorm("sot_sv_power_norm", {"alpha: float", "iterations: int", "zeros: bool"},
                            {{"X", "Start"}, {"Out"}, PD_KERNEL(Forward)},
                            {{"X", "Start", Grad("Out")},
                             {Grad("X"), Grad("Start")}, PD_KERNEL(Backward)});

}  // namespace sot::power_norm
