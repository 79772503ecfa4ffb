#include <cmath>

#include "io/safetensors.h"
#include "testing.h"

namespace wgrad::cli {
namespace {

using namespace testing;
using ::testing::HasSubstr;

/// A PEFT adapter on v_proj (16 x 32) whose rank is larger than the layer, which PEFT allows.
std::string wide_adapter(const Workplace& place) {
  constexpr int64_t kRank = 40, kInputs = 32, kOutputs = 16;
  const fs::path folder = place.root() / "wide";
  fs::create_directory(folder);
  write_file(folder / "adapter_config.json",
             R"({"peft_type": "LORA", "r": 40, "lora_alpha": 40, "target_modules": ["v_proj"]})");
  std::vector<io::TensorToWrite> tensors;
  auto add = [&](const std::string& name, int64_t rows, int64_t columns) {
    tensors.push_back({name, io::FileType::kF32, {rows, columns}, [=](const io::ByteSink& sink) {
                         std::vector<float> values;
                         for (int64_t i = 0; i < rows * columns; ++i) {
                           values.push_back(0.1f * std::sin(static_cast<float>(i * i)));
                         }
                         sink(std::as_bytes(std::span<const float>(values)));
                       }});
  };
  for (const char* layer : {"0", "1", "2"}) {
    const std::string module =
        std::string("base_model.model.model.layers.") + layer + ".self_attn.v_proj";
    add(module + ".lora_A.weight", kRank, kInputs);
    add(module + ".lora_B.weight", kOutputs, kRank);
  }
  io::write_safetensors(folder / "adapter_model.safetensors", std::move(tensors));
  return folder;
}

double loss(const Workplace& place, const Arguments& model) {
  Arguments command = {"eval", "--data", place.path("train.jsonl"), "--device", "cpu", "--json"};
  command.insert(command.end(), model.begin(), model.end());
  const Outcome outcome = run_program(command);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return nlohmann::json::parse(outcome.out).at("loss");
}

TEST(WideAdapter, EvaluatesGeneratesAndMerges) {
  const Workplace place;
  const std::string wide = wide_adapter(place);
  const Outcome merge = run_program(
      {"merge", "--model", place.path("model"), "--adapter", wide, "--out", place.path("merged")});
  ASSERT_EQ(merge.code, 0) << merge.err;
  const double plain = loss(place, {"--model", place.path("model")});
  const double adapted = loss(place, {"--model", place.path("model"), "--adapter", wide});
  const double merged = loss(place, {"--model", place.path("merged")});
  EXPECT_GT(std::abs(adapted - plain), 1e-3);
  EXPECT_NEAR(merged, adapted, 1e-5 * adapted);
  const Outcome generate =
      run_program({"generate", "--model", place.path("model"), "--adapter", wide, "--prompt", "w5",
                   "--raw", "--max-tokens", "2", "--device", "cpu"});
  EXPECT_EQ(generate.code, 0) << generate.err;
}

TEST(WideAdapter, IsTrainedFurtherButNotBegunAnew) {
  const Workplace place;
  const Arguments train = {
      "train",    "--model", place.path("model"), "--data", place.path("train.jsonl"),
      "--device", "cpu",     "--steps",           "2"};
  Arguments further = train;
  for (const std::string& word : {std::string("--init-adapter"), wide_adapter(place),
                                  std::string("--out"), place.path("a")}) {
    further.push_back(word);
  }
  const Outcome trained = run_program(further);
  EXPECT_EQ(trained.code, 0) << trained.err;
  loss(place, {"--model", place.path("model"), "--adapter", place.path("a")});
  Arguments anew = train;
  for (const std::string& word :
       {std::string("--rank"), std::string("40"), std::string("--targets"), std::string("v_proj"),
        std::string("--out"), place.path("b")}) {
    anew.push_back(word);
  }
  const Outcome refused = run_program(anew);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("error: rank: 40; at most 16"));
  EXPECT_FALSE(fs::exists(place.root() / "b"));
}

}  // namespace
}  // namespace wgrad::cli
