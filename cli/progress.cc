#include "progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <vector>

namespace wgrad::cli {

std::string describe(const TrainPlan& plan) {
  std::string text = fmt::format(
      "device      {}\n"
      "method      {}, {} operands, recompute {}\n"
      "parameters  {}, {} trainable ({:.2f}%)\n"
      "data        {} rows, {} tokens an epoch, {} counted; largest micro-batch {} tokens\n"
      "steps       {}\n"
      "memory      {}{}\n",
      plan.device, plan.method, plan.dtype, plan.recompute,
      format_count(static_cast<double>(plan.parameters)),
      format_count(static_cast<double>(plan.trainable_parameters)),
      100.0 * static_cast<double>(plan.trainable_parameters) /
          static_cast<double>(std::max<int64_t>(plan.parameters, 1)),
      plan.rows, plan.tokens_per_epoch, plan.counted_tokens_per_epoch, plan.longest_micro_batch,
      plan.steps, format_bytes(plan.peak_bytes),
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

Progress::Progress() : terminal_(stderr_is_terminal()), colours_(terminal_) {}

void Progress::line(const std::string& text) {
  if (status_shown_) fmt::print(stderr, "\r\x1b[K");
  status_shown_ = false;
  fmt::print(stderr, "{}\n", text);
  std::fflush(stderr);
}

void Progress::status(const std::string& text) {
  if (!terminal_) return line(text);
  const size_t width = static_cast<size_t>(std::max(20, terminal_width() - 1));
  fmt::print(stderr, "\r\x1b[K{}", text.substr(0, width));
  std::fflush(stderr);
  status_shown_ = true;
}

void Progress::on_plan(const TrainPlan& plan) {
  line(fmt::format("{}: {} of {} parameters train, {} steps, {} planned on {} ({})", plan.method,
                   format_count(static_cast<double>(plan.trainable_parameters)),
                   format_count(static_cast<double>(plan.parameters)), plan.steps,
                   format_bytes(plan.peak_bytes), plan.device, plan.dtype));
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
  status(fmt::format(
      "step {}/{}  loss {}  lr {:.2e}  grad_norm {}  {:.0f} tokens/s  {}  "
      "{} left",
      m.step, m.total_steps, format_value(m.loss, 4), m.lr, format_value(m.grad_norm, 3),
      m.tokens_per_second, format_bytes(m.peak_memory_bytes), format_seconds(left)));
  if (m.step == m.total_steps && status_shown_) {
    fmt::print(stderr, "\n");
    status_shown_ = false;
  }
}

void Progress::on_eval(const EvalMetrics& m) {
  line(fmt::format("step {}  eval_loss {} over {} tokens", m.step, format_value(m.loss, 4),
                   m.tokens));
}

void Progress::on_checkpoint(const std::string& folder) {
  line(fmt::format("{}saved {}{}", colours_.dim(), folder, colours_.reset()));
}

void Progress::on_warning(const std::string& text) {
  line(fmt::format("{}warning:{} {}", colours_.yellow(), colours_.reset(), text));
}

}  // namespace wgrad::cli
