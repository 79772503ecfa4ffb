#include <cmath>
#include <numeric>

#include "io/checkpoint_source.h"
#include "testing.h"

namespace wgrad::train {
namespace {

using namespace testing;

std::vector<double> losses(const Record& record) {
  std::vector<double> out;
  for (const StepMetrics& m : record.steps) out.push_back(m.loss);
  return out;
}

Record run(const TrainOptions& options) {
  Record record;
  run_training(options, record, nullptr);
  return record;
}

/// All f32 values of a safetensors file, by name.
std::map<std::string, std::vector<float>> tensors_of(const fs::path& path) {
  std::map<std::string, std::vector<float>> out;
  const auto source = io::open_safetensors(path);
  for (const std::string& name : source->names()) {
    out[name].resize(static_cast<size_t>(source->get(name).elements()));
    source->read_f32(name, out[name]);
  }
  return out;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    most = std::max(most, std::abs(double{a[i]} - double{b[i]}));
  }
  return most;
}

double norm(const std::vector<float>& values) {
  double sum = 0;
  for (float v : values) sum += double{v} * v;
  return std::sqrt(sum);
}

TEST(Training, AccumulationEqualsTheBigBatch) {
  const TemporaryFolder folder;
  TrainOptions big = tiny_options("llama3", "lora_llama3", folder.path() / "big");
  big.batch_size = 8;
  big.steps = 5;
  TrainOptions parts = big;
  parts.out = (folder.path() / "parts").string();
  parts.batch_size = 2;
  parts.grad_accum = 4;
  const Record a = run(big), b = run(parts);
  ASSERT_EQ(a.steps.size(), 5u);
  for (size_t i = 0; i < a.steps.size(); ++i) {
    // Sums of about 100 token losses and 1e4 squares in another order, over a few updates.
    EXPECT_NEAR(b.steps[i].loss, a.steps[i].loss, 1e-5 * a.steps[i].loss);
    EXPECT_NEAR(b.steps[i].grad_norm, a.steps[i].grad_norm, 1e-4 * a.steps[i].grad_norm);
    EXPECT_EQ(b.steps[i].tokens, a.steps[i].tokens);
  }
}

TEST(Training, PackingChangesNoLossOfTheSameRows) {
  const TemporaryFolder folder;
  TrainOptions plain = tiny_options("llama3", "lora_llama3", folder.path() / "plain");
  plain.batch_size = 40;  // all rows in one micro-batch
  plain.steps = 3;
  TrainOptions packed = plain;
  packed.out = (folder.path() / "packed").string();
  packed.packing = true;
  packed.batch_size = 1;
  packed.max_seq_len = 32;
  packed.grad_accum = 100;  // all micro-batches in one step
  const Record a = run(plain), b = run(packed);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(b.steps[i].tokens, a.steps[i].tokens);
    EXPECT_NEAR(b.steps[i].loss, a.steps[i].loss, 1e-5 * a.steps[i].loss);
    EXPECT_NEAR(b.steps[i].grad_norm, a.steps[i].grad_norm, 1e-4 * a.steps[i].grad_norm);
  }
}

TEST(Training, AnAdapterWithZeroBChangesNothing) {
  const TemporaryFolder folder;
  TrainOptions o = tiny_options("llama3", "lora_llama3", folder.path() / "lora");
  o.steps = 1;
  o.lr = 0.0;
  TrainOptions whole = o;
  whole.out = (folder.path() / "full").string();
  train_fully(whole);
  EXPECT_EQ(losses(run(o)), losses(run(whole)));
}

TEST(Training, GradientsReachBAtOnceAndAAfterTheFirstUpdate) {
  const TemporaryFolder folder;
  TrainOptions o = tiny_options("llama3", "lora_llama3", folder.path() / "out");
  o.schedule = Schedule::kConstant;
  o.warmup_steps = 0;
  o.steps = 2;
  o.save_every = 1;
  o.weight_decay = 0;
  run(o);
  auto adapter = [&](int step) {
    return tensors_of(fs::path(o.out) / "checkpoints" / ("step-00000" + std::to_string(step)) /
                      "adapter_model.safetensors");
  };
  const auto first = adapter(1), second = adapter(2);
  ASSERT_EQ(first.size(), 3u * 7 * 2);
  for (const auto& [name, values] : first) {
    // Adam's first step moves every weight with a gradient by lr.
    if (name.find("lora_B") != std::string::npos) {
      EXPECT_GT(norm(values), 0) << name;
    }
    if (name.find("lora_A") != std::string::npos) {
      EXPECT_GT(largest_difference(values, second.at(name)), 0) << name;
    }
  }
}

