#include <fmt/format.h>

#include "ops/bench.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/lora_matrix.h"
#include "ops/loss.h"
#include "ops/norm.h"
#include "ops/optimizer.h"
#include "ops/rope.h"
#include "ops/verify.h"
#include "ops/weight.h"

namespace wgrad::ops {
namespace {

/// Operations that memory bounds: their bytes are each input read once and each output written
/// once.
class MemoryCases {
 public:
  explicit MemoryCases(const Context& ctx)
      : large_(ctx.kind() == DeviceKind::kGpu &&
               ctx.limits().max_binding_size > (uint64_t{1} << 30)),
        has_f16_product_(has_f16_product(ctx)),
        rows_(large_                           ? 16384
              : ctx.kind() == DeviceKind::kCpu ? 4096
                                               : 256),
        width_(large_                           ? 4096
               : ctx.kind() == DeviceKind::kCpu ? 1024
                                                : 512) {}

  std::vector<BenchCase> all() {
    norm();
    activation();
    rope();
    embedding();
    adapters();
    loss();
    optimizer();
    return std::move(cases_);
  }

 private:
  double array_bytes() const { return 4.0 * static_cast<double>(rows_ * width_); }
  std::string size() const { return fmt::format("{}x{}", rows_, width_); }

  static Tensor filled(Context& ctx, int64_t rows, int64_t width) {
    const Tensor t = ctx.allocate({rows, width}, DType::kF32, "bench");
    const int64_t some = std::min<int64_t>(rows, 64);
    const std::vector<float> values = verify_uniform(static_cast<size_t>(some * width), 7);
    for (int64_t row = 0; row < rows; row += some) {
      const Tensor part = t.rows(row, std::min(rows, row + some));
      ctx.upload(part, std::span<const float>(values).first(static_cast<size_t>(part.size())));
    }
    return t;
  }

  template <typename Prepare>
  void add(const std::string& name, double bytes, Prepare prepare) {
    BenchCase c;
    c.name = name;
    c.bytes = bytes;
    c.prepare = prepare;
    cases_.push_back(std::move(c));
  }

  void norm() {
    const int64_t rows = rows_, width = width_;
    add("rms_norm_forward " + size(), 2 * array_bytes(), [=](Context& ctx) {
      const Tensor x = filled(ctx, rows, width), w = filled(ctx, 1, width).reshape({width});
      const Tensor y = ctx.allocate({rows, width}, DType::kF32, "bench");
      const Tensor inv = ctx.allocate({rows}, DType::kF32, "bench");
      return [=](Context& c) { rms_norm_forward(c, x, w, y, inv, 1e-5f); };
    });
    for (bool trained : {false, true}) {
      add((trained ? "rms_norm_backward with weight " : "rms_norm_backward ") + size(),
          3 * array_bytes(), [=](Context& ctx) {
            const Tensor x = filled(ctx, rows, width), w = filled(ctx, 1, width).reshape({width});
            const Tensor dy = filled(ctx, rows, width);
            const Tensor dx = ctx.allocate({rows, width}, DType::kF32, "bench");
            const Tensor inv = filled(ctx, rows, 1).reshape({rows});
            const Tensor dw =
                trained ? ctx.allocate_zeroed({width}, DType::kF32, "bench") : Tensor();
            return [=](Context& c) { rms_norm_backward(c, x, w, inv, dy, dx, false, dw); };
          });
    }
  }

  void activation() {
    const int64_t rows = rows_, width = width_;
    add("swiglu_forward " + size(), 3 * array_bytes(), [=](Context& ctx) {
      const Tensor gate = filled(ctx, rows, width), up = filled(ctx, rows, width);
      const Tensor y = ctx.allocate({rows, width}, DType::kF32, "bench");
      return [=](Context& c) { gated_forward(c, Activation::kSilu, gate, up, y); };
    });
    add("swiglu_backward " + size(), 5 * array_bytes(), [=](Context& ctx) {
      const Tensor gate = filled(ctx, rows, width), up = filled(ctx, rows, width);
      const Tensor dy = filled(ctx, rows, width);
      const Tensor dgate = ctx.allocate({rows, width}, DType::kF32, "bench");
      const Tensor dup = ctx.allocate({rows, width}, DType::kF32, "bench");
      return [=](Context& c) { gated_backward(c, Activation::kSilu, gate, up, dy, dgate, dup); };
    });
    add("silu_backward " + size(), 3 * array_bytes(), [=](Context& ctx) {
      const Tensor x = filled(ctx, rows, width), dy = filled(ctx, rows, width);
      const Tensor dx = ctx.allocate({rows, width}, DType::kF32, "bench");
      return [=](Context& c) { silu_backward(c, x, dy, dx); };
    });
    add("add " + size(), 3 * array_bytes(), [=](Context& ctx) {
      const Tensor x = filled(ctx, rows, width), y = filled(ctx, rows, width);
      return [=](Context& c) { ops::add(c, x, y); };
    });
    add("fill_zero " + size(), array_bytes(), [=](Context& ctx) {
      const Tensor x = ctx.allocate({rows, width}, DType::kF32, "bench");
      return [=](Context& c) { fill_zero(c, x); };
    });
    add("dropout " + size(), 2 * array_bytes(), [=](Context& ctx) {
      const Tensor x = filled(ctx, rows, width);
      const Tensor y = ctx.allocate({rows, width}, DType::kF32, "bench");
      return [=](Context& c) { dropout(c, x, y, 0.1f, {1, 2}); };
    });
  }

