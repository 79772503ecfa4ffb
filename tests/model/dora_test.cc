#include "ops/dora.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/testing.h"

namespace wgrad::model::testing {
namespace {

class DoraTest : public ::testing::TestWithParam<Device> {
 protected:
  using Values = std::vector<std::vector<float>>;

  Context& ctx() const { return context(GetParam()); }
  /// All matrices random and the lengths away from those of the weights.
  Adapter adapter(double dropout) {
    LoraConfig lora = {.rank = 3, .alpha = 6, .dropout = dropout, .dora = true};
    lora.targets = {"all-linear", "lm_head"};
    Adapter made = Adapter::create(ctx(), model_, lora, 5);
    move_from_start(ctx(), made);
    return made;
  }
  double loss(const Adapter& adapter) {
    adapter.parameters().zero_gradients(ctx());
    Decoder decoder(ctx(), model_, &adapter, {});
    const Batch batch = make_batch(ctx(), rows_.rows(), model_.config.vocab_size);
    const Tensor sum = ctx().allocate_zeroed({1}, DType::kF32, "loss");
    const auto counted = static_cast<float>(batch.counted_tokens());
    decoder.forward_backward(batch, 1.0f / counted, {9, 2}, sum);
    return static_cast<double>(ctx().read<float>(sum)[0] / counted);
  }
  Values read(const Adapter& adapter, bool gradients) {
    Values all;
    for (const Parameter& p : adapter.parameters().parameters()) {
      all.push_back(ctx().read<float>(gradients ? p.grad : p.value));
    }
    return all;
  }
  std::vector<float> norms(const AdaptedProduct& product) {
    const LoraPair& pair = product.pair;
    const Shape shape = pair.magnitude->value.shape();
    const ops::DoraFactors factors = {ctx().allocate(shape, DType::kF32, "norm"),
                                      ctx().allocate(shape, DType::kF32, "factor")};
    ops::dora_factors(ctx(), weight_of(model_, product), pair.a->value, pair.b->value, pair.scale,
                      pair.magnitude->value, factors);
    return ctx().read<float>(factors.norm);
  }

  const std::filesystem::path folder_ = data_folder() / "qwen2_window";
  const Model model_ = load_model(ctx(), folder_, {});
  const GoldenRows rows_{Golden(folder_ / "expected.safetensors")};
};

TEST_P(DoraTest, GradientUnderDropoutIsTheSlopeOfTheLossWithTheNormsHeldConstant) {
  const Adapter made = adapter(0.4);
  const auto& parameters = made.parameters().parameters();
  loss(made);
  const Values at = read(made, false), gradient = read(made, true);
  std::vector<std::vector<float>> norms_at;
  for (const AdaptedProduct& product : made.products()) norms_at.push_back(norms(product));
  double square = 0;
  for (const std::vector<float>& values : gradient) {
    for (const float g : values) square += static_cast<double>(g) * g;
  }
  // Lengths are scaled with the norms, so that their quotients move as the gradient says alone.
  const auto shifted_loss = [&](float shift) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      std::vector<float> values = at[i];
      for (size_t j = 0; j < values.size(); ++j) values[j] += shift * gradient[i][j];
      ctx().upload<float>(parameters[i].value, values);
    }
    for (size_t i = 0; i < made.products().size(); ++i) {
      const AdaptedProduct& product = made.products()[i];
      std::vector<float> lengths = ctx().read<float>(product.pair.magnitude->value);
      const std::vector<float> now = norms(product);
      for (size_t j = 0; j < lengths.size(); ++j) lengths[j] *= now[j] / norms_at[i][j];
      ctx().upload<float>(product.pair.magnitude->value, lengths);
    }
    return loss(made);
  };
  // Along the gradient the loss rises by |g|^2 a unit. A step of length 0.004 leaves f32's 1e-7 of
  // the loss and the third derivative's 0.004^2, both under 1%.
  const auto step = static_cast<float>(0.004 / std::sqrt(square));
  const double slope = (shifted_loss(step) - shifted_loss(-step)) / (2.0 * step);
  EXPECT_NEAR(slope, square, 0.01 * square);
}

TEST_P(DoraTest, RecomputingBlocksChangesNoBit) {
  const Adapter made = adapter(0.3);
  const Batch batch = make_batch(ctx(), rows_.rows(), model_.config.vocab_size);
  const auto run = [&](Recompute recompute) {
    made.parameters().zero_gradients(ctx());
    Decoder decoder(ctx(), model_, &made, {.recompute = recompute});
    decoder.forward_backward(batch, 0.1f, {}, ctx().allocate_zeroed({1}, DType::kF32, "loss"));
    return read(made, true);
  };
  EXPECT_EQ(run(Recompute::kNone), run(Recompute::kBlock));
}

TEST_P(DoraTest, TokenByTokenComputesTheLogitsOfTheWholeRow) {
  const Adapter made = adapter(0.0);
  Decoder decoder(ctx(), model_, &made, {});
  const std::vector<uint32_t> ids = {3, 7, 11, 5, 9};
  const std::vector<Row> row = {{ids, {}}};
  const std::vector<float> whole =
      ctx().read<float>(decoder.logits(make_batch(ctx(), row, model_.config.vocab_size)));
  std::vector<KeyValueCache> caches;
  for (int64_t i = 0; i < model_.config.layers; ++i) {
    const Shape shape = {5, model_.config.key_size()};
    caches.push_back(
        {ctx().allocate(shape, DType::kF32, "keys"), ctx().allocate(shape, DType::kF32, "values")});
  }
  std::vector<float> last;
  for (uint32_t i = 0; i < ids.size(); ++i) {
    const std::span<const uint32_t> one = std::span(ids).subspan(i, 1);
    const Batch batch = continue_row(ctx(), one, i, model_.config.vocab_size);
    last = ctx().read<float>(decoder.next_logits(batch, caches));
  }
  EXPECT_LE(
      difference(last, std::vector<float>(whole.end() - model_.config.vocab_size, whole.end())),
      1e-4);
}

INSTANTIATE_TEST_SUITE_P(All, DoraTest, ::testing::Values(Device::kCpu, Device::kSoftwareGpu),
                         [](const auto& info) {
                           return info.param == Device::kCpu ? std::string("Cpu") : "SoftwareGpu";
                         });

}  // namespace
}  // namespace wgrad::model::testing
