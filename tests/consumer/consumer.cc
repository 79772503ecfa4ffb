// What only holds if the headers, the exported symbols and the library belong together: plans,
// errors that cross the library's border as their own type, kernels that are listed.
#include <wgrad/error.h>
#include <wgrad/kernels.h>
#include <wgrad/train.h>

#include <cstdio>
#include <cstring>

namespace {

int failures = 0;

void expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "failed: %s\n", what);
  ++failures;
}

template <typename Call>
bool throws_input_error(const Call& call, const char* part) {
  try {
    call();
  } catch (const wgrad::Error& error) {
    return error.kind() == wgrad::ErrorKind::kInput && std::strstr(error.what(), part) != nullptr;
  }
  return false;
}

}  // namespace

int main(int, char** argv) {
  wgrad::TrainObserver nobody;
  wgrad::TrainOptions options;
  options.model = argv[1];
  options.data = argv[2];
  options.out = "unused";
  options.device = "cpu";
  const wgrad::TrainPlan plan = wgrad::plan_training(options, nobody);
  expect(plan.rows == 8, "the plan counts the rows");
  expect(plan.peak_bytes > 0, "the plan counts memory");

  options.model = "/nonexistent";
  expect(throws_input_error([&] { wgrad::plan_training(options, nobody); }, "/nonexistent"),
         "a missing model is an input error that names it");

  expect(wgrad::kernels().size() == 10, "ten kernels are listed");
  for (const wgrad::Kernel& kernel : wgrad::kernels()) {
    for (const wgrad::KernelEntryPoint& entry : kernel.entry_points) {
      expect(kernel.text().find(entry.name) != std::string_view::npos,
             "a kernel's text has its entry points");
    }
  }

  wgrad::KernelRunner runner("software");
  wgrad::KernelBuffers buffers = {
      {"x", std::vector<float>(4)}, {"dy", std::vector<float>(4)}, {"dx", std::vector<float>(4)}};
  const auto run = [&](const char* kernel, const wgrad::KernelFields& fields) {
    return [&, kernel, fields] { runner.run(kernel, buffers, fields); };
  };
  expect(throws_input_error(run("silu", {{"n", 4}}), "silu_backward"),
         "an unknown kernel is answered with the known ones");
  expect(throws_input_error(run("silu_backward", {{"n", 5}}), "expected n = 5"),
         "a buffer that is too short is refused");
  expect(throws_input_error(run("silu_backward", {}), "no field n"), "a field is missing");
  expect(throws_input_error(run("silu_backward", {{"n", 4}, {"m", 1}}), "no field m"),
         "a field is unknown");
  expect(throws_input_error(run("silu_backward", {{"n", 3.5}}), "whole number"),
         "a count is no whole number");
  runner.run("silu_backward", buffers, {{"n", 4}});
  return failures == 0 ? 0 : 1;
}
