#include "train_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>

#include "list_option.h"
#include "ranges.h"
#include "train/options.h"

namespace wgrad::cli {
namespace {

/// The names between commas, without the blanks around them.
std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin <= list.size()) {
    const size_t comma = std::min(list.find(',', begin), list.size());
    size_t first = std::min(list.find_first_not_of(" \t", begin), comma), end = comma;
    while (end > first && (list[end - 1] == ' ' || list[end - 1] == '\t')) --end;
    if (end > first) parts.push_back(list.substr(first, end - first));
    begin = comma + 1;
  }
  return parts;
}

/// Binds one option by its type.
struct AddOption {
  CLI::App& app;

  void operator()(const std::string& name, bool& value, const char* help, train::Affects) const {
    app.add_flag(fmt::format("--{0},!--no-{0}", name), value, help)->capture_default_str();
  }
  void operator()(const std::string& name, std::vector<std::string>& value, const char* help,
                  train::Affects) const {
    add_list_option(
        app, "--" + name, [&value](const std::string& list) { value = split(list); }, help)
        ->default_str(fmt::format("{}", fmt::join(value, ",")))
        ->type_name("NAMES");
  }
  void operator()(const std::string& name, std::string& value, const char* help,
                  train::Affects) const {
    if (name == "data" || name == "eval-data") {
      add_data_option(app, "--" + name, value, help);
    } else {
      app.add_option("--" + name, value, help)->capture_default_str();
    }
  }
  template <typename T>
  void operator()(const std::string& name, std::optional<T>& value, const char* help,
                  train::Affects) const {
    app.add_option("--" + name, value, help);
  }
  template <typename E>
  requires std::is_enum_v<E>
  void operator()(const std::string& name, E& value, const char* help, train::Affects) const {
    const auto& pairs = train::EnumNames<E>::pairs;
    std::vector<std::string> names;
    for (const auto& [word, unused] : pairs) names.emplace_back(word);
    app.add_option_function<std::string>(
           "--" + name,
           [&value, &pairs](const std::string& word) {
             for (const auto& [known, v] : pairs) {
               if (known == word) value = v;
             }
           },
           help)
        ->check(CLI::IsMember(names))
        ->default_str(std::string(train::enum_name(value)))
        ->type_name("");
  }
  template <typename T>
  requires(!std::is_enum_v<T>) void operator()(const std::string& name, T& value, const char* help,
                                               train::Affects) const {
    CLI::Option* option = app.add_option("--" + name, value, help)->capture_default_str();
    // Reading an unsigned number takes -1 for the largest.
    if constexpr (std::is_unsigned_v<T>) option->check(AtLeast(0));
  }
};

}  // namespace

void add_train_options(CLI::App& app, TrainOptions& options) {
  train::visit_options(options, AddOption{app});
}

CLI::Option* add_data_option(CLI::App& app, const std::string& name, std::string& files,
                             const std::string& help) {
  return add_list_option(
      app, name, [&files](std::string list) { files = std::move(list); }, help);
}

void add_device_option(CLI::App& app, std::string& device) {
  app.add_option("--device", device, "auto, cpu, gpu, gpu:NAME or software")->capture_default_str();
}

}  // namespace wgrad::cli