  void rope() {
    constexpr int64_t kHeadDim = 128;
    const int64_t rows = rows_, width = width_;
    add("rope " + size(), 2 * array_bytes(), [=](Context& ctx) {
      const Tensor x = filled(ctx, rows, width);
      const Tensor table = filled(ctx, rows, kHeadDim).reshape({rows, kHeadDim / 2, 2});
      std::vector<uint32_t> positions(static_cast<size_t>(rows));
      for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<uint32_t>(i);
      const Tensor at = ctx.make<uint32_t>({rows}, DType::kU32, positions, "bench");
      return [=](Context& c) {
        rope_apply(c, x, at, table, kHeadDim, kHeadDim, RopePairing::kHalfSplit, false);
      };
    });
  }

  void embedding() {
    const int64_t rows = rows_, width = width_;
    for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kF16Blocks}) {
      if (format != WeightFormat::kF32 && !has_f16_product_) continue;
      const bool full = format == WeightFormat::kF32;
      add((full ? "embedding_forward f32 " : "embedding_forward f16 blocks ") + size(),
          (full ? 2.0 : 1.5) * array_bytes(), [=](Context& ctx) {
            const Weight table = load_weight_as(ctx, format, "bench", rows, width,
                                                [](int64_t, int64_t, std::span<float> values) {
                                                  std::fill(values.begin(), values.end(), 0.5f);
                                                });
            std::vector<uint32_t> ids(static_cast<size_t>(rows));
            for (size_t i = 0; i < ids.size(); ++i) {
              ids[i] = static_cast<uint32_t>(i * 7919 % ids.size());
            }
            const Tensor at = ctx.make<uint32_t>({rows}, DType::kU32, ids, "bench");
            const Tensor out = ctx.allocate({rows, width}, DType::kF32, "bench");
            return [=](Context& c) { embedding_forward(c, at, table, out); };
          });
    }
  }

  /// The adapter of a model of 16 layers with 7 projections each.
  void adapters() {
    if (!has_f16_product_) return;
    constexpr int64_t kPairs = 112, kRank = 16;
    const int64_t in = large_ ? 4096 : 64, out = large_ ? 14336 : 96;
    const double elements = static_cast<double>(kPairs * kRank * (in + out));
    add(fmt::format("lora_pack_factors, {} of {} -> {} -> {}", kPairs, in, kRank, out),
        6.0 * elements, [=](Context& ctx) -> std::function<void(Context&)> {
          const Tensor all = filled(ctx, kPairs * kRank, in + out);
          std::vector<std::pair<Tensor, Tensor>> pairs;
          for (int64_t i = 0; i < kPairs; ++i) {
            const int64_t begin = i * kRank * (in + out);
            pairs.emplace_back(all.flat(begin, kRank * in).reshape({kRank, in}),
                               all.flat(begin + kRank * in, out * kRank).reshape({out, kRank}));
          }
          auto factors = std::make_shared<LoraFactorPack>(ctx, pairs);
          return [factors](Context& c) { factors->pack(c); };
        });
  }

  void loss() {
    const int64_t rows = large_ ? 2048 : 16, vocab = large_ ? 128256 : 8192;
    const double bytes = 4.0 * static_cast<double>(rows * vocab);
    const std::string shape = fmt::format("{}x{}", rows, vocab);
    auto prepare = [=](Context& ctx, bool backward) -> std::function<void(Context&)> {
      const Tensor logits = filled(ctx, rows, vocab);
      const std::vector<int32_t> label(static_cast<size_t>(rows), 5);
      const Tensor labels = ctx.make<int32_t>({rows}, DType::kI32, label, "bench");
      const Tensor losses = ctx.allocate({rows}, DType::kF32, "bench");
      const Tensor lse = ctx.allocate({rows}, DType::kF32, "bench");
      cross_entropy_forward(ctx, logits, labels, losses, lse);
      if (backward) {
        return [=](Context& c) { cross_entropy_backward(c, logits, labels, lse, 1.0f); };
      }
      return [=](Context& c) { cross_entropy_forward(c, logits, labels, losses, lse); };
    };
    add("cross_entropy_forward " + shape, bytes,
        [prepare](Context& ctx) { return prepare(ctx, false); });
    add("cross_entropy_backward " + shape, 2 * bytes,
        [prepare](Context& ctx) { return prepare(ctx, true); });
  }

  void optimizer() {
    const int64_t n = rows_ * width_;
    add(fmt::format("adamw_step {}", n), 7 * array_bytes(), [=](Context& ctx) {
      const Tensor p = filled(ctx, n / 64, 64).reshape({n}),
                   g = filled(ctx, n / 64, 64).reshape({n});
      const Tensor m = ctx.allocate_zeroed({n}, DType::kF32, "bench");
      const Tensor v = ctx.allocate_zeroed({n}, DType::kF32, "bench");
      const std::vector<float> going = {1.0f, 1.0f, 1.0f, 0.0f};
      const Tensor state = ctx.make<float>({4}, DType::kF32, going, "bench");
      AdamWStep step;
      step.learning_rate = 1e-6f;
      return [=](Context& c) { adamw_step(c, step, state, p, g, m, v); };
    });
    add(fmt::format("gradient_norm {}", n), array_bytes(), [=](Context& ctx) {
      const Tensor g = filled(ctx, n / 64, 64).reshape({n});
      const Tensor zero = ctx.allocate_zeroed({1}, DType::kF32, "bench");
      const Tensor state = ctx.allocate_zeroed({4}, DType::kF32, "bench");
      return [=](Context& c) { gradient_norm(c, {&g, 1}, zero, 1.0f, state); };
    });
  }

  bool large_, has_f16_product_;
  int64_t rows_, width_;
  std::vector<BenchCase> cases_;
};

}  // namespace

std::vector<BenchCase> memory_bench_cases(const Context& ctx) { return MemoryCases(ctx).all(); }

}  // namespace wgrad::ops
