#include "wgrad/error.h"

namespace wgrad {
namespace {

std::string compose(std::string_view where, std::string_view seen, std::string_view expected,
                    std::string_view action) {
  std::string text;
  text.append(where).append(": ").append(seen);
  for (std::string_view part : {expected, action}) {
    if (!part.empty()) text.append("; ").append(part);
  }
  return text;
}

}  // namespace

Error::Error(ErrorKind kind, std::string_view where, std::string_view seen,
             std::string_view expected, std::string_view action)
    : std::runtime_error(compose(where, seen, expected, action)), kind_(kind) {}

Error input_error(std::string_view where, std::string_view seen, std::string_view expected,
                  std::string_view action) {
  return Error(ErrorKind::kInput, where, seen, expected, action);
}

Error runtime_failure(std::string_view where, std::string_view seen, std::string_view expected,
                      std::string_view action) {
  return Error(ErrorKind::kRuntime, where, seen, expected, action);
}

}  // namespace wgrad
