#include "encode_options.h"

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <string>

#include "ranges.h"
#include "train/options.h"

namespace wgrad::cli {
namespace {

template <typename E>
void add_words(CLI::App& app, const std::string& name, E& value, const std::string& help) {
  std::vector<std::string> words;
  for (const auto& [word, unused] : train::EnumNames<E>::pairs) words.emplace_back(word);
  app.add_option_function<std::string>(
         name,
         [&value](const std::string& given) {
           for (const auto& [word, v] : train::EnumNames<E>::pairs) {
             if (word == given) value = v;
           }
         },
         help)
      ->check(CLI::IsMember(words))
      ->default_str(std::string(train::enum_name(value)))
      ->type_name("");
}

}  // namespace

void add_encode_options(CLI::App& app, data::EncodeOptions& options) {
  app.add_option("--max-seq-len", options.max_seq_len, "tokens a row is cut to; 0: no cut")
      ->check(AtLeast(0));
  add_words(app, "--prompt-style", options.prompt_style, "how prompt/completion strings are read");
  add_words(app, "--train-on", options.train_on, "which tokens count");
  app.add_flag("--skip-bad-rows", options.skip_bad_rows, "leave out rows that cannot be read");
}

}  // namespace wgrad::cli
