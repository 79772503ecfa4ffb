#include "text/text_assets.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "text/files.h"
#include "wgrad/error.h"

namespace wgrad::text {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr std::array kSpecialTokens = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};

[[noreturn]] void refuse(const fs::path& path, std::string_view key, const ordered_json& value,
                         std::string_view expected) {
  throw input_error(path.string(), fmt::format("\"{}\" is a JSON {}", key, value.type_name()),
                    expected, "download the file again or mend it there");
}

/// An absent file is an empty object.
ordered_json read_if_there(const fs::path& path) {
  return is_there(path) ? read_json_object(path) : ordered_json::object();
}

/// "<s>", {"content": "<s>", ...} or null.
std::optional<std::string> token_text(const fs::path& path, std::string_view key,
                                      const ordered_json& value) {
  if (value.is_null()) return std::nullopt;
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string()) {
    return value["content"].get<std::string>();
  }
  refuse(path, key, value, "expected a token's text or an object with its \"content\"");
}

void read_tokens(const fs::path& path, const ordered_json& json, SpecialTokenTexts& tokens) {
  for (const char* key : kSpecialTokens) {
    const auto value = json.find(key);
    if (value == json.end()) continue;
    std::erase_if(tokens, [&](const auto& token) { return token.first == key; });
    if (auto text = token_text(path, key, *value)) tokens.emplace_back(key, std::move(*text));
  }
}

/// As transformers: special_tokens_map.json counts where tokenizer_config.json is of the older
/// form, without the added tokens.
SpecialTokenTexts special_tokens(const fs::path& folder, const ordered_json& config) {
  SpecialTokenTexts tokens;
  read_tokens(folder / "tokenizer_config.json", config, tokens);
  if (!config.contains("added_tokens_decoder")) {
    const fs::path path = folder / "special_tokens_map.json";
    read_tokens(path, read_if_there(path), tokens);
  }
  return tokens;
}

/// Tokens that only tokenizer_config.json knows would get other ids here than in transformers.
void check_added_tokens(const fs::path& path, const ordered_json& config,
                        const Tokenizer& tokenizer) {
  const auto added = config.find("added_tokens_decoder");
  if (added == config.end()) return;
  if (!added->is_object()) refuse(path, "added_tokens_decoder", *added, "expected an object");
  for (const auto& [id, token] : added->items()) {
    const auto text = token_text(path, "added_tokens_decoder", token);
    const auto found = text ? tokenizer.id(*text) : std::nullopt;
    if (found && std::to_string(*found) == id) continue;
    throw input_error(
        path.string(),
        fmt::format("added_tokens_decoder gives {} the id {}", text.value_or("null"), id),
        found ? fmt::format("tokenizer.json gives it {}", *found)
              : "tokenizer.json does not have it",
        "save both anew with transformers' AutoTokenizer.save_pretrained");
  }
}

struct TemplateSources {
  std::optional<std::string> usual;
  std::optional<std::string> with_tools;
  fs::path where;
};

TemplateSources templates_of(const fs::path& path, const ordered_json& value) {
  TemplateSources sources{.usual = {}, .with_tools = {}, .where = path};
  if (value.is_null()) return sources;
  if (value.is_string()) {
    sources.usual = value.get<std::string>();
    return sources;
  }
  constexpr std::string_view kExpected =
      "expected a template's text or a list of {\"name\", \"template\"}";
  if (!value.is_array()) refuse(path, "chat_template", value, kExpected);
  for (const ordered_json& entry : value) {
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() ||
        !entry.contains("template") || !entry["template"].is_string()) {
      refuse(path, "chat_template", entry, kExpected);
    }
    const auto name = entry["name"].get<std::string>();
    if (name == "default") sources.usual = entry["template"].get<std::string>();
    if (name == "tool_use") sources.with_tools = entry["template"].get<std::string>();
  }
  if (!sources.usual) {
    throw input_error(path.string(), "\"chat_template\" has no template named default", {},
                      "name one of them default");
  }
  return sources;
}

/// chat_template.jinja wins over tokenizer_config.json, and that over chat_template.json.
TemplateSources find_templates(const fs::path& folder, const ordered_json& config) {
  const fs::path jinja = folder / "chat_template.jinja";
  if (is_there(jinja)) {
    const fs::path tools = folder / "additional_chat_templates" / "tool_use.jinja";
    TemplateSources sources{.usual = read_file(jinja), .with_tools = {}, .where = jinja};
    if (is_there(tools)) sources.with_tools = read_file(tools);
    return sources;
  }
  if (const auto value = config.find("chat_template"); value != config.end()) {
    return templates_of(folder / "tokenizer_config.json", *value);
  }
  const fs::path json = folder / "chat_template.json";
  const ordered_json object = read_if_there(json);
  const auto value = object.find("chat_template");
  return value == object.end() ? TemplateSources{} : templates_of(json, *value);
}

std::optional<ChatTemplate> make_template(TemplateSources sources,
                                          const SpecialTokenTexts& tokens) {
  if (!sources.usual) return std::nullopt;
  ChatTemplate chat_template(std::move(*sources.usual), tokens, sources.where.string());
  if (sources.with_tools) {
    chat_template.set_tool_template(ChatTemplate(std::move(*sources.with_tools), tokens,
                                                 sources.where.string() + " (tool_use)"));
  }
  return chat_template;
}

