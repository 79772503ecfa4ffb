#include "io/free_space.h"

#include <fmt/format.h>

#include "wgrad/error.h"

namespace wgrad::io {

void check_free_space(const std::filesystem::path& target, std::uint64_t needed) {
  std::error_code error;
  const auto space = std::filesystem::space(std::filesystem::absolute(target).parent_path(), error);
  if (error || space.available >= needed) return;  // a folder that is missing is for the writer
  throw runtime_failure(
      target.string(), fmt::format("{} bytes are free on this disk", space.available),
      fmt::format("{} bytes", needed), "free space or choose a folder on another disk");
}

}  // namespace wgrad::io
