#include "threads.h"

#include <unistd.h>

#include <cstdlib>
#include <initializer_list>

namespace wgrad::cli {

void wait_politely(char** argv) {
  for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}) {
    if (std::getenv(name) != nullptr) return;
  }
  if (::setenv("GOMP_SPINCOUNT", "10000", 1) == 0) ::execv("/proc/self/exe", argv);
}

}  // namespace wgrad::cli