TEST(Training, WeightsOfAFrozenModelKeepTheirBytes) {
  const TemporaryFolder folder;
  fs::copy(models_folder() / "llama3", folder.path() / "model");
  const fs::path weights = folder.path() / "model" / "model.safetensors";
  const std::string before = read_file(weights);
  for (Method method : {Method::kLora, Method::kQlora}) {
    TrainOptions o =
        tiny_options("llama3", "lora_llama3", folder.path() / std::string(enum_name(method)));
    o.model = (folder.path() / "model").string();
    o.method = method;
    o.lr = 0.1;
    o.steps = 3;
    run(o);
    EXPECT_TRUE(read_file(weights) == before) << enum_name(method);
  }
}

TEST(Training, DecaySparesNormsAndBiases) {
  const TemporaryFolder folder;
  TrainOptions o = tiny_options("qwen2", "qlora_qwen2", folder.path() / "decay");
  train_fully(o);
  o.schedule = Schedule::kConstant;
  o.warmup_steps = 0;
  o.steps = 1;
  o.lr = 1e-3;
  o.weight_decay = 0.5;
  TrainOptions none = o;
  none.out = (folder.path() / "none").string();
  none.weight_decay = 0;
  run(o);
  run(none);
  const auto decayed = tensors_of(fs::path(o.out) / "model.safetensors");
  const auto plain = tensors_of(fs::path(none.out) / "model.safetensors");
  const auto start = tensors_of(models_folder() / "qwen2" / "model.safetensors");
  ASSERT_EQ(decayed.size(), plain.size());
  for (const auto& [name, values] : decayed) {
    const bool matrix = !name.ends_with("bias") && name.find("norm") == std::string::npos;
    if (!matrix) {
      EXPECT_TRUE(values == plain.at(name)) << name;
      continue;
    }
    const std::vector<float>& w = start.at(name);
    for (size_t i = 0; i < w.size(); ++i) {
      // Decoupled: w (1 - lr decay) before the same step. Four roundings of numbers below |w| + lr:
      // the factor, the product and, in both runs, the step's difference.
      const double expected = plain.at(name)[i] - 1e-3 * 0.5 * w[i];
      EXPECT_NEAR(values[i], expected, 4 * 0x1p-24 * (std::abs(w[i]) + 1e-3)) << name << i;
    }
  }
}

TEST(Training, LossFallsByHalfOnAToy) {
  const TemporaryFolder folder;
  std::string rows;
  for (int i = 0; i < 8; ++i) {
    const std::string w = "w" + std::to_string(10 + i), next = " w" + std::to_string(60 + i);
    rows += R"({"prompt": ")" + w + R"(", "completion": ")" + next + next + "\"}\n";
  }
  TrainOptions o = toy_options(folder, rows);
  o.batch_size = 8;
  o.steps = 100;
  o.lr = 1e-2;
  o.shuffle = true;
  const Record record = run(o);
  ASSERT_EQ(record.steps.size(), 100u);
  EXPECT_LT(record.steps.back().loss, 0.5 * record.steps.front().loss);
}

TEST(Training, RecomputingBlocksGivesTheSameBits) {
  const TemporaryFolder folder;
  TrainOptions o = tiny_options("qwen3", "rslora_qwen3", folder.path() / "none");
  o.dropout = 0.25;
  o.steps = 4;
  o.recompute = Recompute::kNone;
  TrainOptions again = o;
  again.out = (folder.path() / "block").string();
  again.recompute = Recompute::kBlock;
  EXPECT_EQ(losses(run(o)), losses(run(again)));
  EXPECT_TRUE(read_file(fs::path(o.out) / "adapter_model.safetensors") ==
              read_file(fs::path(again.out) / "adapter_model.safetensors"));
}

TEST(Training, TwoRunsGiveTheSameBitsAndAnotherSeedOthers) {
  const TemporaryFolder folder;
  TrainOptions o = tiny_options("llama3", "lora_llama3", folder.path() / "1");
  o.dropout = 0.1;
  o.shuffle = true;
  o.steps = 3;
  auto weights = [&](const char* out, uint64_t seed) {
    o.out = (folder.path() / out).string();
    o.seed = seed;
    run(o);
    return read_file(fs::path(o.out) / "adapter_model.safetensors");
  };
  const std::string first = weights("a", 7);
  EXPECT_TRUE(first == weights("b", 7));
  EXPECT_FALSE(first == weights("c", 8));
}

