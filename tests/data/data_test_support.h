#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "text/text_assets.h"
#include "wgrad/error.h"

namespace wgrad::data {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

inline std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

inline Json read_json(std::string_view name) {
  return Json::parse(read_text(fs::path(WGRAD_TEST_DATA) / name));
}

/// A folder of its own, removed with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "wgrad_data_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "no temporary folder";
    path_ = name;
  }
  ~TemporaryFolder() { fs::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const fs::path& path() const { return path_; }
  std::string write(std::string_view name, std::string_view text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
    return (path_ / name).string();
  }

 private:
  fs::path path_;
};

/// A model's text parts: a tokenizer of tests/data/text with more special tokens, and a template.
struct TestModel {
  std::string tokenizer = "qwen2_style";
  std::string chat_template = {};  ///< empty: none
  Json added_tokens = Json::array();
  Json config = nullptr;  ///< null: the tokenizer's own
  Json stop_ids = Json::array();
};

inline text::TextAssets load(const TestModel& model) {
  const TemporaryFolder folder;
  const std::string base = "text/" + model.tokenizer;
  Json tokenizer = read_json(base + "/tokenizer.json");
  for (const Json& token : model.added_tokens) tokenizer["added_tokens"].push_back(token);
  folder.write("tokenizer.json", tokenizer.dump());
  const Json config =
      model.config.is_null() ? read_json(base + "/tokenizer_config.json") : model.config;
  folder.write("tokenizer_config.json", config.dump());
  if (!model.chat_template.empty()) folder.write("chat_template.jinja", model.chat_template);
  if (!model.stop_ids.empty()) {
    folder.write("generation_config.json", Json{{"eos_token_id", model.stop_ids}}.dump());
  }
  return text::load_from_folder(folder.path());
}

inline constexpr const char* kChatMl =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

inline text::TextAssets chatml() { return load({.chat_template = kChatMl}); }
inline text::TextAssets without_template(std::string tokenizer = "qwen2_style") {
  return load({.tokenizer = std::move(tokenizer)});
}

/// What for_each_row makes of a file's content.
struct Outcome {
  std::vector<Row> rows;
  Summary summary;
};

inline Outcome encode_file(std::string_view content, const text::TextAssets& assets,
                           const EncodeOptions& options = {}, std::string_view name = "d.jsonl") {
  const TemporaryFolder folder;
  Outcome outcome;
  outcome.summary = for_each_row({folder.write(name, content)}, assets, options,
                                 [&](Row&& row) { outcome.rows.push_back(std::move(row)); });
  return outcome;
}

inline Row encode_one(const Json& row, const text::TextAssets& assets, EncodeOptions options = {}) {
  options.keep_uncounted = true;
  Outcome outcome = encode_file(row.dump() + "\n", assets, options);
  EXPECT_EQ(outcome.rows.size(), 1u);
  return outcome.rows.empty() ? Row() : std::move(outcome.rows.front());
}

/// The row's text with the counted parts in [[ ]].
inline std::string marked(const Row& row, const text::TextAssets& assets) {
  std::string text;
  for (size_t begin = 0, end = 0; begin < row.ids.size(); begin = end) {
    while (end < row.ids.size() && row.counted[end] == row.counted[begin]) ++end;
    const std::string part =
        assets.tokenizer.decode(std::span(row.ids).subspan(begin, end - begin), false);
    text += row.counted[begin] ? "[[" + part + "]]" : part;
  }
  return text;
}

inline std::string marked_one(const Json& row, const text::TextAssets& assets,
                              const EncodeOptions& options = {}) {
  return marked(encode_one(row, assets, options), assets);
}

template <typename Work>
std::string input_error_of(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

inline std::string flags(const Row& row) {
  std::string text;
  for (uint8_t counted : row.counted) text += counted ? '1' : '0';
  return text;
}

inline Json message(const char* role, const Json& content) {
  return {{"role", role}, {"content", content}};
}
inline Json user(const Json& content) { return message("user", content); }
inline Json assistant(const Json& content) { return message("assistant", content); }
inline Json chat(const std::vector<Json>& messages) { return {{"messages", messages}}; }

}  // namespace wgrad::data
