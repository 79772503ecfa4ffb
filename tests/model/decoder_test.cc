#include "model/decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "model/testing.h"
#include "ops/elementwise.h"

namespace wgrad::model::testing {
namespace {

using ::testing::HasSubstr;

// PyTorch and wgrad both compute in f32, with sums of up to 60 terms in different orders through
// 2 or 3 layers; independent implementations agree within about 1e-5 of the largest value.
constexpr double kLogitBound = 1e-4;
constexpr double kLossBound = 1e-5;      // relative
constexpr double kGradientBound = 1e-4;  // of the largest element of the tensor
constexpr double kGradientFloor = 1e-6;

/// What one backward pass gives: the mean loss and every gradient by name.
struct Pass {
  double loss = 0;
  std::vector<std::pair<std::string, std::vector<float>>> gradients;
};

Pass backward(Context& ctx, const Model& model, const Adapter* adapter,
              const std::vector<std::vector<Row>>& micro_batches, DecoderSettings settings = {},
              uint32_t step = 0) {
  const Parameters& parameters = adapter ? adapter->parameters() : model.parameters;
  parameters.zero_gradients(ctx);
  Decoder decoder(ctx, model, adapter, settings);
  std::vector<Batch> batches;
  int64_t counted = 0;
  for (const std::vector<Row>& rows : micro_batches) {
    batches.push_back(make_batch(ctx, rows, model.config.vocab_size));
    counted += batches.back().counted_tokens();
  }
  const Tensor loss_sum = ctx.allocate_zeroed({1}, DType::kF32, "loss");
  for (uint32_t i = 0; i < batches.size(); ++i) {
    decoder.forward_backward(batches[i], 1.0f / static_cast<float>(counted), {step, i}, loss_sum);
  }
  Pass pass;
  pass.loss = static_cast<double>(ctx.read<float>(loss_sum)[0]) / static_cast<double>(counted);
  for (const Parameter& p : parameters.parameters()) {
    pass.gradients.emplace_back(p.name, ctx.read<float>(p.grad));
  }
  return pass;
}

void expect_matches_golden(const Pass& pass, const Golden& golden, const std::string& label) {
  const double loss = golden.values("loss")[0];
  EXPECT_LE(std::abs(pass.loss - loss), kLossBound * loss);
  double worst = 0;
  for (const auto& [name, gradient] : pass.gradients) {
    const std::vector<float> expected = golden.values("grad." + name);
    const double bound = kGradientBound * largest(expected) + kGradientFloor;
    const double error = difference(gradient, expected);
    EXPECT_LE(error, bound) << name << ", largest " << largest(expected);
    worst = std::max(worst, error / (largest(expected) + kGradientFloor / kGradientBound));
  }
  std::printf("%s: loss off by %.1e, gradients by %.1e of the largest\n", label.c_str(),
              std::abs(pass.loss - loss) / loss, worst);
}

class FamilyTest : public ::testing::TestWithParam<std::tuple<Device, std::string>> {
 protected:
  Context& ctx() const { return context(std::get<0>(GetParam())); }
  std::string name() const { return std::get<1>(GetParam()); }
  std::filesystem::path folder() const { return data_folder() / name(); }
  Golden golden() const { return Golden(folder() / "expected.safetensors"); }
};

TEST_P(FamilyTest, LogitsMatchTransformers) {
  const Model model = load_model(ctx(), folder(), {});
  const GoldenRows rows(golden());
  Decoder decoder(ctx(), model, nullptr, {});
  const Batch batch = make_batch(ctx(), rows.rows(), model.config.vocab_size);
  const double error =
      difference(ctx().read<float>(decoder.logits(batch)), golden().values("logits"));
  std::printf("logits off by %.1e\n", error);
  EXPECT_LE(error, kLogitBound);
}

TEST_P(FamilyTest, LogitsWithAnAdapterMatchPeft) {
  const Model model = load_model(ctx(), folder(), {});
  const Adapter adapter = Adapter::load(ctx(), model.config, folder() / "adapter");
  const GoldenRows rows(golden());
  Decoder decoder(ctx(), model, &adapter, {});
  const Batch batch = make_batch(ctx(), rows.rows(), model.config.vocab_size);
  const Golden expected(folder() / "adapter_expected.safetensors");
  EXPECT_LE(difference(ctx().read<float>(decoder.logits(batch)), expected.values("logits")),
            kLogitBound);
}

TEST_P(FamilyTest, GradientsOfAllWeightsMatchPyTorch) {
  const Model model = load_model(ctx(), folder(), {.trainable = true});
  const GoldenRows rows(golden());
  expect_matches_golden(backward(ctx(), model, nullptr, {rows.rows()}), golden(), name());
}

TEST_P(FamilyTest, GradientsOfAnAdapterMatchPeft) {
  const Model model = load_model(ctx(), folder(), {});
  const Adapter adapter = Adapter::load(ctx(), model.config, folder() / "adapter");
  const GoldenRows rows(golden());
  expect_matches_golden(backward(ctx(), model, &adapter, {rows.rows()}),
                        Golden(folder() / "adapter_expected.safetensors"), name());
}

INSTANTIATE_TEST_SUITE_P(Cpu, FamilyTest,
                         ::testing::Combine(::testing::Values(Device::kCpu),
                                            ::testing::ValuesIn(kModels)),
                         device_and_model);
INSTANTIATE_TEST_SUITE_P(SoftwareGpu, FamilyTest,
                         ::testing::Combine(::testing::Values(Device::kSoftwareGpu),
                                            ::testing::ValuesIn(kModels)),
                         device_and_model);

/// Rows of five lengths are slow on the software driver, which compiles for each.
class RowTest : public FamilyTest {};

TEST_P(RowTest, ARowIsTheSameAloneAndInABatch) {
  const Model model = load_model(ctx(), folder(), {});
  const GoldenRows rows(golden());
  Decoder decoder(ctx(), model, nullptr, {});
  const auto logits = [&](const std::vector<Row>& some) {
    return ctx().read<float>(decoder.logits(make_batch(ctx(), some, model.config.vocab_size)));
  };
  const std::vector<float> together = logits(rows.rows());
  std::vector<float> alone;
  for (size_t i = 0; i < rows.lengths.size(); ++i) {
    const std::vector<float> row = logits(rows.rows(i, i + 1));
    alone.insert(alone.end(), row.begin(), row.end());
  }
  // Only the order within a product's sums may differ with the number of rows.
  EXPECT_LE(difference(together, alone), 1e-5 * largest(together));
}

INSTANTIATE_TEST_SUITE_P(Cpu, RowTest,
                         ::testing::Combine(::testing::Values(Device::kCpu),
                                            ::testing::ValuesIn(kModels)),
                         device_and_model);
INSTANTIATE_TEST_SUITE_P(SoftwareGpu, RowTest,
                         ::testing::Combine(::testing::Values(Device::kSoftwareGpu),
                                            ::testing::Values("mistral")),
                         device_and_model);

class DecoderTest : public ::testing::TestWithParam<Device> {
 protected:
  Context& ctx() const { return context(GetParam()); }
  std::filesystem::path folder() const { return data_folder() / "qwen3"; }
  GoldenRows rows_{Golden(folder() / "expected.safetensors")};
};

void expect_same_bits(const Pass& a, const Pass& b) {
  EXPECT_EQ(a.loss, b.loss);
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    const auto& [name, values] = a.gradients[i];
    EXPECT_EQ(
        std::memcmp(values.data(), b.gradients[i].second.data(), values.size() * sizeof(float)), 0)
        << name;
  }
}

TEST_P(DecoderTest, RecomputingBlocksChangesNoBit) {
  const Model model = load_model(ctx(), folder(), {});
  const Adapter adapter =
      Adapter::create(ctx(), model.config, {.rank = 3, .alpha = 6, .dropout = 0.3}, 5);
  // B is zero at first; its gradient alone would not show A's.
  const Golden some(folder() / "adapter" / "adapter_model.safetensors");
  for (const Parameter& p : adapter.parameters().parameters()) {
    ctx().upload<float>(p.value, some.values("base_model.model." + p.name));
  }
  const std::vector<std::vector<Row>> batches = {rows_.rows()};
  const Pass kept = backward(ctx(), model, &adapter, batches, {.dropout_seed = 7}, 3);
  const Pass again = backward(ctx(), model, &adapter, batches,
                              {.recompute = Recompute::kBlock, .dropout_seed = 7}, 3);
  expect_same_bits(kept, again);

  const Model trained = load_model(ctx(), folder(), {.trainable = true});
  expect_same_bits(backward(ctx(), trained, nullptr, batches),
                   backward(ctx(), trained, nullptr, batches, {.recompute = Recompute::kBlock}));
}

TEST_P(DecoderTest, AccumulatedMicroBatchesEqualTheBigBatch) {
  const Model model = load_model(ctx(), folder(), {.trainable = true});
  const Pass whole = backward(ctx(), model, nullptr, {rows_.rows()});
  const Pass parts =
      backward(ctx(), model, nullptr, {rows_.rows(0, 1), rows_.rows(1, 4), rows_.rows(4, 5)});
  EXPECT_NEAR(parts.loss, whole.loss, 1e-6 * whole.loss);
  for (size_t i = 0; i < whole.gradients.size(); ++i) {
    const auto& [name, values] = whole.gradients[i];
    EXPECT_LE(difference(values, parts.gradients[i].second),
              1e-5 * largest(values) + kGradientFloor)
        << name;
  }
}

TEST_P(DecoderTest, DropoutIsDrawnAnewForEachStepAndMicroBatch) {
  const Model model = load_model(ctx(), folder(), {});
  const LoraConfig lora = {.rank = 2, .alpha = 4, .dropout = 0.5};
  const Adapter adapter = Adapter::create(ctx(), model.config, lora, 1);
  const std::vector<Row> rows = rows_.rows();
  const auto run = [&](uint32_t step, uint64_t seed) {
    return backward(ctx(), model, &adapter, {rows}, {.dropout_seed = seed}, step).gradients;
  };
  EXPECT_EQ(run(1, 1), run(1, 1));
  EXPECT_NE(run(1, 1), run(2, 1));
  EXPECT_NE(run(1, 1), run(1, 2));
  // The same rows twice as two micro-batches: with one mask for both, the gradient would be that
  // of one.
  const auto once = run(1, 1);
  const auto twice = backward(ctx(), model, &adapter, {rows, rows}, {.dropout_seed = 1}, 1);
  EXPECT_GT(difference(once[1].second, twice.gradients[1].second), 1e-3 * largest(once[1].second));
}

TEST_P(DecoderTest, GradientUnderDropoutIsTheSlopeOfTheLoss) {
  const Model model = load_model(ctx(), folder(), {});
  const Adapter adapter =
      Adapter::create(ctx(), model.config, {.rank = 3, .alpha = 6, .dropout = 0.4}, 5);
  const std::vector<std::vector<Row>> batches = {rows_.rows()};
  const Golden some(folder() / "adapter" / "adapter_model.safetensors");
  const auto set = [&](float shift, const Pass* direction) {
    const auto& parameters = adapter.parameters().parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      std::vector<float> values = some.values("base_model.model." + parameters[i].name);
      if (direction != nullptr) {
        for (size_t j = 0; j < values.size(); ++j) {
          values[j] += shift * direction->gradients[i].second[j];
        }
      }
      ctx().upload<float>(parameters[i].value, values);
    }
  };
  const auto run = [&] { return backward(ctx(), model, &adapter, batches, {}, 9); };
  set(0, nullptr);
  const Pass at = run();
  double square = 0;
  for (const auto& [name, values] : at.gradients) {
    for (const float g : values) square += static_cast<double>(g) * g;
  }
  // Along the gradient itself the loss rises by |g|^2 a unit. A step of length 0.02 leaves
  // f32's 1e-7 of the loss and the third derivative's 0.02^2, both far under 1%.
  const auto step = static_cast<float>(0.02 / std::sqrt(square));
  set(step, &at);
  const double above = run().loss;
  set(-step, &at);
  const double below = run().loss;
  EXPECT_NEAR((above - below) / (2.0 * step), square, 0.01 * square);
}

