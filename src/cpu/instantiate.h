#pragma once

#include <complex>

/// Instantiates MACRO(T) for the three scalars of the CPU operations.
#define WGRAD_FOR_EACH_SCALAR(MACRO) \
  MACRO(float)                       \
  MACRO(double)                      \
  MACRO(std::complex<double>)
