#include "train/ways_to_fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "train/plan_memory.h"

namespace wgrad::train {
namespace {

/// Tokens up to which every row still has something that counts in the loss.
int64_t shortest_cut(const data::RowStore& rows) {
  int64_t needed = 2;
  for (int64_t i = 0; i < rows.size(); ++i) {
    const data::Row row = rows.row(i);
    const auto first = std::find(row.counted.begin() + 1, row.counted.end(), uint8_t{1});
    if (first != row.counted.end()) {
      needed = std::max(needed, static_cast<int64_t>(first - row.counted.begin()) + 1);
    }
  }
  return needed;
}

class Ways {
 public:
  Ways(RunSetup& setup, Recompute recompute, const std::vector<DeviceChoice>& devices,
       int64_t available)
      : setup_(setup),
        devices_(devices),
        available_(available),
        recompute_(recompute),
        method_(setup.options.method),
        batch_size_(setup.options.batch_size) {}

  std::string text() {
    std::vector<std::string> alone;
    const auto try_alone = [&](auto change) {
      const std::string option = (this->*change)();
      if (!option.empty() && fits()) alone.push_back(with_need(option));
      reset();
    };
    try_alone(&Ways::recompute_blocks);
    try_alone(&Ways::train_less);
    try_alone(&Ways::quantise);
    try_alone(&Ways::lower_batch_size);
    try_alone(&Ways::cut_rows);
    if (!alone.empty()) return fmt::format("use {}", fmt::join(alone, ", or "));
    return together();
  }

 private:
  // Each makes one change and says by which option; empty: there is nothing to change.

  std::string recompute_blocks() {
    if (recompute_ == Recompute::kBlock) return {};
    recompute_ = Recompute::kBlock;
    return "--recompute block";
  }

  std::string train_less() {
    if (setup_.options.method != Method::kFull) return {};
    setup_.options.method = Method::kLora;
    return "--method lora";
  }

  std::string quantise() {
    if (setup_.options.method == Method::kQlora) return {};
    setup_.options.method = Method::kQlora;
    return "--method qlora";
  }

  /// The largest one that fits of those halved again and again, else 1.
  std::string lower_batch_size() {
    int64_t& size = setup_.options.batch_size;
    if (size == 1) return {};
    do {
      size /= 2;
      setup_.order_rows();
    } while (size > 1 && !fits());
    return fmt::format("--batch-size {} (raise --grad-accum in return)", size);
  }

  /// Nearly the longest rows that fit, and that leave every row something to learn.
  std::string cut_rows() {
    const int64_t shortest = shortest_cut(setup_.train.rows);
    int64_t fitting = shortest, too_long = setup_.longest_row;
    if (shortest >= too_long) return {};
    setup_.cut_rows(shortest);
    if (!fits()) return fmt::format("--max-seq-len {}", shortest);
    while (too_long - fitting > std::max<int64_t>(1, fitting / 8)) {
      const int64_t middle = (fitting + too_long) / 2;
      setup_.cut_rows(middle);
      (fits() ? fitting : too_long) = middle;
    }
    setup_.cut_rows(fitting);
    return fmt::format("--max-seq-len {}", fitting);
  }

  /// One change after the other until the run fits, the cheapest in time and quality first.
  std::string together() {
    std::string options;
    for (auto change :
         {&Ways::recompute_blocks, &Ways::lower_batch_size, &Ways::quantise, &Ways::cut_rows}) {
      const std::string option = (this->*change)();
      if (option.empty()) continue;
      options += (options.empty() ? "" : " and ") + option;
      if (fits()) return fmt::format("use {}", with_need(options));
    }
    return "no setting makes it fit: take a smaller model or a device with more memory";
  }

  void reset() {
    recompute_ = given_recompute_;
    setup_.options.method = method_;
    setup_.options.batch_size = batch_size_;
    setup_.cut_rows(0);
  }

  bool fits() { return need() <= available_; }

  std::string with_need(const std::string& option) {
    return fmt::format("{} ({})", option, gigabytes(need()));
  }

  int64_t need() {
    int64_t most = 0;
    for (const DeviceChoice& device : devices_) {
      setup_.device = device;
      setup_.compute = choose_compute(setup_.options.dtype, device);
      try {
        most = std::max(most, plan_memory(setup_, recompute_).bytes);
      } catch (const Error&) {  // the settings do not go together
        return INT64_MAX;
      }
    }
    return most;
  }

  RunSetup& setup_;
  const std::vector<DeviceChoice>& devices_;
  int64_t available_;
  Recompute recompute_;
  const Recompute given_recompute_ = recompute_;
  const Method method_;
  const int64_t batch_size_;
};

}  // namespace

std::string gigabytes(int64_t bytes) {
  return fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9);
}

std::string ways_to_fit(RunSetup& setup, Recompute recompute,
                        const std::vector<DeviceChoice>& devices, int64_t available) {
  return Ways(setup, recompute, devices, available).text();
}

}  // namespace wgrad::train