TEST_P(DecoderTest, AFreshAdapterChangesNothing) {
  const Model model = load_model(ctx(), folder(), {});
  const Adapter adapter = Adapter::create(ctx(), model.config, {.rank = 4}, 5);
  const Batch batch = make_batch(ctx(), rows_.rows(), model.config.vocab_size);
  EXPECT_EQ(ctx().read<float>(Decoder(ctx(), model, &adapter, {}).logits(batch)),
            ctx().read<float>(Decoder(ctx(), model, nullptr, {}).logits(batch)));
}

TEST_P(DecoderTest, LossesAreTheSameInEvaluationAndTraining) {
  const Model model = load_model(ctx(), folder(), {});
  const Adapter adapter = Adapter::load(ctx(), model.config, folder() / "adapter");
  const Batch batch = make_batch(ctx(), rows_.rows(), model.config.vocab_size);
  const std::vector<float> losses =
      ctx().read<float>(Decoder(ctx(), model, &adapter, {}).losses(batch));
  double sum = 0;
  for (const float loss : losses) sum += loss;
  const Pass pass = backward(ctx(), model, &adapter, {rows_.rows()});
  EXPECT_NEAR(sum / static_cast<double>(losses.size()), pass.loss, 1e-6 * pass.loss);
}

TEST_P(DecoderTest, OnlySomeProjectionsCanBeAdapted) {
  const Model model = load_model(ctx(), folder(), {});
  const Golden all(folder() / "adapter" / "adapter_model.safetensors");
  const std::vector<std::vector<Row>> batches = {rows_.rows()};
  for (const std::vector<std::string>& targets :
       std::vector<std::vector<std::string>>{{"down_proj"}, {"up_proj"}, {"o_proj"}, {"k_proj"}}) {
    const LoraConfig lora = {.rank = 3, .alpha = 7, .targets = targets};
    const Adapter adapter = Adapter::create(ctx(), model.config, lora, 1);
    const Adapter whole = Adapter::load(ctx(), model.config, folder() / "adapter");
    // With B = 0 elsewhere, the whole adapter computes the same and has the same gradients there.
    for (const Parameter& p : whole.parameters().parameters()) {
      const Parameter* same = adapter.parameters().find(p.name);
      if (same != nullptr) {
        ctx().upload<float>(same->value, all.values("base_model.model." + p.name));
      } else if (p.name.find("lora_B") != std::string::npos) {
        ops::fill_zero(ctx(), p.value);
      }
    }
    const Pass part = backward(ctx(), model, &adapter, batches);
    const Pass expected = backward(ctx(), model, &whole, batches);
    EXPECT_NEAR(part.loss, expected.loss, 1e-6 * expected.loss) << targets[0];
    for (const auto& [name, values] : expected.gradients) {
      for (const auto& [part_name, part_values] : part.gradients) {
        if (part_name != name) continue;
        EXPECT_LE(difference(values, part_values), 1e-5 * largest(values) + kGradientFloor) << name;
      }
    }
  }
}