/// A number, a list of numbers or null.
void read_ids(const fs::path& path, const ordered_json& json, std::vector<uint32_t>& ids) {
  const auto value = json.find("eos_token_id");
  if (value == json.end() || value->is_null()) return;
  const ordered_json list = value->is_array() ? *value : ordered_json::array({*value});
  for (const ordered_json& id : list) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > UINT32_MAX) {
      refuse(path, "eos_token_id", id, "expected a token's id or a list of ids");
    }
    ids.push_back(id.get<uint32_t>());
  }
}

std::vector<uint32_t> stop_ids_of_folder(const fs::path& folder) {
  std::vector<uint32_t> ids;
  for (const char* name : {"generation_config.json", "config.json"}) {
    const fs::path path = folder / name;
    if (ids.empty()) read_ids(path, read_if_there(path), ids);
  }
  return ids;
}

void set_tokens(TextAssets& assets, const SpecialTokenTexts& tokens, std::string_view where) {
  const auto set = [&](std::string_view key, std::string& text, std::optional<uint32_t>& id) {
    const auto token = std::ranges::find(tokens, key, &SpecialTokenTexts::value_type::first);
    if (token == tokens.end()) return;
    text = token->second;
    id = assets.tokenizer.id(text);
    if (id || key == "pad_token") return;
    throw input_error(where, fmt::format("{} is \"{}\"", key, text),
                      "expected a token of the tokenizer",
                      "download the tokenizer's files again: they do not belong together");
  };
  set("bos_token", assets.bos_token, assets.bos_id);
  set("eos_token", assets.eos_token, assets.eos_id);
  set("pad_token", assets.pad_token, assets.pad_id);
}

void finish(TextAssets& assets, std::vector<uint32_t> stop_ids) {
  if (!assets.eos_id && !stop_ids.empty()) {
    if (const auto token = assets.tokenizer.token(stop_ids.front())) {
      assets.eos_id = stop_ids.front();
      assets.eos_token = *token;
    }
  }
  if (assets.eos_id) stop_ids.push_back(*assets.eos_id);
  std::ranges::sort(stop_ids);
  const auto rest = std::ranges::unique(stop_ids);
  stop_ids.erase(rest.begin(), rest.end());
  assets.stop_ids = std::move(stop_ids);
  assets.tokenizer.set_bos_id(assets.bos_id);
  assets.tokenizer.set_eos_id(assets.eos_id);
  assets.adds_bos = assets.tokenizer.adds_bos();
}

}  // namespace

bool TextAssets::is_stop(uint32_t id) const { return std::ranges::binary_search(stop_ids, id); }

TextAssets load_from_folder(const fs::path& folder) {
  const fs::path tokenizer = folder / "tokenizer.json";
  if (!is_there(tokenizer)) {
    throw input_error(folder.string(), "there is no tokenizer.json", {},
                      "save one with transformers' AutoTokenizer.from_pretrained(MODEL)"
                      ".save_pretrained(FOLDER)");
  }
  const fs::path config_path = folder / "tokenizer_config.json";
  const ordered_json config = read_if_there(config_path);
  TextAssets assets{.tokenizer = Tokenizer::from_json_file(tokenizer),
                    .chat_template = std::nullopt,
                    .bos_token = {},
                    .eos_token = {},
                    .pad_token = {},
                    .bos_id = {},
                    .eos_id = {},
                    .pad_id = {},
                    .stop_ids = {}};
  check_added_tokens(config_path, config, assets.tokenizer);
  const SpecialTokenTexts tokens = special_tokens(folder, config);
  set_tokens(assets, tokens, config_path.string());
  assets.chat_template = make_template(find_templates(folder, config), tokens);
  finish(assets, stop_ids_of_folder(folder));
  return assets;
}

TextAssets load_from_gguf(const GgufTokenizerParts& parts, std::string_view where) {
  TextAssets assets{.tokenizer = Tokenizer::from_gguf_parts(parts, where),
                    .chat_template = std::nullopt,
                    .bos_token = {},
                    .eos_token = {},
                    .pad_token = {},
                    .bos_id = {},
                    .eos_id = {},
                    .pad_id = {},
                    .stop_ids = {}};
  SpecialTokenTexts tokens;
  const auto add = [&](std::string key, std::optional<uint32_t> id) {
    if (id) tokens.emplace_back(std::move(key), parts.tokens[*id]);
  };
  add("bos_token", parts.bos_id);
  add("eos_token", parts.eos_id);
  add("unk_token", parts.unknown_id);
  add("pad_token", parts.padding_id);
  set_tokens(assets, tokens, where);
  if (parts.chat_template) {
    assets.chat_template.emplace(*parts.chat_template, tokens,
                                 std::string(where) + ", tokenizer.chat_template");
  }
  std::vector<uint32_t> stop_ids;
  if (parts.eot_id) stop_ids.push_back(*parts.eot_id);
  finish(assets, std::move(stop_ids));
  return assets;
}

}  // namespace wgrad::text
