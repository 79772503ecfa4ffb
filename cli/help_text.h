#pragma once

#include <CLI/App.hpp>
#include <CLI/Formatter.hpp>
#include <string>

namespace wgrad::cli {

/// An option's line as "--method lora|qlora|full [lora]" or "--rank INT, 1 or more [16]".
class HelpText : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool positional) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
};

}  // namespace wgrad::cli
