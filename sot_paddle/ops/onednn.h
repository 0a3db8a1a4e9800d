// The matrix product of the oneDNN that Paddle itself has loaded, factors in bfloat16, sums in float;
// the right factor as it lies in memory, or in a layout of oneDNN's own (see packed_weights.h).
//
// What is needed of its C interface is declared here; it is the ABI of version 3, and there is
// no need of its headers.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "blocks.h"

namespace sot {

using Half = uint16_t;  // bfloat16

namespace onednn {

constexpr int kSuccess = 0, kProcessor = 1, kHalf = 2, kFloat = 3, kDefaultStream = 1;
constexpr int kSource = 1, kTarget = 17, kWeights = 33, kBias = 41;
constexpr int kAnyLayout = 1, kWeightsOf = 131, kGelu = 0x31;  // by the error function

using Handle = void*;  // of oneDNN's objects
struct Argument {
  int what;
  Handle memory;
};

extern "C" {
int dnnl_engine_create(Handle* engine, int kind, size_t index);
int dnnl_stream_create(Handle* stream, Handle engine, unsigned flags);
int dnnl_stream_destroy(Handle);
int dnnl_memory_desc_create_with_strides(Handle* desc, int dimensions, const int64_t* sizes,
                                         int type, const int64_t* strides);
int dnnl_memory_create(Handle* memory, Handle desc, Handle engine, void* data);
int dnnl_matmul_primitive_desc_create(Handle* desc, Handle engine, Handle source, Handle weights,
                                      Handle bias, Handle target, Handle attributes);
int dnnl_primitive_create(Handle* primitive, Handle desc);
int dnnl_primitive_execute(Handle primitive, Handle stream, int count, const Argument* arguments);
int dnnl_memory_desc_destroy(Handle);
int dnnl_memory_destroy(Handle);
int dnnl_primitive_desc_destroy(Handle);
int dnnl_primitive_destroy(Handle);
int dnnl_memory_desc_create_with_tag(Handle* desc, int dimensions, const int64_t* sizes, int type,
                                     int layout);
size_t dnnl_memory_desc_get_size(Handle desc);
int dnnl_memory_desc_clone(Handle* desc, Handle from);
Handle dnnl_primitive_desc_query_md(Handle desc, int what, int index);  // stays desc's
int dnnl_reorder_primitive_desc_create(Handle* desc, Handle source, Handle source_engine,
                                       Handle target, Handle target_engine, Handle attributes);
int dnnl_primitive_attr_create(Handle* attributes);
int dnnl_primitive_attr_destroy(Handle);
int dnnl_primitive_attr_set_post_ops(Handle attributes, Handle operations);
int dnnl_post_ops_create(Handle* operations);
int dnnl_post_ops_destroy(Handle);
int dnnl_post_ops_append_eltwise(Handle operations, int kind, float alpha, float beta);
}

inline void check(int status) {
  if (status != kSuccess) PD_THROW("oneDNN refused a product in bfloat16");
}

inline Handle engine() {
  static const Handle made = [] {
    Handle handle;
    check(dnnl_engine_create(&handle, kProcessor, 0));
    return handle;
  }();
  return made;
}

// An object of oneDNN, destroyed with its owner.
class Owned {
 public:
  explicit Owned(int (*destroy)(Handle)) : destroy_(destroy) {}
  Owned(const Owned&) = delete;
  ~Owned() {
    if (handle_) destroy_(handle_);
  }
  Handle* place() { return &handle_; }
  Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
  int (*destroy_)(Handle);
};

// A matrix (rows, columns) in memory that is there, stored by columns where it is turned.
struct Matrix {
  Owned desc{dnnl_memory_desc_destroy}, memory{dnnl_memory_destroy};

  Matrix(int64_t rows, int64_t columns, int type, bool turned, const void* data) {
    const int64_t sizes[] = {rows, columns};
    const int64_t strides[] = {turned ? 1 : columns, turned ? rows : 1};
    check(dnnl_memory_desc_create_with_strides(desc.place(), 2, sizes, type, strides));
    place(data);
  }

  // In the layout that a description of oneDNN's states; the memory is given later.
  explicit Matrix(Handle described) { check(dnnl_memory_desc_clone(desc.place(), described)); }

  void place(const void* data) {
    check(dnnl_memory_create(memory.place(), desc.get(), engine(), const_cast<void*>(data)));
  }
};

inline void execute(Handle desc, const Argument* arguments, int count) {
  Owned primitive(dnnl_primitive_destroy), stream(dnnl_stream_destroy);
  check(dnnl_primitive_create(primitive.place(), desc));
  check(dnnl_stream_create(stream.place(), engine(), kDefaultStream));
  check(dnnl_primitive_execute(primitive.get(), stream.get(), count, arguments));
}

// c (m, n) = a (m, k) b (k, n), plus the bias (n) where there is one, through GELU where that is
// asked for. oneDNN itself keeps the code that it made for the last shapes.
inline void multiply(const Matrix& a, const Matrix& b, const Matrix* bias, const Matrix& c,
                     bool gelu = false) {
  Owned desc(dnnl_primitive_desc_destroy), attributes(dnnl_primitive_attr_destroy);
  if (gelu) {
    Owned after(dnnl_post_ops_destroy);
    check(dnnl_post_ops_create(after.place()));
    check(dnnl_post_ops_append_eltwise(after.get(), kGelu, 0.0f, 0.0f));
    check(dnnl_primitive_attr_create(attributes.place()));
    check(dnnl_primitive_attr_set_post_ops(attributes.get(), after.get()));
  }
  check(dnnl_matmul_primitive_desc_create(desc.place(), engine(), a.desc.get(), b.desc.get(),
                                          bias ? bias->desc.get() : nullptr, c.desc.get(),
                                          attributes.get()));
  const Argument arguments[] = {{kSource, a.memory.get()},
                                {kWeights, b.memory.get()},
                                {kTarget, c.memory.get()},
                                {kBias, bias ? bias->memory.get() : nullptr}};
  execute(desc.get(), arguments, bias ? 4 : 3);
}

}  // namespace onednn

// To nearest, ties to even.
inline Half rounded(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const uint32_t nearest = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  return static_cast<Half>(value == value ? nearest : bits >> 16 | 0x40u);
}

// Memory that begins with a line of the cache: from elsewhere AMX takes twice the time.
struct Freed {
  void operator()(void* at) const { std::free(at); }
};
using Lines = std::unique_ptr<Half[], Freed>;

inline Lines lines(size_t bytes) {
  constexpr size_t kLine = 64;
  void* at = std::aligned_alloc(kLine, (bytes / kLine + 1) * kLine);
  if (!at) throw std::bad_alloc();
  return Lines(static_cast<Half*>(at));
}

// A matrix (rows, columns) in bfloat16.
struct Factor {
  int64_t rows, columns;
  Lines at;

  Factor(int64_t rows_, int64_t columns_)
      : rows(rows_), columns(columns_), at(lines(sizeof(Half) * rows_ * columns_)) {}

  Factor(const Tensor& tensor, int64_t width) : Factor(tensor.numel() / width, width) {
    const float* from = tensor.data<float>();
    Half* to = at.get();
    for_each(tensor.numel(), [=](int64_t i) { to[i] = rounded(from[i]); });
  }
  onednn::Matrix plain() const { return {rows, columns, onednn::kHalf, false, at.get()}; }
  onednn::Matrix turned() const { return {columns, rows, onednn::kHalf, true, at.get()}; }
};

inline onednn::Matrix floats(int64_t rows, int64_t columns, const float* at) {
  return {rows, columns, onednn::kFloat, false, at};
}

}  // namespace sot
