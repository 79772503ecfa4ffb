#include "base/lfs_pointer.h"

#include "wgrad/error.h"

namespace wgrad {

void refuse_lfs_pointer(std::string_view where, std::string_view begin) {
  if (!begin.starts_with("version https://git-lfs.github.com/spec/")) return;
  throw input_error(where, "this is a Git LFS pointer", "the file that it stands for",
                    "run `git lfs pull` in its folder, or download the file itself");
}

}  // namespace wgrad
