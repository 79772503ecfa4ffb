#include "text/pre_tokenizers.h"

namespace wgrad::text {
namespace {

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr PreTokenizer kPreTokenizers[] = {
    {"gpt-2", kGpt2, false, false, false, false},
    {"olmo", kGpt2, false, false, false, false},
    {"phi-2", kGpt2, false, false, false, false},
    {"mpt", kGpt2, false, false, false, false},
    {"smollm", kGpt2, true, false, false, false},
    {"starcoder", kGpt2, true, false, false, false},
    {"refact", kGpt2, true, false, false, false},
    {"command-r", kGpt2, true, false, false, false},
    {"llama-bpe", kLlama3, false, true, true, false},
    {"llama3", kLlama3, false, true, true, false},
    {"llama-v3", kLlama3, false, true, true, false},
    {"falcon3", kLlama3, false, true, true, false},
    {"dbrx", kLlama3, false, false, false, false},
    {"smaug-bpe", kLlama3, false, false, false, false},
    {"qwen2", kQwen2, false, false, false, true},
    {"deepseek-r1-qwen", kQwen2, false, false, false, false},
    {"stablelm2", kQwen2, false, false, false, false},
    {"tekken", kTekken, false, true, true, false},
    {"gpt-4o", kGpt4o, false, false, false, false},
    {"llama4", kGpt4o, false, false, false, false},
};

}  // namespace

const std::string_view kGpt2Pattern = kGpt2;

std::span<const PreTokenizer> pre_tokenizers() { return kPreTokenizers; }

}  // namespace wgrad::text
