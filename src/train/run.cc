#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <filesystem>

#include "io/atomic_file.h"
#include "io/folder_lock.h"
#include "io/json.h"
#include "model/merge.h"
#include "train/checkpoint.h"
#include "train/metrics.h"
#include "train/options.h"
#include "train/plan.h"
#include "train/report.h"
#include "train/run_folder.h"
#include "train/setup.h"
#include "train/trainer.h"

namespace wgrad {
namespace train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kMostSkippedInARow = 3;
constexpr std::string_view kAgainstNonFinite =
    "lower --lr, try --dtype f32, and look at the data of these steps";
constexpr size_t kMostMetricsBytes = size_t{1} << 30;
/// A training step reaches about this share of the rate of one large product.
constexpr double kStepEfficiency = 0.5;

/// The training loop and the state that a checkpoint carries.
class Run {
 public:
  Run(RunSetup& setup, RunState state, TrainObserver& observer)
      : setup_(setup),
        observer_(observer),
        out_(setup.options.out),
        ctx_(open_context(setup.device, setup.compute)),
        trainer_(*ctx_, setup.options, setup.config, setup.source, setup.options.recompute,
                 setup.longest_row),
        metrics_(out_ / "metrics.jsonl"),
        state_(std::move(state)) {
    if (ctx_->kind() == DeviceKind::kGpu) ctx_->device().compile(setup.kernels);
  }

  /// Goes on from the checkpoint, or without one begins again.
  void resume(const std::optional<fs::path>& checkpoint) {
    if (!checkpoint) {
      metrics_.keep_first(0);
      return;
    }
    restore_checkpoint(*checkpoint, trainer_);
    state_ = read_run_state(*checkpoint);
    metrics_.keep_first(state_.metrics_bytes);
    saved_step_ = state_.step;
  }

  TrainResult loop(const std::atomic<bool>* stop) {
    start_ = Clock::now();
    seconds_before_ = state_.seconds;
    auto stopped = [stop] { return stop && stop->load(std::memory_order_relaxed); };
    while (state_.step < setup_.total_steps && !stopped()) {
      one_step();
      const TrainOptions& o = setup_.options;
      const bool last = state_.step == setup_.total_steps;
      if (setup_.valid && (last || (o.eval_every > 0 && state_.step % o.eval_every == 0))) {
        evaluate();
      }
      if (o.save_every > 0 && state_.step % o.save_every == 0) save();
    }
    check_trained();
    if (saved_step_ != state_.step) save();
    if (setup_.options.report) write_report();
    const bool finished = state_.step == setup_.total_steps;
    if (finished) write_result();
    return {finished ? TrainEnd::kFinished : TrainEnd::kStopped, state_.step, state_.total_tokens,
            state_.seconds, state_.loss};
  }

 private:
  void one_step() {
    const Clock::time_point begin = Clock::now();
    const double lr = setup_.learning_rate.at(state_.step);
    const std::vector<MicroBatch> batches = setup_.micro_batches(state_.step);
    const Trainer::Outcome outcome = trainer_.step(batches, state_.step, lr, state_.updates);
    seconds_since_log_ += std::chrono::duration<double>(Clock::now() - begin).count();
    ++state_.step;
    state_.total_tokens += outcome.tokens;
    tokens_since_log_ += outcome.tokens;
    state_.loss = outcome.loss;
    note_finite(outcome);
    if (state_.step % setup_.options.log_every == 0 || state_.step == setup_.total_steps) {
      log(outcome, lr);
    }
  }

  void note_finite(const Trainer::Outcome& outcome) {
    if (outcome.finite) {
      ++state_.updates;
      skipped_in_a_row_ = 0;
      return;
    }
    ++skipped_in_a_row_;
    const std::string seen =
        std::isfinite(outcome.loss)
            ? fmt::format("loss {:.4f}, but its gradient is not finite", outcome.loss)
            : fmt::format("loss {} is not finite", std::abs(outcome.loss));  // a NaN has a sign
    if (skipped_in_a_row_ == kMostSkippedInARow) {
      throw runtime_failure(fmt::format("step {}", state_.step),
                            fmt::format("{}, for the {}rd step in a row", seen, kMostSkippedInARow),
                            "training cannot go on",
                            fmt::format("{}; the last checkpoint is intact", kAgainstNonFinite));
    }
    observer_.on_warning(fmt::format("step {}: {}; the step is skipped", state_.step, seen));
  }

  /// A run that ends without one finite step has trained nothing.
  void check_trained() const {
    if (state_.updates > 0 || state_.step < setup_.total_steps) return;
    throw runtime_failure(fmt::format("step {}", state_.step),
                          "no step of this run had a finite loss and gradient",
                          "nothing was trained and no result is written", kAgainstNonFinite);
  }

