#include <algorithm>
#include <array>
#include <cstring>

#include "testing.h"

namespace wgrad::cli {
namespace {

using namespace testing;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

/// The program refuses: the code, one line "error: ..." that says all of `words` and what to do,
/// nothing on standard output, and every file as it was.
void expect_refusal(const Workplace& place, const Arguments& arguments, const Words& words,
                    int code = 2, const ChildSetup& setup = {}) {
  const auto before = place.snapshot();
  const Outcome outcome = run_program(arguments, setup);
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  const size_t at = outcome.err.find("error: ");
  ASSERT_NE(at, std::string::npos) << outcome.err;
  const std::string error = outcome.err.substr(at);
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 1) << error;
  for (const std::string& word : words) EXPECT_THAT(error, HasSubstr(word));
  EXPECT_THAT(error, HasSubstr("; "));
  EXPECT_TRUE(place.snapshot() == before) << "files were changed";
}

void set_length(const Workplace& place, uint64_t length) {
  std::string file = read_file(place.root() / "model/model.safetensors");
  std::memcpy(file.data(), &length, sizeof length);
  place.write("model/model.safetensors", file);
}

constexpr const char* kEmbedding = "model.embed_tokens.weight";

TEST(BadModel, MissingFolder) {
  const Workplace place;
  expect_refusal(place, place.train({"--model", place.path("none")}), {place.path("none")});
}

TEST(BadModel, AFileThatIsNoModelByItsName) {
  const Workplace place;
  place.write("f.GGUF", "GGUF");
  for (const char* file : {"model/config.json", "model/model.safetensors", "f.GGUF"}) {
    expect_refusal(place, place.train({"--model", place.path(file)}),
                   {place.path(file), "give the folder", "ends in .gguf"});
  }
}

TEST(BadModel, MissingConfig) {
  const Workplace place;
  fs::remove(place.root() / "model/config.json");
  expect_refusal(place, place.train(), {"config.json"});
}

TEST(BadModel, WithFewerTokensThanItsTokenizer) {
  const Workplace place;
  const fs::path path = place.root() / "model/tokenizer.json";
  auto tokenizer = nlohmann::json::parse(read_file(path));
  tokenizer["model"]["vocab"]["beyond"] = 149;
  write_file(path, tokenizer.dump());
  place.write("train.jsonl", "{\"text\": \"w5 w6\"}\n\n{\"text\": \"w5 w6 beyond\"}\n");
  const Words words = {"train.jsonl:3", "149", "the model's vocabulary of 149", "tokenizer"};
  expect_refusal(place, place.train(), words);
  const Arguments eval = {
      "eval",     "--model", place.path("model"), "--data", place.path("train.jsonl"),
      "--device", "cpu"};
  expect_refusal(place, eval, words);
  EXPECT_EQ(run_program(place.train({"--skip-bad-rows", "--steps", "1"})).code, 0);
}

TEST(BadModel, MissingWeights) {
  const Workplace place;
  fs::remove(place.root() / "model/model.safetensors");
  expect_refusal(place, place.train(), {place.path("model"), "model.safetensors"});
}

TEST(BadModel, TruncatedWeights) {
  const Workplace place;
  for (const uintmax_t size : {0, 4, 8, 100, 60000}) {
    fs::resize_file(place.root() / "model/model.safetensors", size);
    expect_refusal(place, place.train(), {"model.safetensors"});
    fs::copy_file(fs::path(WGRAD_TEST_DATA) / "models/llama3/model.safetensors",
                  place.root() / "model/model.safetensors", fs::copy_options::overwrite_existing);
  }
}

TEST(BadModel, OversizedHeader) {
  const Workplace place;
  for (const uint64_t length : {uint64_t{1} << 20, uint64_t{1} << 40, UINT64_MAX}) {
    set_length(place, length);
    expect_refusal(place, place.train(), {"model.safetensors", "header"});
  }
}

TEST(BadModel, OverlappingTensors) {
  const Workplace place;
  place.edit_header([](nlohmann::json& h) {
    h["model.norm.weight"]["data_offsets"] =
        h["model.layers.0.input_layernorm.weight"]["data_offsets"];
  });
  expect_refusal(place, place.train(), {"model.safetensors", "overlap"});
}

TEST(BadModel, TensorOutsideItsFile) {
  const Workplace place;
  place.edit_header([](nlohmann::json& h) {
    h["model.norm.weight"]["data_offsets"] = {uint64_t{1} << 40, (uint64_t{1} << 40) + 128};
  });
  expect_refusal(place, place.train(), {"model.safetensors", "model.norm.weight"});
}

TEST(BadModel, TensorOfAnotherType) {
  const Workplace place;
  place.edit_header([](nlohmann::json& h) { h["model.norm.weight"]["dtype"] = "I32"; });
  expect_refusal(place, place.train(), {"model.safetensors", "model.norm.weight", "I32"});
  place.edit_header([](nlohmann::json& h) { h["model.norm.weight"]["dtype"] = "F6"; });
  expect_refusal(place, place.train(), {"model.safetensors", "model.norm.weight", "F6"});
}

TEST(BadModel, TensorOfAnotherShape) {
  const Workplace place;
  place.edit_header([](nlohmann::json& h) { h[kEmbedding]["shape"] = {32, 149}; });
  expect_refusal(place, place.train(), {"model.safetensors", kEmbedding, "149"});
  place.edit_header([](nlohmann::json& h) { h[kEmbedding]["shape"] = {149, -32}; });
  expect_refusal(place, place.train(), {"model.safetensors", kEmbedding});
}

TEST(BadModel, TensorOfAnotherName) {
  const Workplace place;
  place.edit_header([](nlohmann::json& h) {
    h["model.other.weight"] = h["model.norm.weight"];
    h.erase("model.norm.weight");
  });
  expect_refusal(place, place.train(), {place.path("model"), "model.other.weight"});
}

TEST(BadModel, MissingShard) {
  const Workplace place;
  fs::remove(place.root() / "model/model.safetensors");
  place.write(
      "model/model.safetensors.index.json",
      R"({"metadata": {}, "weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}})");
  expect_refusal(place, place.train(), {"model-00001-of-00002.safetensors"});
}

