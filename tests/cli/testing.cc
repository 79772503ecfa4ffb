#include "testing.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

namespace wgrad::cli::testing {
namespace {

constexpr unsigned kSecondsBeforeAChildIsEnded = 300;

fs::path make_folder() {
  std::string name = (fs::temp_directory_path() / "wgrad-cli-XXXXXX").string();
  return mkdtemp(name.data());
}

}  // namespace

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::vector<nlohmann::ordered_json> json_lines(const std::string& text) {
  std::vector<nlohmann::ordered_json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(nlohmann::ordered_json::parse(line));
  }
  return lines;
}

Child::Child(const Arguments& arguments, const ChildSetup& setup, const std::string& input)
    : folder_(make_folder()) {
  write_file(folder_ / "in", input);
  std::vector<std::string> words = {WGRAD_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string in = folder_ / "in", out = folder_ / "out", err = folder_ / "err";
  // Models of a few thousand weights are faster on one thread.
  setenv("OMP_NUM_THREADS", "1", 1);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(open(in.c_str(), O_RDONLY), STDIN_FILENO);
    dup2(open(out.c_str(), O_CREAT | O_WRONLY, 0600), STDOUT_FILENO);
    dup2(open(err.c_str(), O_CREAT | O_WRONLY, 0600), STDERR_FILENO);
    alarm(kSecondsBeforeAChildIsEnded);
    if (setup) setup();
    execv(argv[0], argv.data());
    _exit(127);
  }
}

Child::~Child() {
  if (!reaped_ && pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, &status_, 0);
  }
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

void Child::signal(int number) const {
  if (!reaped_) kill(pid_, number);
}

bool Child::ended() {
  if (!reaped_) reaped_ = waitpid(pid_, &status_, WNOHANG) == pid_;
  return reaped_;
}

Outcome Child::wait() {
  if (!reaped_) reaped_ = waitpid(pid_, &status_, 0) == pid_;
  Outcome outcome;
  outcome.code = WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_);
  outcome.out = read_file(folder_ / "out");
  outcome.err = read_file(folder_ / "err");
  return outcome;
}

Outcome run_program(const Arguments& arguments, const ChildSetup& setup, const std::string& input) {
  return Child(arguments, setup, input).wait();
}

Workplace::Workplace(const std::string& model) : root_(make_folder()) {
  const fs::path models = fs::path(WGRAD_TEST_DATA) / "models";
  fs::create_directory(root_ / "model");
  for (const char* name :
       {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}) {
    fs::copy_file(models / model / name, root_ / "model" / name);
  }
  fs::copy_file(models / "runs" / "lora_llama3" / "train.jsonl", root_ / "train.jsonl");
}

Workplace::~Workplace() {
  std::error_code ignored;
  fs::remove_all(root_, ignored);
}

void Workplace::edit_config(const nlohmann::json& changes) const {
  const fs::path path = root_ / "model" / "config.json";
  nlohmann::json config = nlohmann::json::parse(read_file(path));
  config.merge_patch(changes);
  write_file(path, config.dump(1));
}

void Workplace::set_template(const std::string& source) const {
  const fs::path path = root_ / "model" / "tokenizer_config.json";
  nlohmann::json config = nlohmann::json::parse(read_file(path));
  config["chat_template"] = source;
  write_file(path, config.dump(1));
}

void Workplace::edit_header(const std::function<void(nlohmann::json&)>& change) const {
  const fs::path path = root_ / "model" / "model.safetensors";
  const std::string file = read_file(path);
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  nlohmann::json header = nlohmann::json::parse(file.substr(8, length));
  const std::string data = file.substr(8 + length);
  change(header);
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  length = text.size();
  write_file(path,
             std::string(reinterpret_cast<const char*>(&length), sizeof length) + text + data);
}

Arguments Workplace::train(const Arguments& more) const {
  Arguments all = {"train",    "--model", path("model"), "--out", path("out"),
                   "--device", "cpu",     "--rank",      "4"};
  if (std::ranges::count(more, "--data") == 0) {
    all.insert(all.end(), {"--data", path("train.jsonl")});
  }
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::map<std::string, std::string> Workplace::snapshot() const {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(root_)) {
    const bool huge = entry.is_regular_file() && entry.file_size() > (uint64_t{1} << 24);
    files[entry.path().string()] =
        entry.is_regular_file() && !huge ? read_file(entry.path()) : std::string();
  }
  return files;
}

}  // namespace wgrad::cli::testing
