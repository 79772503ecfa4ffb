#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "text/files.h"
#include "text/gguf_tokenizer.h"
#include "wgrad/error.h"

namespace wgrad::text {

inline std::filesystem::path golden(std::string_view name) {
  return std::filesystem::path(WGRAD_TEST_DATA) / "text" / name;
}

inline nlohmann::ordered_json golden_json(std::string_view name) {
  return nlohmann::ordered_json::parse(read_file(golden(name)));
}

inline GgufTokenizerParts golden_parts(std::string_view style) {
  const auto json = golden_json(std::string(style) + "/gguf.json");
  const auto id = [&](const char* key) {
    return json[key].is_null() ? std::nullopt : std::optional(json[key].get<uint32_t>());
  };
  GgufTokenizerParts parts;
  parts.model = json["model"].get<std::string>();
  parts.pre = json["pre"].get<std::string>();
  parts.tokens = json["tokens"].get<std::vector<std::string>>();
  parts.types = json["types"].get<std::vector<int32_t>>();
  parts.merges = json["merges"].get<std::vector<std::string>>();
  parts.bos_id = id("bos_id");
  parts.eos_id = id("eos_id");
  parts.unknown_id = id("unknown_id");
  return parts;
}

/// The text of the input error that `work` throws; fails when it throws none.
template <typename Work>
std::string input_error_of(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

/// A folder of its own, removed with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "wgrad_text_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "no temporary folder";
    path_ = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(std::string_view name, std::string_view text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace wgrad::text
