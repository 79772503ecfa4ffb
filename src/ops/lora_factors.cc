#include "ops/lora_factors.h"

#include <algorithm>
#include <string>

#include "gpu/kernel_text.h"
#include "ops/f16_blocks.h"
#include "ops/launch.h"
#include "ops/window.h"

namespace wgrad::ops {

namespace {

constexpr int64_t kQuadsOfWorkgroup = 1024;
/// Each pair's powers begin at a multiple of 256 bytes: they are a binding.
constexpr int64_t kPowersStride = 64;

gpu::KernelSpec kernel(std::string_view entry_point) {
  return {"lora_pack_factors", entry_point, std::string(gpu::kernel_source("lib_powers")), {}, {}};
}

struct Factor {
  Tensor from;
  Tensor* to;
  int64_t padded_rows, padded_columns;
  int64_t power_at;

  int64_t padded_size() const { return padded_rows * padded_columns; }
};

}  // namespace

/// Collects factors until one lies elsewhere or too far away.
class LoraFactorPack::BatchBuilder {
 public:
  BatchBuilder(Context& ctx, std::vector<Batch>& batches) : ctx_(ctx), batches_(batches) {}

  void add(const Factor& factor) {
    const int64_t begin = factor.from.byte_offset() / 256 * 256;
    const int64_t end = factor.from.byte_offset() + factor.from.bytes();
    if (!factors_.empty() && (factors_[0].from.storage() != factor.from.storage() ||
                              begin < begin_ || end - begin_ > binding_limit(ctx_) ||
                              (halves_ + factor.padded_size()) * 2 > binding_limit(ctx_))) {
      finish();
    }
    if (factors_.empty()) begin_ = begin;
    end_ = std::max(end_, end);
    halves_ += factor.padded_size();
    factors_.push_back(factor);
  }

  void finish() {
    if (factors_.empty()) return;
    Batch batch;
    batch.factors = static_cast<int64_t>(factors_.size());
    batch.values = Tensor(factors_[0].from.storage(), begin_, {(end_ - begin_) / 4}, DType::kF32);
    batch.halves = ctx_.allocate({halves_}, DType::kF16, "adapter");
    std::vector<uint32_t> table;
    int64_t at = 0;
    for (const Factor& f : factors_) {
      const int64_t quads = f.from.dim(1) / 4;
      for (int64_t v : {(f.from.byte_offset() - begin_) / 16, f.from.dim(0), quads, f.padded_rows,
                        f.padded_columns / 4, at / 4, f.power_at, int64_t{0}}) {
        table.push_back(static_cast<uint32_t>(v));
      }
      *f.to = batch.halves.flat(at, f.padded_size()).reshape({f.padded_rows, f.padded_columns});
      at += f.padded_size();
      batch.part_count =
          std::max(batch.part_count, ceil_div(f.from.dim(0) * quads, kQuadsOfWorkgroup));
      batch.pack_workgroups =
          std::max(batch.pack_workgroups, ceil_div(f.padded_size() / 4, kQuadsOfWorkgroup));
    }
    batch.table = ctx_.make<uint32_t>({batch.factors, 8}, DType::kU32, table, "adapter");
    batch.parts = ctx_.allocate({batch.factors, batch.part_count}, DType::kU32, "adapter");
    batches_.push_back(std::move(batch));
    factors_.clear();
    halves_ = end_ = 0;
  }

 private:
  Context& ctx_;
  std::vector<Batch>& batches_;
  std::vector<Factor> factors_;
  int64_t begin_ = 0, end_ = 0;  // bytes of the storage
  int64_t halves_ = 0;
};

LoraFactorPack::LoraFactorPack(Context& ctx, std::span<const std::pair<Tensor, Tensor>> pairs)
    : halves_(pairs.size()) {
  const auto count = static_cast<int64_t>(pairs.size());
  powers_ = ctx.allocate({std::max<int64_t>(count, 1), kPowersStride}, DType::kF32, "adapter");
  BatchBuilder builder(ctx, batches_);
  for (int64_t i = 0; i < count; ++i) {
    const auto& [a, b] = pairs[static_cast<size_t>(i)];
    if (!a) continue;
    LoraHalves& to = halves_[static_cast<size_t>(i)];
    to.rank = a.dim(0), to.in_features = a.dim(1), to.out_features = b.dim(0);
    to.powers = powers_.flat(i * kPowersStride, 4);
    const int64_t rank = lora_padded_rank(to.rank), power_at = i * kPowersStride / 2;
    builder.add({a, &to.a, rank, f16_padded(to.in_features), power_at});
    builder.add({b, &to.b, f16_padded(to.out_features), rank, power_at + 1});
  }
  builder.finish();
}

void LoraFactorPack::pack(Context& ctx) const {
  struct Params {
    uint32_t part_count, unused[3];
  };
  for (const Batch& batch : batches_) {
    const Params p{static_cast<uint32_t>(batch.part_count), {}};
    const auto factors = static_cast<uint32_t>(batch.factors);
    launch(ctx, kernel("largest"), {in(batch.table), in(batch.values), out(batch.parts)}, p,
           {static_cast<uint32_t>(batch.part_count), factors, 1});
    launch(ctx, kernel("pack"),
           {in(batch.table), in(batch.values), in(batch.parts), out(batch.halves), out(powers_)}, p,
           {static_cast<uint32_t>(batch.pack_workgroups), factors, 1});
  }
}

}  // namespace wgrad::ops
