#include "gpu/stderr_filter.h"

#include <cstdio>

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace wgrad::gpu {

#ifdef __linux__
namespace {

/// Dawn caps two limits that wgrad does not use; Mesa looks for a desktop session.
bool harmless(std::string_view line) {
  for (std::string_view part :
       {"BuffersPerPipelineLayout artificially reduced", "XDG_RUNTIME_DIR is invalid or not set"}) {
    if (line.find(part) != std::string_view::npos) return true;
  }
  return false;
}

std::string contents(int file) {
  std::string text;
  char block[4096];
  off_t at = 0;
  for (ssize_t n; (n = pread(file, block, sizeof block, at)) > 0; at += n) {
    text.append(block, static_cast<size_t>(n));
  }
  return text;
}

}  // namespace

StderrFilter::StderrFilter() {
  captured_ = memfd_create("wgrad-stderr", MFD_CLOEXEC);
  if (captured_ < 0) return;
  std::fflush(stderr);
  saved_ = dup(STDERR_FILENO);
  if (saved_ >= 0) dup2(captured_, STDERR_FILENO);
}

std::string StderrFilter::finish() {
  std::string kept;
  if (saved_ >= 0) {
    std::fflush(stderr);
    dup2(saved_, STDERR_FILENO);
    close(saved_);
    saved_ = -1;
    const std::string text = contents(captured_);
    for (size_t begin = 0; begin < text.size();) {
      size_t end = text.find('\n', begin);
      end = end == std::string::npos ? text.size() : end + 1;
      const std::string_view line(text.data() + begin, end - begin);
      if (!harmless(line)) kept += line;
      begin = end;
    }
  }
  if (captured_ >= 0) close(captured_);
  captured_ = -1;
  return kept;
}
#else
StderrFilter::StderrFilter() = default;
std::string StderrFilter::finish() { return {}; }
#endif

StderrFilter::~StderrFilter() { pass_on(finish()); }

void StderrFilter::pass_on(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace wgrad::gpu
