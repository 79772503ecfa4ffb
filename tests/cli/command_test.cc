#include <cmath>

#include "testing.h"

namespace wgrad::cli {
namespace {

using namespace testing;
using ::testing::HasSubstr;

const Workplace& place() {
  static const Workplace workplace;
  return workplace;
}

std::string adapter() { return fs::path(WGRAD_TEST_DATA) / "models/llama3/adapter"; }

/// The one JSON object that a command prints.
nlohmann::ordered_json json_of(const Arguments& arguments, const std::string& input = {}) {
  const Outcome outcome = run_program(arguments, {}, input);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto lines = json_lines(outcome.out);
  EXPECT_EQ(lines.size(), 1u) << outcome.out;
  return lines.at(0);
}

std::vector<std::string> keys(const nlohmann::ordered_json& object) {
  std::vector<std::string> names;
  for (const auto& [key, value] : object.items()) names.push_back(key);
  return names;
}

TEST(Help, IsThereForEveryCommand) {
  const Arguments commands[] = {{},
                                {"train"},
                                {"eval"},
                                {"data"},
                                {"generate"},
                                {"chat"},
                                {"merge"},
                                {"report"},
                                {"completion"},
                                {"manual"},
                                {"verify"},
                                {"devices"},
                                {"info"},
                                {"bench"},
                                {"kernels"},
                                {"kernels", "export"}};
  for (Arguments command : commands) {
    command.push_back("--help");
    const Outcome outcome = run_program(command);
    EXPECT_EQ(outcome.code, 0) << command[0];
    EXPECT_THAT(outcome.out, HasSubstr("--help")) << command[0];
    EXPECT_EQ(outcome.err, "") << command[0];
  }
  EXPECT_THAT(run_program({"--version"}).out, ::testing::StartsWith("wgrad "));
}

TEST(Help, OfTrainNamesEveryOptionOfTheContract) {
  const std::string help = run_program({"train", "--help"}).out;
  for (const char* option :
       {"--model",        "--data",         "--out",           "--method",
        "--rank",         "--alpha",        "--dropout",       "--targets",
        "--rslora",       "--init-adapter", "--batch-size",    "--grad-accum",
        "--max-seq-len",  "--epochs",       "--steps",         "--lr",
        "--schedule",     "--warmup-steps", "--warmup-ratio",  "--weight-decay",
        "--beta1",        "--beta2",        "--eps",           "--max-grad-norm",
        "--seed",         "--no-shuffle",   "--packing",       "--no-packing",
        "--prompt-style", "--train-on",     "--skip-bad-rows", "--dtype",
        "--recompute",    "--eval-data",    "--eval-every",    "--save-every",
        "--keep",         "--resume",       "--log-every",     "--device",
        "--plan",         "--dry-run",      "--report",        "--config"}) {
    EXPECT_THAT(help, HasSubstr(option));
  }
}

TEST(Eval, PrintsLossAndPerplexity) {
  const auto json = json_of({"eval", "--model", place().path("model"), "--adapter", adapter(),
                             "--data", place().path("train.jsonl"), "--device", "cpu", "--json"});
  EXPECT_EQ(keys(json), (std::vector<std::string>{"loss", "perplexity", "tokens", "rows"}));
  EXPECT_EQ(json["rows"], 40);
  EXPECT_DOUBLE_EQ(json["perplexity"], std::exp(json["loss"].get<double>()));
}

TEST(Eval, PrintsALineARowFirst) {
  const Outcome outcome =
      run_program({"eval", "--model", place().path("model"), "--data", place().path("train.jsonl"),
                   "--device", "cpu", "--per-row", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto lines = json_lines(outcome.out);
  ASSERT_EQ(lines.size(), 41u);
  double sum = 0;
  int64_t tokens = 0;
  for (size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(keys(lines[i]), (std::vector<std::string>{"row", "loss", "tokens"}));
    EXPECT_EQ(lines[i]["row"], i);
    sum += lines[i]["loss"].get<double>() * lines[i]["tokens"].get<double>();
    tokens += lines[i]["tokens"].get<int64_t>();
  }
  EXPECT_EQ(lines[40]["tokens"], tokens);
  const double loss = lines[40]["loss"];
  EXPECT_NEAR(loss, sum / static_cast<double>(tokens), 1e-12 * loss);
}

TEST(Eval, ARowWithoutCountedTokensHasNoLossAndIsNoRowOfTheResult) {
  Arguments cut = {"eval",     "--model", place().path("model"), "--data", "-",
                   "--device", "cpu",     "--max-seq-len",       "3",      "--json"};
  const std::string mixed =
      "{\"text\": \"w5 w6\"}\n{\"prompt\": \"w5 w6 w7 w8\", \"completion\": \"w9\"}\n";
  const auto whole = json_lines(run_program(cut, {}, mixed).out).back();
  cut.push_back("--per-row");
  const Outcome outcome = run_program(cut, {}, mixed);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto lines = json_lines(outcome.out);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_TRUE(lines[0]["loss"].is_number());
  EXPECT_TRUE(lines[1]["loss"].is_null());
  EXPECT_EQ(lines[1]["tokens"], 0);
  EXPECT_EQ(lines[2], whole);
  EXPECT_EQ(whole["rows"], 1);
  EXPECT_THAT(outcome.err, HasSubstr("1 row would be skipped"));
  EXPECT_THAT(outcome.err, HasSubstr("1 of 2 rows cut"));
}

TEST(Eval, UsesTheValidationFileOfAFolder) {
  const Workplace here;
  fs::create_directory(here.root() / "rows");
  here.write("rows/valid.jsonl", "{\"text\": \"w5 w6\"}\n");
  const Outcome outcome = run_program({"eval", "--model", here.path("model"), "--data",
                                       here.path("rows"), "--device", "cpu", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(json_lines(outcome.out).back()["rows"], 1);
}

TEST(Train, TrimsBlanksInAListOfNames) {
  const Workplace here;
  const Outcome outcome =
      run_program(here.train({"--targets", " q_proj,\tv_proj ,", "--steps", "1"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(read_file(here.root() / "out/run.yaml"), HasSubstr("targets: q_proj,v_proj\n"));
}

TEST(Data, PrintsIdsAndLabels) {
  const std::string rows =
      "{\"prompt\": \"w5 w6\", \"completion\": \" w7\"}\n{\"text\": \"w8 w9\"}\n";
  const Arguments command = {"data", "--model", place().path("model"), "--data", "-", "--json"};
  const Outcome outcome = run_program(command, {}, rows);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto lines = json_lines(outcome.out);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].dump(), R"({"ids":[5,6,7,2],"labels":[-100,-100,7,2]})");
  EXPECT_EQ(lines[1].dump(), R"({"ids":[8,9,2],"labels":[-100,9,2]})");
  Arguments all = command;
  all.insert(all.end(), {"--train-on", "all", "--limit", "1"});
  EXPECT_EQ(json_of(all, rows).dump(), R"({"ids":[5,6,7,2],"labels":[-100,6,7,2]})");
  Arguments one = command;
  one.insert(one.end(), {"--limit", "1", "--max-seq-len", "3"});
  EXPECT_EQ(json_of(one, rows).dump(), R"({"ids":[5,6,7],"labels":[-100,-100,7]})");
}

TEST(Data, MarksTheCountedPart) {
  const Outcome outcome = run_program({"data", "--model", place().path("model"), "--data", "-"}, {},
                                      "{\"prompt\": \"w5 w6\", \"completion\": \" w7\"}\n");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("w5 w6"));
  EXPECT_THAT(outcome.out, HasSubstr("«"));
}

TEST(Generate, PrintsIdsAndText) {
  const Arguments command = {
      "generate",     "--model", place().path("model"), "--prompt", "w5 w6",    "--raw",
      "--max-tokens", "5",       "--temperature",       "0",        "--device", "cpu",
      "--json"};
  const auto json = json_of(command);
  EXPECT_EQ(keys(json), (std::vector<std::string>{"ids", "text"}));
  EXPECT_LE(json["ids"].size(), 5u);
  EXPECT_EQ(json_of(command), json);
}

TEST(Merge, WritesAFolderThatEvaluatesLikeTheAdapter) {
  const Workplace here;
  const Outcome outcome = run_program({"merge", "--model", here.path("model"), "--adapter",
                                       adapter(), "--out", here.path("merged")});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  auto loss = [&](const Arguments& model) {
    Arguments command = {"eval", "--data", here.path("train.jsonl"), "--device", "cpu", "--json"};
    command.insert(command.end(), model.begin(), model.end());
    return json_of(command)["loss"].get<double>();
  };
  const double merged = loss({"--model", here.path("merged")});
  EXPECT_NEAR(merged, loss({"--model", here.path("model"), "--adapter", adapter()}), 1e-5 * merged);
}

TEST(Info, DescribesAModel) {
  const auto json = json_of({"info", "--model", place().path("model"), "--json"});
  EXPECT_EQ(json["model_type"], "llama");
  EXPECT_EQ(json["layers"], 3);
  EXPECT_EQ(json["chat_template"], false);
  EXPECT_THAT(run_program({"info", "--model", place().path("model")}).out, HasSubstr("LoRA"));
  const auto planned = [](const std::string& method) {
    const auto plan = json_of(place().train({"--plan", "--json", "--method", method, "--device",
                                             "auto", "--device-memory", "1GB", "--dtype", "f32"}));
    return plan["memory_by_part"]["weights"];
  };
  EXPECT_EQ(json["weight_bytes"]["f32"], planned("lora"));
  EXPECT_EQ(json["weight_bytes"]["nf4"], planned("qlora"));
}

TEST(Devices, AreListed) {
  const auto json = json_of({"devices", "--json"});
  EXPECT_TRUE(json.contains("auto"));
  EXPECT_TRUE(json["adapters"].is_array());
}

TEST(Train, PrintsItsResultAsJson) {
  const Workplace here;
  const auto json = json_of(here.train({"--steps", "2", "--json"}));
  EXPECT_EQ(json["finished"], true);
  EXPECT_EQ(json["steps"], 2);
  EXPECT_TRUE(fs::exists(here.root() / "out/adapter_config.json"));
  const auto config = nlohmann::json::parse(read_file(here.root() / "out/adapter_config.json"));
  EXPECT_EQ(config["r"], 4);
  EXPECT_EQ(config["base_model_name_or_path"], here.path("model"));
}

TEST(Train, ReadsStandardInput) {
  const Workplace here;
  const auto json = json_of(here.train({"--data", "-", "--steps", "1", "--json"}),
                            read_file(here.root() / "train.jsonl"));
  EXPECT_EQ(json["steps"], 1);
}

TEST(Train, OfAWholeModelWritesOneThatLoads) {
  const Workplace here;
  const auto json =
      json_of(here.train({"--method", "full", "--rank", "16", "--steps", "2", "--json"}));
  EXPECT_EQ(json["finished"], true);
  EXPECT_FALSE(fs::exists(here.root() / "out/adapter_config.json"));
  EXPECT_GT(json_of({"eval", "--model", here.path("out"), "--data", here.path("train.jsonl"),
                     "--device", "cpu", "--json"})["loss"],
            0);
}

TEST(Train, PlanAndDryRunWriteNothing) {
  const Workplace here;
  const auto before = here.snapshot();
  const auto plan = json_of(here.train({"--plan", "--json"}));
  EXPECT_GT(plan["peak_memory_bytes"], 0);
  const auto dry = json_of(here.train({"--dry-run", "--json"}));
  ASSERT_EQ(dry["first_rows"].size(), 3u);
  EXPECT_THAT(dry["first_rows"][0]["text"].get<std::string>(), HasSubstr("«"));
  const Outcome text = run_program(here.train({"--dry-run"}));
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.out, HasSubstr("«"));
  EXPECT_THAT(text.out, HasSubstr("memory"));
  EXPECT_TRUE(here.snapshot() == before);
}

TEST(Train, BadRowsCanBeSkipped) {
  const Workplace here;
  here.write("train.jsonl", "{\"text\": \"w5 w6\"}\nbroken\n{\"text\": \"w7 w8\"}\n");
  const Outcome outcome = run_program(here.train({"--skip-bad-rows"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("warning: 1 bad row skipped"));
  EXPECT_THAT(outcome.err, HasSubstr("train.jsonl:2:1"));
}

TEST(Train, WritesAReport) {
  const Workplace here;
  const auto json = json_of(
      here.train({"--steps", "3", "--report", "--json", "--eval-data", here.path("train.jsonl")}));
  const std::string html = read_file(here.root() / "out/report.html");
  EXPECT_THAT(html, HasSubstr("id=\"loss\""));
  EXPECT_THAT(html, HasSubstr("evaluation"));
  EXPECT_THAT(html, HasSubstr(here.path("model")));
}

TEST(Config, CommandLineWinsOverTheFile) {
  const Workplace here;
  here.write("run.yaml",
             "steps: 2\nrank: 3\nshuffle: false\ntargets: [q_proj, v_proj]\nlr: 1e-3\n");
  const Outcome outcome = run_program(
      {"train", "--config", here.path("run.yaml"), "--model", here.path("model"), "--data",
       here.path("train.jsonl"), "--out", here.path("out"), "--device", "cpu", "--steps", "1"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string used = read_file(here.root() / "out/run.yaml");
  for (const char* line : {"steps: 1\n", "rank: 3\n", "shuffle: false\n", "lr: 0.001\n"}) {
    EXPECT_THAT(used, HasSubstr(line));
  }
  const auto config = nlohmann::json::parse(read_file(here.root() / "out/adapter_config.json"));
  EXPECT_EQ(config["target_modules"], (nlohmann::json{"q_proj", "v_proj"}));
}

/// Names that people know from other trainers, and what their error must name.
const std::pair<const char*, const char*> kForeignNames[] = {
    {"learning_rate", "\"lr\""},
    {"learning-rate", "\"lr\""},
    {"num_train_epochs", "\"epochs\""},
    {"max_steps", "\"steps\""},
    {"per_device_train_batch_size", "\"batch-size\""},
    {"gradient_accumulation_steps", "\"grad-accum\""},
    {"warmup_steps", "\"warmup-steps\""},
    {"lr_scheduler_type", "\"schedule\""},
    {"adam_beta1", "\"beta1\""},
    {"r", "\"rank\""},
    {"lora_alpha", "\"alpha\""},
    {"lora_dropout", "\"dropout\""},
    {"target_modules", "\"targets\""},
    {"use_dora", "\"dora\""},
    {"modules_to_save", "\"modules-to-save\""},
    {"max_seq_length", "\"max-seq-len\""},
    {"load_in_4bit", "\"method\" with the value qlora"},
    {"gradient_checkpointing", "\"recompute\" with the value block"},
    {"use_gradient_checkpointing", "\"recompute\" with the value block"},
    {"model_name_or_path", "\"model\""},
    {"dataset_name", "\"data\""},
    {"output_dir", "\"out\""},
    {"resume_from_checkpoint", "\"resume\""},
    {"random_state", "\"seed\""},
    {"logging_steps", "\"log-every\""},
    {"eval_steps", "\"eval-every\""},
    {"save_steps", "\"save-every\""},
    {"save_total_limit", "\"keep\""},
    {"iters", "\"steps\""},
    {"LORA_R", "\"rank\""},
    {"lerning-rate", "\"warmup-ratio\""},
    {"bacth-size", "\"batch-size\""}};

TEST(Config, NamesOfOtherTrainersAreTranslated) {
  const Workplace here;
  for (const auto& [name, meant] : kForeignNames) {
    here.write("run.yaml", std::string(name) + ": 1\n");
    const Outcome outcome = run_program(here.train({"--config", here.path("run.yaml")}));
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err, HasSubstr("run.yaml:1: unknown key \"" + std::string(name) + "\""));
    EXPECT_THAT(outcome.err, HasSubstr(meant)) << name;
  }
}

TEST(CommandLine, NamesOfOtherTrainersAreTranslated) {
  const Workplace here;
  for (const auto& [name, meant] : kForeignNames) {
    const std::string option = (std::string(name) == "r" ? "-" : "--") + std::string(name);
    for (const Arguments& given : {Arguments{option, "1"}, Arguments{option + "=1"}}) {
      const Outcome outcome = run_program(here.train(given));
      EXPECT_EQ(outcome.code, 2);
      EXPECT_THAT(outcome.err, HasSubstr("wgrad train: unknown option \"" + option + "\""));
      EXPECT_THAT(outcome.err, HasSubstr(meant)) << name;
    }
  }
  const Outcome answer = run_program({"generate", "--max_new_tokens", "5"});
  EXPECT_THAT(answer.err, HasSubstr("\"max-tokens\""));
}

TEST(CommandLine, AListGivenInPartsIsTheWholeList) {
  const Workplace here;
  here.write("a.jsonl", "{\"text\": \"w5 w6\"}\n");
  here.write("b.jsonl", "{\"text\": \"w7 w8 w9\"}\n{\"text\": \"w5\"}\n");
  const std::string a = here.path("a.jsonl"), b = here.path("b.jsonl"), both = a + "," + b;
  const Arguments rows = {"data", "--model", here.path("model"), "--json"};
  const auto with = [](Arguments arguments, const Arguments& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  const Outcome together = run_program(with(rows, {"--data", both}));
  EXPECT_EQ(json_lines(together.out).size(), 3u);
  EXPECT_EQ(run_program(with(rows, {"--data", a, "--data=" + b})).out, together.out);
  const auto loss = [&](const Arguments& data) {
    return json_of(
        with({"eval", "--model", here.path("model"), "--device", "cpu", "--json"}, data));
  };
  EXPECT_EQ(loss({"--data", a, "--data", b}), loss({"--data", both}));

  const std::string start =
      "model: " + here.path("model") + "\nout: " + here.path("out") + "\nsteps: 1\ndevice: cpu\n";
  here.write("run.yaml", start + "data: [" + a + "]\ntargets: [q_proj]\n");
  const Outcome outcome = run_program({"train", "--config", here.path("run.yaml"), "--data", b,
                                       "--data", a, "--targets", "v_proj", "--targets",
                                       "k_proj,o_proj", "--eval-data", a, "--eval-data", b});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string used = read_file(here.root() / "out/run.yaml");
  EXPECT_THAT(used, HasSubstr("data: \"" + b + "," + a + "\"\n"));
  EXPECT_THAT(used, HasSubstr("eval-data: \"" + both + "\"\n"));
  EXPECT_THAT(used, HasSubstr("targets: v_proj,k_proj,o_proj\n"));
}

TEST(Config, IsRefusedWhereItIsWrong) {
  const Workplace here;
  const std::pair<const char*, std::vector<std::string>> wrong[] = {
      {"steps: 1\nbatch_size: 2\n", {"run.yaml:2", "batch_size", "\"batch-size\""}},
      {"learning-rat: 2\n", {"run.yaml:1", "learning-rat"}},
      {"steps: {a: 1}\n", {"run.yaml:1", "map"}},
      {"targets: [[q_proj]]\n", {"run.yaml:1", "list"}},
      {"steps: [1\n", {"run.yaml:"}},
      {"just words\n", {"run.yaml", "map"}},
      {"steps: many\n", {"--steps", "many"}},
      {"config: other.yaml\n", {"run.yaml:1", "config"}}};
  for (const auto& [text, words] : wrong) {
    here.write("run.yaml", text);
    const Outcome outcome = run_program(here.train({"--config", here.path("run.yaml")}));
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    for (const std::string& word : words) EXPECT_THAT(outcome.err, HasSubstr(word));
    EXPECT_FALSE(fs::exists(here.root() / "out"));
  }
  for (const Arguments& empty : {Arguments{"--config="}, Arguments{"--config", ""}}) {
    const Outcome outcome = run_program(here.train(empty));
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err, HasSubstr("error: --config: names no file"));
  }
  here.write("run.yaml", "steps: 1\n");
  const std::string file = here.path("run.yaml");
  const Outcome twice = run_program(here.train({"--config", file, "--config=" + file}));
  EXPECT_EQ(twice.code, 2);
  EXPECT_THAT(twice.err, HasSubstr("error: --config: given twice"));
  const Outcome missing = run_program(here.train({"--config", here.path("none.yaml")}));
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.err, HasSubstr("none.yaml"));
}

}  // namespace
}  // namespace wgrad::cli