TEST(BadModel, IndexThatNamesAnAbsentTensor) {
  const Workplace place;
  fs::rename(place.root() / "model/model.safetensors",
             place.root() / "model/model-00001-of-00001.safetensors");
  place.write(
      "model/model.safetensors.index.json",
      R"({"metadata": {}, "weight_map": {"model.absent": "model-00001-of-00001.safetensors"}})");
  expect_refusal(place, place.train(), {"model.safetensors.index.json", "model.absent"});
}

TEST(BadModel, IndexThatPointsOutOfItsFolder) {
  const Workplace place;
  fs::rename(place.root() / "model/model.safetensors", place.root() / "weights.safetensors");
  place.write("model/model.safetensors.index.json",
              R"({"metadata": {}, "weight_map": {"model.norm.weight": "../weights.safetensors"}})");
  expect_refusal(place, place.train(), {"model.safetensors.index.json", "../weights.safetensors"});
}

TEST(BadModel, UnknownArchitecture) {
  const Workplace place;
  place.edit_config({{"model_type", "mamba"}});
  expect_refusal(place, place.train(), {"config.json", "mamba", "LlamaForCausalLM"});
}

TEST(BadModel, ConfigFieldsOfTheWrongType) {
  const Workplace place;
  const std::string config = read_file(place.root() / "model/config.json");
  const std::pair<const char*, nlohmann::json> wrong[] = {
      {"hidden_size", "many"},        {"hidden_size", -32},
      {"num_hidden_layers", 2.5},     {"num_attention_heads", true},
      {"vocab_size", 1e30},           {"rms_norm_eps", "small"},
      {"rope_theta", {1, 2}},         {"hidden_act", 7},
      {"tie_word_embeddings", "yes"}, {"model_type", 3},
      {"num_attention_heads", 0}};
  for (const auto& [field, value] : wrong) {
    place.write("model/config.json", config);
    place.edit_config({{field, value}});
    expect_refusal(place, place.train(), {"config.json", field});
  }
  place.write("model/config.json", "{\"model_type\": ");
  expect_refusal(place, place.train(), {"config.json:1:"});
  place.write("model/config.json", "[]");
  expect_refusal(place, place.train(), {"config.json"});
}

TEST(BadModel, DamagedTokenizer) {
  const Workplace place;
  const std::string whole = read_file(place.root() / "model/tokenizer.json");
  for (const std::string& text :
       {whole.substr(0, 700), std::string("{}"), std::string(), std::string("\xff\xfe")}) {
    place.write("model/tokenizer.json", text);
    expect_refusal(place, place.train(), {"tokenizer.json"});
  }
  fs::remove(place.root() / "model/tokenizer.json");
  expect_refusal(place, place.train(), {"tokenizer.json"});
}

constexpr const char* kChat =
    R"({"messages": [{"role": "user", "content": "w5"}, {"role": "assistant", "content": "w6"}]})";

