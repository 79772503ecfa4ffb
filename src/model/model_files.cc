#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "io/atomic_file.h"
#include "io/gguf.h"
#include "io/gguf_names.h"
#include "io/json.h"
#include "model/checkpoint_writer.h"
#include "text/gguf_parts.h"
#include "text/gguf_tokenizer.h"
#include "wgrad/error.h"

namespace wgrad::model {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

/// Config, tokenizer, template and licence; not weights, nor notes about weights.
bool belongs_to_model(const fs::path& file) {
  const std::string name = file.filename().string();
  if (name == "adapter_config.json" || name.ends_with(".index.json") ||
      name == "trainer_state.json") {
    return false;
  }
  if (name.starts_with("LICENSE")) return true;
  constexpr std::array kExtensions = {".json", ".jinja", ".model", ".txt", ".tiktoken"};
  return std::find(kExtensions.begin(), kExtensions.end(), file.extension().string()) !=
         kExtensions.end();
}

void copy_files(const fs::path& base, const fs::path& out) {
  constexpr const char* kTemplates = "additional_chat_templates";
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(base)) {
    const fs::path& from = entry.path();
    if (!entry.is_regular_file() || !belongs_to_model(from)) continue;
    fs::copy_file(from, out / from.filename(), fs::copy_options::overwrite_existing, error);
    if (error) throw runtime_failure((out / from.filename()).string(), error.message());
  }
  if (!fs::is_directory(base / kTemplates)) return;
  fs::copy(base / kTemplates, out / kTemplates,
           fs::copy_options::recursive | fs::copy_options::overwrite_existing, error);
  if (error) throw runtime_failure((out / kTemplates).string(), error.message());
}

void write_json(const fs::path& path, const json& object) {
  io::write_file_atomically(path,
                            object.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

json tokenizer_config(const text::GgufTokenizerParts& parts) {
  json object = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"clean_up_tokenization_spaces", false}};
  const auto add = [&](const char* key, const std::optional<uint32_t>& id) {
    if (id && *id < parts.tokens.size()) object[key] = parts.tokens[*id];
  };
  add("bos_token", parts.bos_id);
  add("eos_token", parts.eos_id);
  add("unk_token", parts.unknown_id);
  add("pad_token", parts.padding_id);
  if (parts.add_bos) object["add_bos_token"] = *parts.add_bos;
  if (parts.add_eos) object["add_eos_token"] = *parts.add_eos;
  if (parts.chat_template) object["chat_template"] = *parts.chat_template;
  return object;
}

void write_gguf_files(const fs::path& base, const std::string& weight_type, const fs::path& out) {
  const io::GgufFile file = io::GgufFile::open(base);
  json config = io::gguf_config_json(file);
  config["torch_dtype"] = weight_type;
  write_json(out / "config.json", config);

  const text::GgufTokenizerParts parts = text::gguf_tokenizer_parts(file);
  if (parts.tokens.empty()) return;
  io::write_file_atomically(out / "tokenizer.json",
                            text::gguf_tokenizer_json(parts, base.string()));
  write_json(out / "tokenizer_config.json", tokenizer_config(parts));
  json ends = json::array();
  for (const auto& id : {parts.eos_id, parts.eot_id}) {
    if (id && std::find(ends.begin(), ends.end(), json(*id)) == ends.end()) ends.push_back(*id);
  }
  if (!ends.empty()) write_json(out / "generation_config.json", {{"eos_token_id", ends}});
}

}  // namespace

void write_model_files(const fs::path& base, const std::string& weight_type, const fs::path& out) {
  if (fs::is_directory(base)) {
    copy_files(base, out);
  } else {
    write_gguf_files(base, weight_type, out);
  }
}

}  // namespace wgrad::model
