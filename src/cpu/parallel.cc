#include "cpu/parallel.h"

#include <omp.h>

namespace wgrad::cpu {

void set_threads(int count) { omp_set_num_threads(count); }

}  // namespace wgrad::cpu