TEST(BadModel, TemplateThatFails) {
  const Workplace place;
  place.write("train.jsonl", std::string(kChat) + "\n");
  place.set_template("{{ raise_exception('roles must alternate') }}");
  expect_refusal(place, place.train(), {"train.jsonl:1", "roles must alternate"});
  place.set_template("{{ no_such_function(messages) }}");
  expect_refusal(place, place.train(), {"train.jsonl:1", "no_such_function"});
  place.set_template("{% for m in messages %}{{ m.content }}");
  expect_refusal(place, place.train(), {"template"});
}

TEST(BadModel, NoTemplateForChatRows) {
  const Workplace place;
  place.write("train.jsonl", std::string(kChat) + "\n");
  expect_refusal(place, place.train(), {"train.jsonl:1", "template"});
}

TEST(BadModel, NoGgufFile) {
  const Workplace place;
  place.write("m.gguf", "GGUF");
  expect_refusal(place, place.train({"--model", place.path("m.gguf")}), {"m.gguf"});
  place.write("m.gguf", "NOPE and more bytes than a header has");
  expect_refusal(place, place.train({"--model", place.path("m.gguf")}), {"m.gguf"});
  fs::remove(place.root() / "m.gguf");
  expect_refusal(place, place.train({"--model", place.path("m.gguf")}), {"m.gguf"});
}

TEST(BadData, LinesThatAreNoRows) {
  const Workplace place;
  const std::string good = "{\"text\": \"w5 w6 w7\"}\n";
  const std::pair<std::string, Words> wrong[] = {
      {"{\"text\": \"w5\n", {"train.jsonl:2:"}},
      {"not json\n", {"train.jsonl:2:"}},
      {"{\"text\": \"w5 \xff\"}\n", {"train.jsonl:2:", "UTF-8"}},
      {"{\"messages\": [{\"role\": \"robot\", \"content\": \"w5\"}]}\n",
       {"train.jsonl:2", "robot"}},
      {"{\"messages\": [{\"content\": \"w5\"}]}\n", {"train.jsonl:2", "role"}},
      {"{\"messages\": []}\n", {"train.jsonl:2", "messages"}},
      {"{\"messages\": 5}\n", {"train.jsonl:2", "messages"}},
      {"{\"conversations\": [{\"from\": \"dog\", \"value\": \"w5\"}]}\n", {"train.jsonl:2", "dog"}},
      {"{\"prompt\": \"w5\"}\n", {"train.jsonl:2", "completion"}},
      {"{\"prompt\": 7, \"completion\": \"w5\"}\n", {"train.jsonl:2", "prompt"}},
      {"{\"text\": 5}\n", {"train.jsonl:2", "text"}},
      {"{\"other\": \"w5\"}\n", {"train.jsonl:2", "other"}},
      {"[1, 2]\n", {"train.jsonl:2"}},
      {"5\n", {"train.jsonl:2"}}};
  for (const auto& [line, words] : wrong) {
    SCOPED_TRACE(line);
    place.write("train.jsonl", good + line + good);
    expect_refusal(place, place.train(), words);
  }
}

TEST(BadData, EmptyStandardInput) {
  const Workplace place;
  const Outcome outcome = run_program(place.train({"--data", "-"}), {}, "\n");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("error: standard input: holds no rows"));
  EXPECT_THAT(outcome.err, HasSubstr("piped"));
}

TEST(BadOptions, NumbersOutOfRangeAreNamedShortly) {
  const Workplace place;
  const std::string model = place.path("model"), data = place.path("train.jsonl");
  const Arguments commands[] = {
      {"generate", "--model", model, "--prompt", "w5", "--temperature", "-1"},
      {"generate", "--model", model, "--prompt", "w5", "--max-tokens", "0"},
      {"data", "--model", model, "--data", data, "--limit", "-1"},
      {"info", "--model", model, "--rank", "0"},
      place.train({"--seed", "-1"})};
  for (const Arguments& command : commands) {
    const Outcome outcome = run_program(command);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(command[command.size() - 2]));
    EXPECT_THAT(outcome.err, HasSubstr("is no number from "));
    EXPECT_LT(outcome.err.size(), 150u) << outcome.err;
  }
}

TEST(BadOptions, FullFineTuningTakesNoneOfAnAdapter) {
  const Workplace place;
  const std::pair<const char*, const char*> options[] = {{"--rank", "4"},
                                                         {"--alpha", "8"},
                                                         {"--dropout", "0.1"},
                                                         {"--targets", "q_proj"},
                                                         {"--target-regex", "q_proj"},
                                                         {"--exclude-modules", "q_proj"},
                                                         {"--layers-to-transform", "0"},
                                                         {"--rank-pattern", "q_proj=2"},
                                                         {"--alpha-pattern", "q_proj=2"},
                                                         {"--modules-to-save", "norm"}};
  for (const auto& [name, value] : options) {
    expect_refusal(place, place.train({"--method", "full", "--rank", "16", name, value}),
                   {name, value, "trains no adapter"});
  }
}

