// An observer of one's own: stops a run when the evaluation's loss has not fallen for three
// evaluations. The run then saves a checkpoint, from which it can go on, and its adapter.
//   example_stop_early MODEL TRAIN VALID OUT [LEARNING_RATE]
#include <wgrad/train.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <limits>

namespace {

class StopEarly : public wgrad::TrainObserver {
 public:
  explicit StopEarly(int patience) : patience_(patience) {}

  /// To be given to run_training, which looks at it after each step.
  const std::atomic<bool>* stop() const { return &stop_; }
  double best() const { return best_; }

  void on_eval(const wgrad::EvalMetrics& eval) override {
    std::printf("step %lld: evaluation's loss %.4f\n", static_cast<long long>(eval.step),
                eval.loss);
    if (eval.loss < best_) {
      best_ = eval.loss;
      worse_ = 0;
    } else if (++worse_ == patience_) {
      stop_ = true;
    }
  }

 private:
  int patience_;
  int worse_ = 0;
  double best_ = std::numeric_limits<double>::infinity();
  std::atomic<bool> stop_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: %s MODEL TRAIN VALID OUT [LEARNING_RATE]\n", argv[0]);
    return 2;
  }
  wgrad::TrainOptions options;
  options.model = argv[1];
  options.data = argv[2];
  options.eval_data = argv[3];
  options.out = argv[4];
  if (argc > 5) options.lr = std::atof(argv[5]);
  options.device = "cpu";
  options.steps = 200;
  options.eval_every = 1;

  StopEarly observer(3);
  try {
    const wgrad::TrainResult result = wgrad::run_training(options, observer, observer.stop());
    std::printf("%s after %lld steps, best %.4f\n",
                result.end == wgrad::TrainEnd::kStopped ? "stopped" : "finished",
                static_cast<long long>(result.steps), observer.best());
    return 0;
  } catch (const wgrad::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return error.kind() == wgrad::ErrorKind::kInput ? 2 : 1;
  }
}
