// Trains a LoRA adapter from C++ and prints what the run reports.
//   example_train MODEL DATA OUT [DEVICE]
#include <wgrad/train.h>

#include <cstdio>

namespace {

class Printer : public wgrad::TrainObserver {
 public:
  void on_plan(const wgrad::TrainPlan& plan) override {
    std::printf("%lld of %lld parameters train on %s, %.1f MB\n",
                static_cast<long long>(plan.trainable_parameters),
                static_cast<long long>(plan.parameters), plan.device.c_str(),
                static_cast<double>(plan.peak_bytes) / 1e6);
  }
  void on_step(const wgrad::StepMetrics& step) override {
    std::printf("step %lld of %lld: loss %.4f\n", static_cast<long long>(step.step),
                static_cast<long long>(step.total_steps), step.loss);
  }
  void on_warning(const std::string& text) override {
    std::fprintf(stderr, "warning: %s\n", text.c_str());
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s MODEL DATA OUT [DEVICE]\n", argv[0]);
    return 2;
  }
  wgrad::TrainOptions options;
  options.model = argv[1];
  options.data = argv[2];
  options.out = argv[3];
  options.device = argc > 4 ? argv[4] : "auto";
  options.method = wgrad::Method::kLora;
  options.rank = 8;
  options.steps = 10;
  options.lr = 1e-3;

  Printer printer;
  try {
    const wgrad::TrainResult result = wgrad::run_training(options, printer);
    std::printf("%lld steps, final loss %.4f, adapter in %s\n",
                static_cast<long long>(result.steps), result.final_loss, options.out.c_str());
    return 0;
  } catch (const wgrad::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return error.kind() == wgrad::ErrorKind::kInput ? 2 : 1;
  }
}
