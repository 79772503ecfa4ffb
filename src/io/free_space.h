#pragma once

#include <cstdint>
#include <filesystem>

namespace wgrad::io {

/// A runtime error where the disk on which the file `target` will lie has fewer free bytes than
/// `needed`.
void check_free_space(const std::filesystem::path& target, std::uint64_t needed);

}  // namespace wgrad::io
