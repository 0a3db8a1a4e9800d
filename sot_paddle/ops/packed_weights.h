// Weights (k, n) in bfloat16, in the layout in which oneDNN multiplies fastest, kept from call to call.
//
// Nothing tells when a weight changes: Paddle's optimizers and set_value write into its memory and
// count no version. So each call sums up the weight's bits, which takes a tenth of the time of a
// product and far less than packing, and packs again where a sum is another one. What is kept goes
// when another weight is packed after the memory of its own is gone, or when that is trained.
#pragma once

#include <mutex>
#include <unordered_map>

#include "onednn.h"
#include "paddle/phi/core/dense_tensor.h"

namespace sot::packed {

// Sums over pieces of memory, each of `kColumns` columns: sum <- sum * odd + bits. One number that is
// another always shows; any other change escapes one column with probability 2^-32.
using Sums = std::vector<uint32_t>;
constexpr int64_t kColumns = 128, kPiece = 32768;

inline Sums sums_of(const float* at, int64_t count) {
  Sums sums((count + kPiece - 1) / kPiece * kColumns);
  uint32_t* to = sums.data();
  in_blocks(count, kPiece, [=](int64_t begin, int64_t end) {
    uint32_t sum[kColumns] = {}, bits[kColumns] = {};
    int64_t i = begin;
    for (; i + kColumns <= end; i += kColumns) {
      std::memcpy(bits, at + i, sizeof bits);
      for (int64_t c = 0; c < kColumns; ++c) sum[c] = sum[c] * 0x9e3779b1u + bits[c];
    }
    std::memcpy(bits, at + i, sizeof(float) * (end - i));
    for (int64_t c = 0; c < end - i; ++c) sum[c] = sum[c] * 0x9e3779b1u + bits[c];
    std::copy_n(sum, kColumns, to + begin / kPiece * kColumns);
  });
  return sums;
}

struct Pack {
  std::weak_ptr<phi::Allocation> owner;
  int64_t depth, width;
  Sums sums;
  Lines memory;
  std::unique_ptr<onednn::Matrix> matrix;
};

struct Kept {
  std::mutex lock;
  std::unordered_map<const float*, std::shared_ptr<const Pack>> packs;  // by the weight's memory
};

inline Kept& kept() {
  static Kept all;
  return all;
}

// The memory of a tensor, which Holder() hands out since Paddle 3.3 only.
struct Memory : phi::DenseTensor {
  static std::shared_ptr<phi::Allocation> of(const Tensor& tensor) {
    return static_cast<phi::DenseTensor*>(tensor.impl().get())->*(&Memory::holder_);
  }
};

// The weight in the layout that suits products of so many rows.
inline std::shared_ptr<const Pack> pack(const Tensor& weight, int64_t rows, Sums sums) {
  using namespace onednn;  // NOLINT
  auto made = std::make_shared<Pack>();
  made->owner = Memory::of(weight);
  made->depth = weight.shape()[0];
  made->width = weight.shape()[1];
  made->sums = std::move(sums);
  const int64_t sizes[] = {made->depth, made->width};
  const Matrix from = floats(made->depth, made->width, weight.data<float>());
  const Matrix left(rows, made->depth, kHalf, false, nullptr);
  const Matrix target(rows, made->width, kFloat, false, nullptr);
  Owned any(dnnl_memory_desc_destroy), product(dnnl_primitive_desc_destroy);
  Owned reorder(dnnl_primitive_desc_destroy);
  check(dnnl_memory_desc_create_with_tag(any.place(), 2, sizes, kHalf, kAnyLayout));
  check(dnnl_matmul_primitive_desc_create(product.place(), engine(), left.desc.get(), any.get(),
                                          nullptr, target.desc.get(), nullptr));
  made->matrix = std::make_unique<Matrix>(dnnl_primitive_desc_query_md(product.get(), kWeightsOf, 0));
  made->memory = lines(dnnl_memory_desc_get_size(made->matrix->desc.get()));
  made->matrix->place(made->memory.get());
  check(dnnl_reorder_primitive_desc_create(reorder.place(), from.desc.get(), engine(),
                                           made->matrix->desc.get(), engine(), nullptr));
  const Argument arguments[] = {{kSource, from.memory.get()},
                                {kTarget, made->matrix->memory.get()}};
  execute(reorder.get(), arguments, 2);
  return made;
}

// The weight (k, n), contiguous, as it is now.
inline std::shared_ptr<const Pack> of(const Tensor& weight, int64_t rows) {
  const float* at = weight.data<float>();
  Sums sums = sums_of(at, weight.numel());
  const std::lock_guard<std::mutex> guard(kept().lock);
  auto& packs = kept().packs;
  const auto found = packs.find(at);
  if (found != packs.end()) {
    const Pack& one = *found->second;
    const bool same = one.depth == weight.shape()[0] && one.width == weight.shape()[1];
    if (same && one.sums == sums) return found->second;
  }
  for (auto each = packs.begin(); each != packs.end();)
    each = each->second->owner.expired() ? packs.erase(each) : std::next(each);
  return packs[at] = pack(weight, rows, std::move(sums));
}

inline void forget(const Tensor& weight) {
  const std::lock_guard<std::mutex> guard(kept().lock);
  kept().packs.erase(weight.data<float>());
}

}  // namespace sot::packed
