#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <filesystem>

#include "io/atomic_file.h"
#include "io/folder_lock.h"
#include "model/merge.h"
#include "train/checkpoint.h"
#include "train/metrics.h"
#include "train/options.h"
#include "train/plan.h"
#include "train/report.h"
#include "train/run_folder.h"
#include "train/run_summary.h"
#include "train/setup.h"
#include "train/trainer.h"

namespace wgrad {
namespace train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kMostSkippedInARow = 3;
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
        log_(out_, setup.options.tensorboard),
        state_(std::move(state)) {
    if (ctx_->kind() == DeviceKind::kGpu) ctx_->device().compile(setup.kernels);
  }

  /// Goes on from the checkpoint, or without one begins again.
  void resume(const std::optional<fs::path>& checkpoint) {
    if (checkpoint) {
      restore_checkpoint(*checkpoint, trainer_);
      state_ = read_run_state(*checkpoint);
      saved_step_ = state_.step;
      observer_.on_resume(state_.step, checkpoint->string());
    }
    log_.keep_until(state_);
  }

  TrainResult loop(const std::atomic<bool>* stop) {
    start_ = Clock::now();
    seconds_before_ = state_.seconds;
    auto stopped = [stop] { return stop && stop->load(std::memory_order_relaxed); };
    if (state_.step == 0 && !log_.has_samples()) sample();
    while (state_.step < setup_.total_steps && !stopped()) {
      one_step();
      const TrainOptions& o = setup_.options;
      const bool last = state_.step == setup_.total_steps;
      const auto due = [&](int64_t every) { return every > 0 && state_.step % every == 0; };
      if (setup_.valid && (last || due(o.eval_every))) evaluate();
      if (last || due(o.sample_every)) sample();
      if (due(o.save_every)) save();
    }
    check_trained();
    if (saved_step_ != state_.step) {
      save();
    } else if (setup_.options.report) {
      write_report(out_);
    }
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
      throw runtime_failure(
          fmt::format("step {}", state_.step),
          fmt::format("{}, for the {}rd step in a row", seen, kMostSkippedInARow),
          "training cannot go on",
          against_non_finite() +
              (saved_step_ >= 0 ? "; the last checkpoint is intact" : "; no checkpoint was saved"));
    }
    observer_.on_warning(fmt::format("step {}: {}; the step is skipped", state_.step, seen));
  }

  /// A run that ends without one finite step has trained nothing.
  void check_trained() const {
    if (state_.updates > 0 || state_.step < setup_.total_steps) return;
    throw runtime_failure(fmt::format("step {}", state_.step),
                          "no step of this run had a finite loss and gradient",
                          "nothing was trained and no result is written", against_non_finite());
  }

  std::string against_non_finite() const {
    const bool f16 = setup_.compute == ComputeType::kF16;
    return fmt::format("lower --lr,{} and look at the data of these steps",
                       f16 ? " try --dtype f32," : "");
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
    log_.write(m);
    observer_.on_step(m);
    tokens_since_log_ = 0;
    seconds_since_log_ = 0;
  }

  void evaluate() {
    const Trainer::Evaluation result =
        trainer_.evaluate(setup_.valid->rows, setup_.eval_batch_tokens());
    const EvalMetrics m{state_.step, result.mean(), result.tokens};
    log_.write(m);
    observer_.on_eval(m);
  }

  void sample() {
    if (!setup_.sampler) return;
    std::vector<Sample> samples;
    try {
      samples = setup_.sampler->take(*ctx_, trainer_.model(), trainer_.adapter(), state_.step);
    } catch (const Error& error) {
      observer_.on_warning(fmt::format("step {}: no sample: {}", state_.step, error.what()));
    }
    for (const Sample& s : samples) {
      log_.write(s);
      observer_.on_sample(s);
    }
  }

  void save() {
    state_.seconds = elapsed();
    log_.note(state_);
    save_checkpoint(out_, state_, trainer_, setup_.options.model, setup_.options.keep);
    saved_step_ = state_.step;
    observer_.on_checkpoint(
        (out_ / "checkpoints" / fmt::format("step-{:06}", state_.step)).string());
    if (setup_.options.report) write_report(out_);
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
  RunLog log_;
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
  const TrainPlan plan = train::make_plan(setup);
  observer.on_plan(plan);
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
  io::write_file_atomically(std::filesystem::path(setup.options.out) / "run.json",
                            train::summary_json(setup, plan));
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