TEST(BadOptions, AKeyGivenTwiceInAFile) {
  const Workplace place;
  place.write("run.yaml", "steps: 1\nlr: 0.1\nsteps: 2\n");
  expect_refusal(place, place.train({"--config", place.path("run.yaml")}),
                 {"run.yaml:3", "\"steps\" is given twice"});
}

TEST(BadOptions, ASoftwareAdapterNamedAsAGpu) {
  const Workplace place;
  const auto devices = nlohmann::json::parse(run_program({"devices", "--json"}).out);
  for (const auto& adapter : devices.at("adapters")) {
    if (adapter.at("type") != "software") continue;
    const std::string selector = "gpu:" + adapter.at("name").get<std::string>();
    expect_refusal(place, place.train({"--device", selector}), {selector, "--device software"});
    return;
  }
  GTEST_SKIP() << "this machine has no software adapter";
}

TEST(BadAdapter, WithPickledWeightsAlone) {
  const Workplace place;
  fs::copy(fs::path(WGRAD_TEST_DATA) / "models/llama3/adapter", place.root() / "adapter");
  fs::rename(place.root() / "adapter/adapter_model.safetensors",
             place.root() / "adapter/adapter_model.bin");
  expect_refusal(place,
                 {"eval", "--model", place.path("model"), "--data", place.path("train.jsonl"),
                  "--device", "cpu", "--adapter", place.path("adapter")},
                 {"adapter_model.bin", "adapter_model.safetensors", "save_pretrained"});
}

TEST(BadData, FilesWithoutRows) {
  const Workplace place;
  for (const char* text : {"", "\n\n"}) {
    place.write("train.jsonl", text);
    expect_refusal(place, place.train(), {"train.jsonl", "no rows"});
  }
  fs::remove(place.root() / "train.jsonl");
  expect_refusal(place, place.train(), {"train.jsonl"});
  fs::create_directory(place.root() / "folder");
  expect_refusal(place, place.train({"--data", place.path("folder")}), {"folder", "train.jsonl"});
  place.write("rows.json", "{\"text\": ");
  expect_refusal(place, place.train({"--data", place.path("rows.json")}), {"rows.json"});
}

TEST(BadData, RowLongerThanTheModel) {
  const Workplace place;
  std::string row = "{\"text\": \"";
  for (int i = 0; i < 130; ++i) row += "w5 ";
  place.write("train.jsonl", "{\"text\": \"w5 w6\"}\n" + row + "\"}\n");
  expect_refusal(place,
                 {"eval", "--model", place.path("model"), "--data", place.path("train.jsonl"),
                  "--device", "cpu"},
                 {"train.jsonl:2", "131 tokens", "--max-seq-len 128"});
}

TEST(BadData, RowsWithNothingToTrainOn) {
  const Workplace place;
  place.write("cut.jsonl", "{\"prompt\": \"w5 w6 w7 w8\", \"completion\": \" w9\"}\n");
  expect_refusal(place, place.train({"--data", place.path("cut.jsonl"), "--max-seq-len", "3"}),
                 {"cut.jsonl", "train on", "--max-seq-len"});
}

TEST(BadOption, RankOutsideTheLayers) {
  const Workplace place;
  expect_refusal(place, place.train({"--rank", "0"}), {"rank", "0"});
  expect_refusal(place, place.train({"--rank", "-1"}), {"rank", "-1"});
  expect_refusal(place, place.train({"--rank", "17"}), {"rank", "17", "16"});
  expect_refusal(place, place.train({"--rank", "99999999999999999999"}), {"rank"});
}

TEST(BadOption, NumbersThatAreNone) {
  const Workplace place;
  const std::pair<const char*, const char*> wrong[] = {
      {"--lr", "fast"},        {"--lr", "nan"},        {"--lr", "inf"},
      {"--lr", "-1"},          {"--lr", "1e-3x"},      {"--batch-size", "0"},
      {"--batch-size", "2.5"}, {"--epochs", "0"},      {"--epochs", "nan"},
      {"--steps", "-5"},       {"--dropout", "1"},     {"--beta1", "1"},
      {"--warmup-ratio", "2"}, {"--max-seq-len", "1"}, {"--keep", "0"},
      {"--alpha", "0"},        {"--grad-accum", "0"},  {"--seed", "-1"},
      {"--eps", "0"},          {"--log-every", "0"},   {"--max-grad-norm", "-1"}};
  for (const auto& [option, value] : wrong) {
    SCOPED_TRACE(std::string(option) + " " + value);
    expect_refusal(place, place.train({option, value}), {option});
  }
}

