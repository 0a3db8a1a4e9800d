// The matrix product of the oneDNN that Paddle itself has loaded, factors in bfloat16, sums in float;
// the right factor as it lies in memory, or in a layout of oneDNN's own (see packed_weights.h).
//
// What is needed of its C interface is declared here; it is the ABI of version 3, and there is
// no need of its headers. A library without one of these functions is refused.
#pragma once

#include <dlfcn.h>

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

struct Library {
  int (*engine_create)(Handle* engine, int kind, size_t index);
  int (*stream_create)(Handle* stream, Handle engine, unsigned flags);
  int (*stream_destroy)(Handle);
  int (*memory_desc_create_with_strides)(Handle* desc, int dimensions, const int64_t* sizes,
                                         int type, const int64_t* strides);
  int (*memory_create)(Handle* memory, Handle desc, Handle engine, void* data);
  int (*matmul_primitive_desc_create)(Handle* desc, Handle engine, Handle source, Handle weights,
                                      Handle bias, Handle target, Handle attributes);
  int (*primitive_create)(Handle* primitive, Handle desc);
  int (*primitive_execute)(Handle primitive, Handle stream, int count, const Argument* arguments);
  int (*memory_desc_destroy)(Handle);
  int (*memory_destroy)(Handle);
  int (*primitive_desc_destroy)(Handle);
  int (*primitive_destroy)(Handle);
  int (*memory_desc_create_with_tag)(Handle* desc, int dimensions, const int64_t* sizes, int type,
                                     int layout);
  int (*memory_desc_clone)(Handle* desc, Handle from);
  size_t (*memory_desc_get_size)(Handle desc);
  Handle (*primitive_desc_query_md)(Handle desc, int what, int index);  // stays desc's
  int (*reorder_primitive_desc_create)(Handle* desc, Handle source, Handle source_engine,
                                       Handle target, Handle target_engine, Handle attributes);
  int (*attributes_create)(Handle* attributes);
  int (*attributes_destroy)(Handle);
  int (*attributes_set_post_ops)(Handle attributes, Handle operations);
  int (*post_ops_create)(Handle* operations);
  int (*post_ops_destroy)(Handle);
  int (*post_ops_append_eltwise)(Handle operations, int kind, float alpha, float beta);
  Handle engine;
};

inline void check(int status) {
  if (status != kSuccess) PD_THROW("oneDNN refused a product in bfloat16");
}

template <class Function>
void find(void* library, const char* name, Function* function) {
  *function = library ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
  if (!*function) PD_THROW("the oneDNN that Paddle loaded has no product in bfloat16");
}

inline Library load() {
  Library made;
  void* file = dlopen("libdnnl.so.3", RTLD_NOW | RTLD_NOLOAD);
  find(file, "dnnl_engine_create", &made.engine_create);
  find(file, "dnnl_stream_create", &made.stream_create);
  find(file, "dnnl_stream_destroy", &made.stream_destroy);
  find(file, "dnnl_memory_desc_create_with_strides", &made.memory_desc_create_with_strides);
  find(file, "dnnl_memory_create", &made.memory_create);
  find(file, "dnnl_memory_desc_destroy", &made.memory_desc_destroy);
  find(file, "dnnl_memory_destroy", &made.memory_destroy);
  find(file, "dnnl_primitive_desc_destroy", &made.primitive_desc_destroy);
  find(file, "dnnl_primitive_destroy", &made.primitive_destroy);
  find(file, "dnnl_matmul_primitive_desc_create", &made.matmul_primitive_desc_create);
  find(file, "dnnl_primitive_create", &made.primitive_create);
  find(file, "dnnl_primitive_execute", &made.primitive_execute);
  find(file, "dnnl_memory_desc_create_with_tag", &made.memory_desc_create_with_tag);
  find(file, "dnnl_memory_desc_clone", &made.memory_desc_clone);
  find(file, "dnnl_memory_desc_get_size", &made.memory_desc_get_size);
  find(file, "dnnl_primitive_desc_query_md", &made.primitive_desc_query_md);
  find(file, "dnnl_reorder_primitive_desc_create", &made.reorder_primitive_desc_create);
  find(file, "dnnl_primitive_attr_create", &made.attributes_create);
  find(file, "dnnl_primitive_attr_destroy", &made.attributes_destroy);
  find(file, "dnnl_primitive_attr_set_post_ops", &made.attributes_set_post_ops);
  find(file, "dnnl_post_ops_create", &made.post_ops_create);
  find(file, "dnnl_post_ops_destroy", &made.post_ops_destroy);
  find(file, "dnnl_post_ops_append_eltwise", &made.post_ops_append_eltwise);
  check(made.engine_create(&made.engine, kProcessor, 0));
  return made;
}

inline const Library& library() {
  static const Library loaded = load();
  return loaded;
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
  Owned desc{library().memory_desc_destroy}, memory{library().memory_destroy};

  Matrix(int64_t rows, int64_t columns, int type, bool turned, const void* data) {
    const int64_t sizes[] = {rows, columns};
    const int64_t strides[] = {turned ? 1 : columns, turned ? rows : 1};
    check(library().memory_desc_create_with_strides(desc.place(), 2, sizes, type, strides));
    place(data);
  }

  // In the layout that a description of oneDNN's states; the memory is given later.
  explicit Matrix(Handle described) {
    check(library().memory_desc_clone(desc.place(), described));
  }

  size_t size() const { return library().memory_desc_get_size(desc.get()); }
  void place(const void* data) {
    check(library().memory_create(memory.place(), desc.get(), library().engine,
                                  const_cast<void*>(data)));
  }
};

inline void execute(Handle desc, const Argument* arguments, int count) {
  Owned primitive(library().primitive_destroy), stream(library().stream_destroy);
  check(library().primitive_create(primitive.place(), desc));
  check(library().stream_create(stream.place(), library().engine, kDefaultStream));
  check(library().primitive_execute(primitive.get(), stream.get(), count, arguments));
}

// c (m, n) = a (m, k) b (k, n), plus the bias (n) where there is one, through GELU where that is
// asked for. oneDNN itself keeps the code that it made for the last shapes.
inline void multiply(const Matrix& a, const Matrix& b, const Matrix* bias, const Matrix& c,
                     bool gelu = false) {
  const Library& dnnl = library();
  Owned desc(dnnl.primitive_desc_destroy), attributes(dnnl.attributes_destroy);
  if (gelu) {
    Owned after(dnnl.post_ops_destroy);
    check(dnnl.post_ops_create(after.place()));
    check(dnnl.post_ops_append_eltwise(after.get(), kGelu, 0.0f, 0.0f));
    check(dnnl.attributes_create(attributes.place()));
    check(dnnl.attributes_set_post_ops(attributes.get(), after.get()));
  }
  check(dnnl.matmul_primitive_desc_create(desc.place(), dnnl.engine, a.desc.get(), b.desc.get(),
                                          bias ? bias->desc.get() : nullptr, c.desc.get(),
                                          attributes.get()));
  const Argument arguments[] = {{kSource, a.memory.get()},
                                {kWeights, b.memory.get()},
                                {kTarget, c.memory.get()},
                                {kBias, bias ? bias->memory.get() : nullptr}};
  execute(desc.get(), arguments, bias ? 4 : 3);
}

}  // namespace onednn
}  // namespace sot
