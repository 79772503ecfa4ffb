#include "train/samples.h"

#include <atomic>

#include "model/generate.h"
#include "testing.h"
#include "train/inference.h"

namespace wgrad::train {
namespace {

using namespace testing;

class SampleRecord : public Record {
 public:
  void on_step(const StepMetrics& m) override {
    Record::on_step(m);
    if (stop_after > 0 && m.step == stop_after) stop = true;
  }
  void on_sample(const Sample& s) override { samples.push_back(s); }

  std::vector<Sample> samples;
  std::atomic<bool> stop{false};
  int64_t stop_after = 0;
};

TrainOptions sampled(const TemporaryFolder& folder, const std::string& out) {
  TrainOptions o = tiny_options("llama3", "lora_llama3", folder.path() / out);
  o.steps = 10;
  o.dropout = 0.1;
  o.shuffle = true;
  o.sample_prompt = "one two";
  o.sample_tokens = 6;
  o.sample_every = 4;
  return o;
}

class SamplesOfMethod : public ::testing::TestWithParam<Method> {};

TEST_P(SamplesOfMethod, ChangeNoNumberOfTheTraining) {
  const TemporaryFolder folder;
  TrainOptions with = sampled(folder, "with");
  if (GetParam() == Method::kFull) {
    train_fully(with);
    with.dropout = 0;
  }
  with.method = GetParam();
  TrainOptions without = with;
  without.out = (folder.path() / "without").string();
  without.sample_prompt.clear();
  without.sample_every = 0;
  SampleRecord a, b;
  run_training(with, a);
  run_training(without, b);
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].loss, b.steps[i].loss);
    EXPECT_EQ(a.steps[i].grad_norm, b.steps[i].grad_norm);
  }
  const char* const result =
      GetParam() == Method::kFull ? "model.safetensors" : "adapter_model.safetensors";
  EXPECT_TRUE(read_file(fs::path(with.out) / result) == read_file(fs::path(without.out) / result));
  // The plan's samples are as long as can be.
  const auto planned = static_cast<double>(a.plan.peak_bytes);
  EXPECT_LE(a.steps.back().peak_memory_bytes, a.plan.peak_bytes);
  EXPECT_NEAR(static_cast<double>(a.steps.back().peak_memory_bytes), planned, 0.02 * planned);
  EXPECT_TRUE(b.samples.empty());
  EXPECT_FALSE(fs::exists(folder.path() / "without/samples.jsonl"));
}

INSTANTIATE_TEST_SUITE_P(Samples, SamplesOfMethod,
                         ::testing::Values(Method::kLora, Method::kQlora, Method::kFull));

TEST(Samples, AreTakenBeforeTheFirstStepAlongTheRunAndAtItsEnd) {
  const TemporaryFolder folder;
  TrainOptions o = sampled(folder, "out");
  write_file(folder.path() / "prompts.txt", "three\r\n\n  \nfour five\n");
  o.sample_prompts = (folder.path() / "prompts.txt").string();
  SampleRecord record;
  run_training(o, record);
  std::vector<std::pair<int64_t, std::string>> seen;
  for (const Sample& s : record.samples) seen.emplace_back(s.step, s.prompt);
  std::vector<std::pair<int64_t, std::string>> expected;
  for (const int64_t step : {0, 4, 8, 10}) {
    for (const char* prompt : {"one two", "three", "four five"})
      expected.emplace_back(step, prompt);
  }
  EXPECT_EQ(seen, expected);
  const auto lines = read_lines(fs::path(o.out) / "samples.jsonl");
  ASSERT_EQ(lines.size(), record.samples.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i], nlohmann::json({{"step", record.samples[i].step},
                                        {"prompt", record.samples[i].prompt},
                                        {"text", record.samples[i].text}}));
  }
}

TEST(Samples, AreWhatTheAdapterOfTheStepWrites) {
  const TemporaryFolder folder;
  TrainOptions o = sampled(folder, "out");
  o.sample_raw = true;
  o.lr = 0.05;  // the answer changes
  SampleRecord record;
  run_training(o, record);
  for (const size_t which : {size_t{0}, record.samples.size() - 1}) {
    InferenceOptions inference;
    inference.model = o.model;
    if (which != 0) inference.adapters = {o.out};
    inference.device = "cpu";
    LoadedModel loaded = load_for_inference(inference);
    model::GenerateOptions generate;
    generate.temperature = 0;
    generate.max_tokens = o.sample_tokens;
    generate.stop_ids = loaded.text.stop_ids;
    model::Generator generator(*loaded.ctx, loaded.model, loaded.adapter_or_null());
    const auto ids =
        generator.generate(loaded.text.tokenizer.encode(o.sample_prompt, true).ids, generate);
    EXPECT_EQ(record.samples[which].text, loaded.text.tokenizer.decode(ids, true));
  }
  EXPECT_NE(record.samples.front().text, record.samples.back().text);
}

TEST(Samples, OfAResumedRunAreThoseOfOneThatWasNot) {
  const TemporaryFolder folder;
  TrainOptions straight = sampled(folder, "straight"), parts = sampled(folder, "parts");
  for (TrainOptions* o : {&straight, &parts}) o->save_every = 3;
  SampleRecord a, b, c;
  run_training(straight, a);
  b.stop_after = 5;
  EXPECT_EQ(run_training(parts, b, &b.stop).end, TrainEnd::kStopped);
  // As if it had been killed after its checkpoint of step 3.
  fs::remove_all(fs::path(parts.out) / "checkpoints/step-000005");
  parts.resume = true;
  run_training(parts, c);
  EXPECT_EQ(read_file(fs::path(parts.out) / "samples.jsonl"),
            read_file(fs::path(straight.out) / "samples.jsonl"));
}

TEST(Samples, OfBadPromptsAreRefusedBeforeAnythingIsWritten) {
  const TemporaryFolder folder;
  const auto refused = [&](const char* what, TrainOptions o) {
    Record record;
    const Error error = error_of([&] { run_training(o, record); });
    EXPECT_EQ(error.kind(), ErrorKind::kInput) << what;
    EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    EXPECT_FALSE(fs::exists(o.out));
  };
  TrainOptions o = sampled(folder, "out");
  o.sample_prompts = (folder.path() / "missing.txt").string();
  refused("missing.txt", o);
  o.sample_prompts = (folder.path() / "empty.txt").string();
  write_file(o.sample_prompts, "\n \n");
  refused("holds no prompt", o);
  write_file(o.sample_prompts, "\xff\n");
  refused("not UTF-8", o);
  std::string many;
  for (int i = 0; i < 64; ++i) many += "again\n";
  write_file(o.sample_prompts, many);
  refused("65 prompts", o);
  o.sample_prompts.clear();
  for (int i = 0; i < 2000; ++i) o.sample_prompt += " word";
  refused("tokens", o);
  o.sample_prompt.clear();
  refused("no prompt to answer", o);
}

}  // namespace
}  // namespace wgrad::train
