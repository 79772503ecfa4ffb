#pragma once

namespace wgrad::cli {

/// Lets the CPU's threads wait for each other by spinning for some microseconds and then sleep.
/// OpenMP's own choice spins for much longer, which on a machine that does other work too makes a
/// training step several times slower. OpenMP reads its settings before main(): the program starts
/// itself anew with them, once, and goes on as it is where that is not possible. What the user has
/// set stays.
void wait_politely(char** argv);

}  // namespace wgrad::cli
