#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <CLI/Option.hpp>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace wgrad::cli {

/// An option that takes several values with commas between them, and can be given several times to
/// the same effect. `take` gets all of them with commas between.
inline CLI::Option* add_list_option(CLI::App& app, const std::string& name,
                                    std::function<void(std::string)> take,
                                    const std::string& help) {
  return app
      .add_option_function<std::vector<std::string>>(
          name,
          [take = std::move(take)](const std::vector<std::string>& lists) {
            take(fmt::format("{}", fmt::join(lists, ",")));
          },
          help)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

}  // namespace wgrad::cli
