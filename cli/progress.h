#pragma once

#include <string>

#include "terminal.h"
#include "wgrad/train.h"

namespace wgrad::cli {

/// Shows a run on standard error: on a terminal one line that renews itself and fits its width as
/// it is at that moment, plain lines elsewhere.
class Progress : public TrainObserver {
 public:
  Progress();

  void on_data(const DataSummary& summary) override;
  void on_plan(const TrainPlan& plan) override;
  void on_resume(int64_t step, const std::string& folder) override;
  void on_step(const StepMetrics& metrics) override;
  void on_eval(const EvalMetrics& metrics) override;
  void on_sample(const Sample& sample) override;
  void on_checkpoint(const std::string& folder) override;
  void on_warning(const std::string& text) override;

 private:
  void line(const std::string& text);    ///< a line that stays
  void status(const std::string& text);  ///< the line that renews itself

  bool renews_;  ///< the terminal can clear a line
  Colours colours_;
  bool status_shown_ = false;
  double speed_ = 0;  ///< steps a second, smoothed
  double last_seconds_ = 0;
  int64_t last_step_ = 0;
};

/// A plan as lines of text.
std::string describe(const TrainPlan& plan);

}  // namespace wgrad::cli