TEST_P(DecoderTest, ABatchWithNothingCountedAddsNothing) {
  const Model model = load_model(ctx(), folder(), {.trainable = true});
  const std::vector<uint32_t> ids = {3, 4, 5};
  const std::vector<int32_t> labels = {3, -100, -100};  // the first label is nobody's target
  Decoder decoder(ctx(), model, nullptr, {});
  const std::vector<Row> rows = {{ids, labels}};
  const Batch batch = make_batch(ctx(), rows, model.config.vocab_size);
  EXPECT_EQ(batch.counted_tokens(), 0);
  const Tensor loss_sum = ctx().allocate_zeroed({1}, DType::kF32, "loss");
  decoder.forward_backward(batch, 1.0f, {}, loss_sum);
  EXPECT_EQ(ctx().read<float>(loss_sum)[0], 0.0f);
  EXPECT_FALSE(decoder.losses(batch));
}

TEST_P(DecoderTest, NamesARowThatIsLongerThanTheModelsContext) {
  const Model model = load_model(ctx(), folder(), {});
  Decoder decoder(ctx(), model, nullptr, {});
  const std::vector<uint32_t> ids(129, 3);
  const std::vector<Row> rows = {{ids, {}}};
  const Batch batch = make_batch(ctx(), rows, model.config.vocab_size);
  EXPECT_THAT(error_text([&] { decoder.logits(batch); }),
              HasSubstr("max_position_embeddings of 128"));
}

TEST_P(DecoderTest, NamesAnIdOutsideTheVocabulary) {
  const std::vector<uint32_t> ids = {3, 149};
  const std::vector<Row> rows = {{ids, {}}};
  EXPECT_THAT(error_text([&] { make_batch(ctx(), rows, 149); }),
              HasSubstr("row 0 of the batch, token 1: id 149"));
}

INSTANTIATE_TEST_SUITE_P(Cpu, DecoderTest, ::testing::Values(Device::kCpu));
INSTANTIATE_TEST_SUITE_P(SoftwareGpu, DecoderTest, ::testing::Values(Device::kSoftwareGpu));

}  // namespace
}  // namespace wgrad::model::testing
