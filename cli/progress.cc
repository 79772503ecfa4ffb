#include "progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <vector>

#include "base/counted.h"
#include "data_summary.h"

namespace wgrad::cli {
namespace {

/// A part of the progress line; the higher its rank, the sooner it is left out.
struct Part {
  std::string text;
  int rank;
};

/// The parts that fit side by side, and of a first one that is too wide its beginning.
std::string in_columns(const std::vector<Part>& parts, int columns) {
  const int most = static_cast<int>(parts.size());
  for (int rank = most; rank > 0; --rank) {
    std::string line;
    for (const Part& part : parts) {
      if (part.rank < rank) line += (line.empty() ? "" : "  ") + part.text;
    }
    if (rank == 1 || display_width(line) <= columns) return fit(line, columns);
  }
  return {};
}

}  // namespace

std::string describe(const TrainPlan& plan) {
  std::string text = fmt::format(
      "device      {}\n"
      "method      {}, {} operands, recompute {}\n"
      "parameters  {}, {} trainable ({:.2f}%)\n"
      "data        {}, {} an epoch, {} counted; largest micro-batch {}\n"
      "steps       {}\n"
      "memory      {}{}\n",
      plan.device, plan.method, plan.dtype, plan.recompute,
      format_count(static_cast<double>(plan.parameters)),
      format_count(static_cast<double>(plan.trainable_parameters)),
      100.0 * static_cast<double>(plan.trainable_parameters) /
          static_cast<double>(std::max<int64_t>(plan.parameters, 1)),
      counted(plan.rows, "row"), counted(plan.tokens_per_epoch, "token"),
      plan.counted_tokens_per_epoch, counted(plan.longest_micro_batch, "token"), plan.steps,
      format_bytes(plan.peak_bytes),
      plan.available_bytes > 0 ? fmt::format(" of {} free", format_bytes(plan.available_bytes))
                               : std::string());
  std::vector<std::pair<int64_t, std::string>> parts;
  for (const auto& [label, bytes] : plan.bytes_by_label) parts.emplace_back(bytes, label);
  std::sort(parts.rbegin(), parts.rend());
  for (const auto& [bytes, label] : parts) {
    if (bytes * 200 < plan.peak_bytes) break;
    text += fmt::format("            {:>10}  {}\n", format_bytes(bytes), label);
  }
  if (plan.seconds > 0) text += fmt::format("time        about {}\n", format_seconds(plan.seconds));
  return text;
}

Progress::Progress() : renews_(stderr_renews_lines()), colours_(stderr_is_terminal()) {}

void Progress::line(const std::string& text) {
  if (status_shown_) say("\r\x1b[K");
  status_shown_ = false;
  say(text + "\n");
  std::fflush(stderr);
}

void Progress::status(const std::string& text) {
  if (!renews_) return line(text);
  say("\r\x1b[K" + text);
  std::fflush(stderr);
  status_shown_ = true;
}

void Progress::on_data(const DataSummary& summary) {
  std::string text = describe(summary);
  text.pop_back();
  line(text);
}

void Progress::on_plan(const TrainPlan& plan) {
  line(fmt::format("{}: {} of {} parameters train, {}, {} planned on {} ({})", plan.method,
                   format_count(static_cast<double>(plan.trainable_parameters)),
                   format_count(static_cast<double>(plan.parameters)), counted(plan.steps, "step"),
                   format_bytes(plan.peak_bytes), plan.device, plan.dtype));
}

void Progress::on_resume(int64_t step, const std::string& folder) {
  line(fmt::format("going on after step {}, from {}", step, folder));
}

void Progress::on_step(const StepMetrics& m) {
  const double interval = m.seconds - last_seconds_;
  if (interval > 0) {
    const double now = static_cast<double>(m.step - last_step_) / interval;
    speed_ = last_step_ == 0 || speed_ == 0 ? now : 0.8 * speed_ + 0.2 * now;
  }
  last_seconds_ = m.seconds;
  last_step_ = m.step;
  const double left = speed_ > 0 ? static_cast<double>(m.total_steps - m.step) / speed_ : 0;
  // The last column stays free: some terminals begin a new line when it is written.
  status(in_columns(
      {
          {fmt::format("step {}/{}", m.step, m.total_steps), 0},
          {fmt::format("loss {}", format_value(m.loss, 4)), 1},
          {fmt::format("lr {:.2e}", m.lr), 4},
          {fmt::format("grad_norm {}", format_value(m.grad_norm, 3)), 5},
          {fmt::format("{:.0f} tokens/s", m.tokens_per_second), 3},
          {format_bytes(m.peak_memory_bytes), 6},
          {fmt::format("{} left", format_seconds(left)), 2},
      },
      renews_ ? terminal_width() - 1 : INT_MAX));
  if (m.step == m.total_steps && status_shown_) {
    say("\n");
    status_shown_ = false;
  }
}

void Progress::on_eval(const EvalMetrics& m) {
  line(fmt::format("step {}  eval_loss {} over {}", m.step, format_value(m.loss, 4),
                   counted(m.tokens, "token")));
}

void Progress::on_sample(const Sample& sample) {
  const std::string text = fmt::format("step {}  {} -> {}", sample.step, printable(sample.prompt),
                                       printable(sample.text));
  line(renews_ ? fit(text, terminal_width() - 1) : text);
}

void Progress::on_checkpoint(const std::string& folder) {
  line(fmt::format("{}saved {}{}", colours_.dim(), folder, colours_.reset()));
}

void Progress::on_warning(const std::string& text) {
  line(fmt::format("{}warning:{} {}", colours_.yellow(), colours_.reset(), text));
}

}  // namespace wgrad::cli
