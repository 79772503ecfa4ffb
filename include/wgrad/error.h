#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace wgrad {

/// What a caller can do about an error; a program's exit code follows from it.
enum class ErrorKind {
  kInput,    ///< bad usage or bad input: the user changes the command or the file (exit 2)
  kRuntime,  ///< failed while running: device, disk, memory, numbers (exit 1)
};

/// The one exception type that wgrad throws. Its text reads
/// "where: what was seen; what was expected; what to do".
class Error : public std::runtime_error {
 public:
  /// `where` names the file with line, tensor, option or device; `expected` and `action` may be
  /// empty where there is nothing to say. In an input error, which quotes from files, control
  /// characters are escaped and long parts are cut.
  Error(ErrorKind kind, std::string_view where, std::string_view seen,
        std::string_view expected = {}, std::string_view action = {});

  ErrorKind kind() const noexcept { return kind_; }  ///< what a caller can do about it

 private:
  ErrorKind kind_;
};

/// An error of kind kInput, to be thrown: `throw input_error(...)`.
Error input_error(std::string_view where, std::string_view seen, std::string_view expected = {},
                  std::string_view action = {});
Error runtime_failure(std::string_view where, std::string_view seen, std::string_view expected = {},
                      std::string_view action = {});  ///< the same of kind kRuntime

}  // namespace wgrad
