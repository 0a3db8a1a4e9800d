// Rows of a table, float32. Forward is Paddle's own. The gradient is as large as the table and all
// zeros but the rows that were looked up; a table of tens of MB comes as fresh pages from the
// system in each step, which costs more than to fill them. So the last block that was given back
// is kept and filled again. Each thread adds up a range of columns, all rows in their order.
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "blocks.h"

namespace sot::embedding {

constexpr int64_t kBlock = 65536, kColumns = 64, kPage = 4096;
constexpr int64_t kFresh = 32 << 20;  // bytes from which glibc's malloc asks the system each time

struct Block {
  void* at;
  int64_t bytes;
};

// The block that the next gradient of its size takes; never freed, as tensors may outlive it.
std::atomic<Block*> spare{nullptr};

void release(Block* block) {
  if (block == nullptr) return;
  std::free(block->at);
  delete block;
}

Tensor memory_like(const Tensor& weight) {
  const int64_t bytes = (weight.numel() * sizeof(float) + kPage - 1) / kPage * kPage;
  if (bytes < kFresh) return paddle::empty_like(weight);
  Block* block = spare.exchange(nullptr);
  if (block == nullptr || block->bytes != bytes) {
    release(block);
    block = new Block{std::aligned_alloc(kPage, bytes), bytes};
    PD_CHECK(block->at != nullptr, "out of memory: no ", bytes, " bytes for a gradient");
  }
  return paddle::from_blob(block->at, weight.shape(), weight.dtype(), paddle::DataLayout::NCHW,
                           weight.place(), [block](void*) { release(spare.exchange(block)); });
}

Tensors Forward(const Tensor& ids, const Tensor& weight, int64_t padding) {
  const Tensor dense_ids = dense(ids);
  const int64_t* row = dense_ids.data<int64_t>();
  for (int64_t i = 0; i < ids.numel(); ++i) {  // PADDLE: it checks all but -1
    if (row[i] == -1) PADDLE_THROW(common::errors::InvalidArgument("Expected ids >= 0, got -1"));
  }
  return {paddle::experimental::embedding(ids, weight, padding, false)};
}

Tensors Backward(const Tensor& rows, const Tensor& weight, const Tensor& gradient,
                 int64_t padding) {
  const Tensor ids = dense(rows), dy = dense(gradient);
  Tensor made = memory_like(weight);
  const int64_t width = weight.shape()[1], count = ids.numel();
  const int64_t* row = ids.data<int64_t>();
  const float* g = dy.data<float>();
  float* to = made.data<float>();
  in_blocks(made.numel(), kBlock, [=](int64_t begin, int64_t end) {
    std::memset(to + begin, 0, (end - begin) * sizeof(float));
  });
  in_blocks(width, kColumns, [=](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < count; ++i) {
      if (row[i] == padding) continue;
      float* sum = to + row[i] * width;
      for (int64_t c = begin; c < end; ++c) sum[c] += g[i * width + c];
    }
  });
  return {made};
}

const Operator kEmbedding("sot_embedding", {"padding: int64_t"},
                          {{"Ids", "Weight"}, {"Out"}, PD_KERNEL(Forward)},
                          {{"Ids", "Weight", Grad("Out")}, {Grad("Weight")}, PD_KERNEL(Backward)});

}  // namespace sot::embedding