TEST(Training, EvaluationIsTheMeanOverItsCountedTokens) {
  const TemporaryFolder folder;
  fs::create_directory(folder.path() / "data");
  for (const char* name : {"train.jsonl", "valid.jsonl"}) {
    fs::copy(run_folder("lora_llama3") / "train.jsonl", folder.path() / "data" / name);
  }
  TrainOptions o = tiny_options("llama3", "lora_llama3", folder.path() / "out");
  o.data = (folder.path() / "data").string();
  o.batch_size = 40;
  o.steps = 4;
  o.eval_every = 2;
  o.lr = 0.0;
  const Record record = run(o);
  ASSERT_EQ(record.evals.size(), 2u);
  EXPECT_EQ(record.evals[0].step, 2);
  EXPECT_EQ(record.evals[1].step, 4);
  EXPECT_EQ(record.evals[0].tokens, record.plan.counted_tokens_per_epoch);
  // The same rows and, at a rate of 0, the same weights: the step's own loss.
  EXPECT_NEAR(record.evals[0].loss, record.steps[0].loss, 1e-5 * record.steps[0].loss);
  const std::vector<nlohmann::json> lines = read_lines(fs::path(o.out) / "metrics.jsonl");
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[2].at("step"), 2);
  EXPECT_EQ(lines[2].at("eval_tokens"), record.evals[0].tokens);
  EXPECT_EQ(lines[2].at("eval_loss"), record.evals[0].loss);
}

TEST(Training, MetricsHaveEveryFieldOfAStep) {
  const TemporaryFolder folder;
  TrainOptions o = tiny_options("llama3", "lora_llama3", folder.path() / "out");
  o.epochs = 1.5;
  o.log_every = 4;
  const Record record = run(o);
  ASSERT_EQ(record.plan.steps, 15);  // 40 rows, 4 a step
  const std::vector<nlohmann::json> lines = read_lines(fs::path(o.out) / "metrics.jsonl");
  ASSERT_EQ(lines.size(), 4u);  // 4, 8, 12 and the last
  EXPECT_EQ(lines.back().at("step"), 15);
  EXPECT_EQ(lines.back().at("epoch"), 1.5);
  EXPECT_GE(lines.back().at("total_tokens"), record.plan.tokens_per_epoch);
  for (const char* key : {"step", "epoch", "loss", "lr", "grad_norm", "tokens", "total_tokens",
                          "tokens_per_second", "seconds", "peak_memory_bytes"}) {
    EXPECT_TRUE(lines[0].at(key).is_number()) << key;
  }
}

TEST(Training, SpeedIsThatOfTheStepsAlone) {
  const TemporaryFolder folder;
  TrainOptions o = tiny_options("llama3", "lora_llama3", folder.path() / "out");
  // An evaluation of every row 20 times takes far longer than a step over one row.
  std::string many;
  for (int i = 0; i < 20; ++i) many += read_file(o.data);
  write_file(folder.path() / "valid.jsonl", many);
  o.eval_data = (folder.path() / "valid.jsonl").string();
  o.batch_size = 1;
  o.steps = 6;
  o.eval_every = 1;
  o.save_every = 1;
  const Record record = run(o);
  double in_steps = 0;
  for (const StepMetrics& m : record.steps) {
    in_steps += static_cast<double>(m.tokens) / m.tokens_per_second;
  }
  EXPECT_GT(in_steps, 0);
  EXPECT_LT(in_steps, record.steps.back().seconds / 2);
}

TEST(Training, ClippingChangesTheUpdateButNotTheReportedNorm) {
  const TemporaryFolder folder;
  TrainOptions o = tiny_options("llama3", "lora_llama3", folder.path() / "clipped");
  o.schedule = Schedule::kConstant;
  o.warmup_steps = 0;
  o.steps = 3;
  o.eps = 1.0;  // so large that the size of a gradient matters
  o.max_grad_norm = 0.01;
  TrainOptions free = o;
  free.out = (folder.path() / "free").string();
  free.max_grad_norm = 0;
  const Record a = run(o), b = run(free);
  EXPECT_EQ(a.steps[0].grad_norm, b.steps[0].grad_norm);
  EXPECT_GT(a.steps[0].grad_norm, 0.01);
  EXPECT_NE(a.steps[2].loss, b.steps[2].loss);
}

TEST(Training, AModelCutShortIsRefusedBeforeAnythingIsWritten) {
  const TemporaryFolder folder;
  TrainOptions o = tiny_options("llama3", "lora_llama3", folder.path() / "out");
  o.data = (folder.path() / "absent.jsonl").string();
  EXPECT_EQ(error_of([&] { run(o); }).kind(), ErrorKind::kInput);
  EXPECT_FALSE(fs::exists(o.out));
}

}  // namespace
}  // namespace wgrad::train
