#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace wgrad::cli::testing {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path);
void write_file(const fs::path& path, const std::string& text);
std::vector<nlohmann::ordered_json> json_lines(const std::string& text);

/// How a program ended; 128 + the number where a signal ended it.
struct Outcome {
  int code = -1;
  std::string out, err;
};

using Arguments = std::vector<std::string>;
/// Runs in the child before the program does; only async-signal-safe calls.
using ChildSetup = std::function<void()>;

/// The program as a child process. It is ended with the object.
class Child {
 public:
  explicit Child(const Arguments& arguments, const ChildSetup& setup = {},
                 const std::string& input = {});
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  bool ended();
  Outcome wait();
  std::string out() const { return read_file(folder_ / "out"); }
  std::string err() const { return read_file(folder_ / "err"); }

 private:
  fs::path folder_;
  pid_t pid_ = -1;
  int status_ = -1;
  bool reaped_ = false;
};

Outcome run_program(const Arguments& arguments, const ChildSetup& setup = {},
                    const std::string& input = {});

/// A folder with a copy of a tiny model and rows to train on, removed at the end.
class Workplace {
 public:
  explicit Workplace(const std::string& model = "llama3");
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
  ~Workplace();

  const fs::path& root() const { return root_; }
  std::string path(const std::string& name) const { return (root_ / name).string(); }
  void write(const std::string& name, const std::string& text) const {
    write_file(root_ / name, text);
  }
  /// Sets (or with null removes) fields of model/config.json.
  void edit_config(const nlohmann::json& changes) const;
  /// Gives the model a chat template.
  void set_template(const std::string& source) const;
  /// Changes the header of model/model.safetensors; the tensors' bytes stay.
  void edit_header(const std::function<void(nlohmann::json&)>& change) const;

  /// "train" on the CPU from model and train.jsonl to out, with more options.
  Arguments train(const Arguments& more = {}) const;
  /// Every file with its content, to see that nothing was written over.
  std::map<std::string, std::string> snapshot() const;

 private:
  fs::path root_;
};

}  // namespace wgrad::cli::testing