TEST(BadOption, NumbersPastTheirLimitAreToldIt) {
  const Workplace place;
  const std::array<const char*, 3> wrong[] = {
      {"--eps", "1.5", "from 1e-30 to 1;"},     {"--beta1", "1", "from 0 to 0.9999999;"},
      {"--beta2", "2", "from 0 to 0.9999999;"}, {"--lr", "10000000", "from 0 to 1000000;"},
      {"--dropout", "1", "from 0 to 0.999;"},   {"--keep", "0", "from 1 to 2147483647;"}};
  for (const auto& [option, value, limit] : wrong) {
    expect_refusal(place, place.train({option, value}), {option, value, limit});
  }
}

TEST(BadOption, WordsThatAreUnknown) {
  const Workplace place;
  expect_refusal(place, place.train({"--method", "dora"}), {"--method", "lora"});
  expect_refusal(place, place.train({"--schedule", "step"}), {"--schedule", "cosine"});
  expect_refusal(place, place.train({"--dtype", "bf16"}), {"--dtype", "f16"});
  expect_refusal(place, place.train({"--targets", "q_proj,nonsense"}),
                 {"targets", "nonsense", "q_proj"});
  expect_refusal(place, place.train({"--targets", ""}), {"targets"});
  expect_refusal(place, place.train({"--no-such-option"}), {"--no-such-option", "--help"});
  expect_refusal(place, {"fine-tune"}, {"fine-tune"});
  expect_refusal(place, {}, {"--help"});
  expect_refusal(place, {"train"}, {"--model"});
}

TEST(BadOption, NoRowsToEvaluateOn) {
  const Workplace place;
  expect_refusal(place, place.train({"--eval-every", "2"}), {"--eval-every", "--eval-data"});
  expect_refusal(place, place.train({"--eval-data", place.path("none.jsonl")}), {"none.jsonl"});
}

TEST(BadDevice, NoSuchAdapter) {
  const Workplace place;
  expect_refusal(place, place.train({"--device", "gpu:no such card"}), {"no such card", "devices"});
  expect_refusal(place, place.train({"--device", "tpu"}), {"--device", "tpu", "cpu"});
  expect_refusal(place, place.train({"--dtype", "f16"}), {"--dtype f16", "CPU"});
}

TEST(BadDevice, NoneAtAll) {
  const Workplace place;
  const ChildSetup without_drivers = [] {
    for (const char* list : {"VK_DRIVER_FILES", "VK_ICD_FILENAMES"}) setenv(list, "/none", 1);
  };
  for (const char* device : {"gpu", "software"}) {
    expect_refusal(place, place.train({"--device", device}),
                   {std::string("--device ") + device, "--device cpu"}, 2, without_drivers);
  }
}

TEST(BadAdapter, OfAnotherModelOrDamaged) {
  const Workplace place;
  const std::string other = fs::path(WGRAD_TEST_DATA) / "models/qwen2/adapter";
  const Words words = {"adapter_model.safetensors"};
  const Arguments train = {
      "train", "--model",         place.path("model"), "--data", place.path("train.jsonl"),
      "--out", place.path("out"), "--device",          "cpu",    "--init-adapter"};
  Arguments with = train;
  with.push_back(other);
  expect_refusal(place, with, words);
  expect_refusal(place,
                 {"eval", "--model", place.path("model"), "--adapter", other, "--data",
                  place.path("train.jsonl"), "--device", "cpu"},
                 words);
  expect_refusal(
      place,
      {"merge", "--model", place.path("model"), "--adapter", other, "--out", place.path("merged")},
      words);
  expect_refusal(place,
                 {"generate", "--model", place.path("model"), "--adapter", place.path("none"),
                  "--prompt", "w5", "--raw", "--device", "cpu"},
                 {place.path("none")});
  fs::copy(fs::path(WGRAD_TEST_DATA) / "models/llama3/adapter", place.root() / "adapter");
  place.write("adapter/adapter_config.json", "{\"peft_type\": \"IA3\"}");
  with.back() = place.path("adapter");
  expect_refusal(place, with, {"adapter_config.json", "IA3"});
}

TEST(BadAdapter, OptionsThatContradictIt) {
  const Workplace place;
  const std::string adapter = fs::path(WGRAD_TEST_DATA) / "models/llama3/adapter";  // of rank 3
  expect_refusal(place, place.train({"--init-adapter", adapter}), {"--rank", adapter});
}

}  // namespace
}  // namespace wgrad::cli