  void log(const Trainer::Outcome& outcome, double lr) {
    StepMetrics m;
    m.step = state_.step;
    m.total_steps = setup_.total_steps;
    m.epoch =
        static_cast<double>(state_.step) / static_cast<double>(setup_.order->steps_per_epoch());
    m.loss = outcome.loss;
    m.lr = lr;
    m.grad_norm = outcome.grad_norm;
    m.tokens = outcome.tokens;
    m.total_tokens = state_.total_tokens;
    m.tokens_per_second =
        seconds_since_log_ > 0 ? static_cast<double>(tokens_since_log_) / seconds_since_log_ : 0.0;
    m.seconds = elapsed();
    m.peak_memory_bytes = ctx_->peak_bytes();
    metrics_.write(m);
    observer_.on_step(m);
    tokens_since_log_ = 0;
    seconds_since_log_ = 0;
  }

  void evaluate() {
    const Trainer::Evaluation result =
        trainer_.evaluate(setup_.valid->rows, setup_.eval_batch_tokens());
    const EvalMetrics m{state_.step, result.mean(), result.tokens};
    metrics_.write(m);
    observer_.on_eval(m);
  }

  void save() {
    state_.seconds = elapsed();
    state_.metrics_bytes = metrics_.bytes();
    save_checkpoint(out_, state_, trainer_, setup_.options.model, setup_.options.keep);
    saved_step_ = state_.step;
    observer_.on_checkpoint(
        (out_ / "checkpoints" / fmt::format("step-{:06}", state_.step)).string());
  }

  void write_report() {
    const fs::path metrics = out_ / "metrics.jsonl";
    io::write_file_atomically(out_ / "report.html",
                              render_report(fmt::format("wgrad: {}", setup_.options.out),
                                            io::read_text_file(metrics, kMostMetricsBytes),
                                            all_settings(setup_.options)));
  }

  void write_result() {
    if (trainer_.adapter()) {
      trainer_.adapter()->save(*ctx_, out_, setup_.options.model);
    } else {
      model::save_model(*ctx_, trainer_.model(), setup_.options.model, out_);
    }
  }

  double elapsed() const {
    return seconds_before_ + std::chrono::duration<double>(Clock::now() - start_).count();
  }

  RunSetup& setup_;
  TrainObserver& observer_;
  fs::path out_;
  std::unique_ptr<Context> ctx_;
  Trainer trainer_;
  MetricsFile metrics_;
  RunState state_;
  int64_t saved_step_ = -1;
  int skipped_in_a_row_ = 0;
  int64_t tokens_since_log_ = 0;
  double seconds_since_log_ = 0;  ///< of the steps alone
  double seconds_before_ = 0;
  Clock::time_point start_;
};

RunState first_state(const RunSetup& setup) {
  RunState state;
  state.settings = numeric_settings(setup.options);
  state.data_fingerprint = setup.train.fingerprint;
  state.clock = setup.clock;
  return state;
}

}  // namespace
}  // namespace train

TrainResult run_training(const TrainOptions& options, TrainObserver& observer,
                         const std::atomic<bool>* stop) {
  train::check_folder(options);
  train::RunSetup setup = train::prepare(options, observer);
  observer.on_plan(train::make_plan(setup));
  train::make_folder(setup.options.out);
  const io::FolderLock lock(setup.options.out);
  // Another run may have come and gone since the first look.
  train::check_folder(options);
  const train::RunState start = train::first_state(setup);
  std::optional<std::filesystem::path> checkpoint;
  if (options.resume) {
    checkpoint = train::checkpoint_to_resume(
        options.out, start, [&](const std::string& text) { observer.on_warning(text); });
  }
  io::remove_abandoned(setup.options.out);
  train::Run run(setup, start, observer);
  if (options.resume) run.resume(checkpoint);
  io::write_file_atomically(std::filesystem::path(setup.options.out) / "run.yaml",
                            train::to_yaml(setup.options));
  return run.loop(stop);
}

TrainPlan plan_training(const TrainOptions& options, TrainObserver& observer) {
  train::RunSetup setup = train::prepare(options, observer);
  TrainPlan plan = train::make_plan(setup);
  const double rate = train::measure_matmul_rate(setup.device, setup.compute);
  if (rate > 0) {
    plan.seconds =
        static_cast<double>(plan.steps) * plan.flops_per_step / (rate * train::kStepEfficiency);
  }
  return plan;
}

}  // namespace wgrad
