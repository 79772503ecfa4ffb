#include <fcntl.h>
#include <unistd.h>

#include "model/model.h"
#include "testing.h"
#include "train/synthetic.h"

namespace wgrad::cli {
namespace {

using namespace testing;
using ::testing::HasSubstr;

/// A model folder of a known shape whose weights take no room: a whole header, a hole for the data.
void make_model(const Workplace& place, const std::string& shape) {
  place.write("model/config.json", std::string(train::shape_json(shape)));
  nlohmann::ordered_json header;
  int64_t at = 0;
  for (const auto& tensor : model::checkpoint_tensors(train::shape_config(shape))) {
    int64_t bytes = 2;
    for (const int64_t n : tensor.shape) bytes *= n;
    header[tensor.name] = {
        {"dtype", "BF16"}, {"shape", tensor.shape}, {"data_offsets", {at, at + bytes}}};
    at += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  place.write("model/model.safetensors",
              std::string(reinterpret_cast<const char*>(&length), sizeof length) + text);
  ASSERT_EQ(::truncate(place.path("model/model.safetensors").c_str(),
                       static_cast<off_t>(8 + length) + at),
            0);
}

/// Rows that are all longer than any recipe's cut: the most memory that it can need.
void make_long_rows(const Workplace& place) {
  std::string words;
  for (int i = 0; i < 4000; ++i) words += "word ";
  std::string rows;
  for (int i = 0; i < 8; ++i) rows += nlohmann::json({{"text", words}}).dump() + "\n";
  place.write("long.jsonl", rows);
}

Arguments plan_of(const Workplace& place, const std::string& recipe, const Arguments& more) {
  Arguments all = {"train",
                   "--config",
                   (fs::path(WGRAD_SOURCE_DIR) / "examples" / recipe).string(),
                   "--model",
                   place.path("model"),
                   "--data",
                   place.path("long.jsonl"),
                   "--out",
                   place.path("out"),
                   "--plan",
                   "--json"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

struct Recipe {
  const char* file;
  const char* shape;
  const char* method;
  double gigabytes;
  int64_t tokens;  ///< of a full micro-batch
};

class RecipeOf : public ::testing::TestWithParam<Recipe> {};

TEST_P(RecipeOf, FitsTheMemoryThatItNames) {
  const Recipe& recipe = GetParam();
  const Workplace place;
  make_model(place, recipe.shape);
  make_long_rows(place);
  const std::string memory = std::to_string(static_cast<int>(recipe.gigabytes)) + "GB";
  EXPECT_THAT(read_file(fs::path(WGRAD_SOURCE_DIR) / "examples" / recipe.file),
              HasSubstr("--device-memory " + memory));
  const Outcome outcome = run_program(plan_of(place, recipe.file, {"--device-memory", memory}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::ordered_json plan = json_lines(outcome.out).at(0);
  EXPECT_EQ(plan.at("method"), recipe.method);
  EXPECT_EQ(plan.at("longest_micro_batch"), recipe.tokens);
  // What a driver, a screen and other programs take stays free.
  const double peak = plan.at("peak_memory_bytes");
  RecordProperty("peak_gigabytes", std::to_string(peak / 1e9));
  EXPECT_LE(peak, 0.85 * recipe.gigabytes * 1e9);
  EXPECT_GT(peak, 0.3 * recipe.gigabytes * 1e9);
  EXPECT_EQ(plan.at("available_memory_bytes"), recipe.gigabytes * 1e9);
  EXPECT_EQ(plan.at("seconds"), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Recipes, RecipeOf,
    ::testing::Values(Recipe{"lora-1b-8gb.yaml", "llama-3.2-1b", "lora", 8, 1024},
                      Recipe{"qlora-8b-12gb.yaml", "llama-3.1-8b", "qlora", 12, 1024},
                      Recipe{"full-135m.yaml", "smollm2-135m", "full", 6, 4 * 512}));

TEST(DeviceMemory, PlansForAGpuThatIsNotHere) {
  const Workplace place;
  make_model(place, "llama-3.2-1b");
  make_long_rows(place);
  const auto peak = [&](const Arguments& more) {
    Arguments all = {"--device-memory", "24GB"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = run_program(plan_of(place, "lora-1b-8gb.yaml", all));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return json_lines(outcome.out).at(0).at("peak_memory_bytes").get<double>();
  };
  // Without f16 matrix units auto is f32: twice the bytes for each of 1.2e9 weights.
  EXPECT_GT(peak({"--dtype", "auto"}), peak({}) + 2e9);
  const Outcome small = run_program(plan_of(place, "lora-1b-8gb.yaml", {"--device-memory", "2GB"}));
  EXPECT_EQ(small.code, 2);
  EXPECT_THAT(small.err, HasSubstr("GPU of 2.0 GB"));
  EXPECT_THAT(small.err, HasSubstr("--max-seq-len"));
}

TEST(DeviceMemory, IsForAPlanAlone) {
  const Workplace place;
  EXPECT_EQ(run_program(place.train({"--device-memory", "8GB"})).code, 2);
  EXPECT_EQ(run_program(place.train({"--plan", "--device-memory", "8GB"})).code, 2);  // on the CPU
  EXPECT_FALSE(fs::exists(place.path("out")));
}

}  // namespace
}  // namespace wgrad::cli
