#pragma once

#include <string_view>

namespace wgrad {

/// Throws an input error where a file that begins like this is only the pointer that Git LFS leaves
/// in place of a large file.
void refuse_lfs_pointer(std::string_view where, std::string_view begin);

}  // namespace wgrad
