#include "train/setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "data/model_text.h"
#include "model/adapter.h"
#include "train/checkpoint.h"
#include "train/options.h"

namespace wgrad::train {
namespace {

int64_t count_steps(const TrainOptions& options, const data::BatchOrder& order) {
  if (options.steps > 0) return options.steps;
  const double steps = std::ceil(options.epochs * static_cast<double>(order.steps_per_epoch()));
  if (steps > 1e15) {
    throw input_error("--epochs", fmt::format("{}", options.epochs),
                      "expected fewer than 1e15 steps in all", "give fewer epochs");
  }
  return std::max<int64_t>(1, static_cast<int64_t>(steps));
}

void report(const data::Dataset& dataset, const char* name, TrainObserver& observer) {
  observer.on_data(data::describe(dataset.summary, name));
  for (const std::string& text : dataset.summary.warnings()) observer.on_warning(text);
}

/// The names of the modules that the settings adapt.
std::vector<std::string> adapted_names(const model::ModelConfig& config,
                                       const model::LoraConfig& lora) {
  std::vector<std::string> names;
  for (const auto& module : adapted_modules(config, lora, model::Unmatched::kIgnore)) {
    names.push_back(module.name);
  }
  return names;
}

/// An adapter to continue from brings its own settings. What was given and says otherwise is
/// refused; other targets may be given that name the same modules.
void take_adapter_settings(TrainOptions& options, const model::ModelConfig& config) {
  if (options.init_adapter.empty()) return;
  const TrainOptions given = options;
  const model::LoraConfig lora = model::read_lora_config(options.init_adapter);
  set_lora_config(options, lora);
  const auto settings = [](const TrainOptions& o) { return numeric_settings(o); };
  const auto standard = settings(TrainOptions()), before = settings(given), now = settings(options);
  for (size_t i = 0; i < now.size(); ++i) {
    if (before[i] == standard[i] || before[i] == now[i]) continue;
    if (before[i].first == "targets" &&
        adapted_names(config, lora_config(given)) == adapted_names(config, lora)) {
      continue;
    }
    throw input_error(
        fmt::format("--{}", before[i].first),
        fmt::format("{} has another one in its adapter_config.json", options.init_adapter),
        "an adapter to continue from brings its own", "leave the option out");
  }
}

/// Rows whose template prints the date must not differ the day after.
int64_t clock_of(const TrainOptions& options) {
  const std::optional<int64_t> saved = options.resume ? saved_clock(options.out) : std::nullopt;
  return saved ? *saved : std::max<int64_t>(0, text::local_clock());
}

}  // namespace

std::vector<MicroBatch> RunSetup::micro_batches(int64_t step) const {
  std::vector<MicroBatch> batches;
  for (const std::vector<int64_t>& rows : order->step(step)) {
    MicroBatch& batch = batches.emplace_back();
    for (int64_t row : rows) batch.push_back(train.rows.row(row));
  }
  return batches;
}

int64_t RunSetup::most_tokens_of(int64_t step) const {
  int64_t most = 0;
  for (const std::vector<int64_t>& rows : order->step(step)) {
    int64_t tokens = 0;
    for (int64_t row : rows) tokens += train.rows.tokens(row);
    most = std::max(most, tokens);
  }
  return most;
}

std::vector<int64_t> RunSetup::largest_steps(int64_t count) const {
  constexpr int64_t kMostStepsRead = 200'000;
  std::vector<std::pair<int64_t, int64_t>> by_size;  // (-tokens, step)
  for (int64_t step = 0; step < std::min(total_steps, kMostStepsRead); ++step) {
    by_size.emplace_back(-most_tokens_of(step), step);
  }
  const auto kept = std::min(by_size.size(), static_cast<size_t>(count));
  std::partial_sort(by_size.begin(), by_size.begin() + static_cast<int64_t>(kept), by_size.end());
  std::vector<int64_t> steps;
  for (size_t i = 0; i < kept; ++i) steps.push_back(by_size[i].second);
  std::sort(steps.begin(), steps.end());
  return steps;
}

int64_t RunSetup::eval_batch_tokens() const { return order->most_tokens(); }

void RunSetup::order_rows() {
  data::BatchOptions batches;
  batches.batch_size = options.batch_size;
  batches.grad_accum = options.grad_accum;
  batches.packing = options.packing;
  batches.max_seq_len = std::min(options.max_seq_len, config.max_positions);
  if (cut_to > 0) batches.max_seq_len = std::min(batches.max_seq_len, cut_to);
  batches.shuffle = options.shuffle;
  batches.seed = options.seed;
  order = std::make_unique<data::BatchOrder>(train.rows.lengths(), batches);
  total_steps = count_steps(options, *order);
}

void RunSetup::cut_rows(int64_t most) {
  cut_to = most;
  const auto cut = [&](data::Dataset& set) {
    set.rows.cut(most);
    const int64_t longest = set.summary.longest;
    longest_row = std::max(longest_row, most > 0 ? std::min(longest, most) : longest);
  };
  longest_row = 0;
  cut(train);
  if (valid) cut(*valid);
  order_rows();
}

RunSetup prepare(const TrainOptions& given, TrainObserver& observer,
                 const std::optional<DeviceChoice>& device) {
  RunSetup setup;
  setup.options = given;
  TrainOptions& options = setup.options;
  validate(options);
  options.lr = options.lr.value_or(options.method == Method::kFull ? 2e-5 : 2e-4);

  setup.device = device ? *device : choose_device(options.device);
  setup.compute = choose_compute(options.dtype, setup.device);
  setup.config = model::read_config(options.model);
  if (const std::string note = setup.config.note_on_parts(); !note.empty()) {
    observer.on_warning(fmt::format("{}: {}", options.model, note));
  }
  take_adapter_settings(options, setup.config);
  setup.source = io::open_checkpoint(options.model);

  data::EncodeOptions encode;
  encode.max_seq_len = options.max_seq_len;
  encode.model_limit = setup.config.max_positions;
  encode.vocab_size = setup.config.vocab_size;
  encode.prompt_style = options.prompt_style;
  encode.train_on = options.train_on;
  encode.skip_bad_rows = options.skip_bad_rows;
  text::TextAssets assets = data::load_model_text(options.model);
  setup.clock = clock_of(options);
  if (assets.chat_template) assets.chat_template->set_now(setup.clock);
  const data::DataFiles files = data::find_data_files(options.data);
  setup.train = data::load_dataset(files.train, assets, encode);
  report(setup.train, "train", observer);
  const data::Files valid =
      options.eval_data.empty() ? files.valid : data::find_eval_files(options.eval_data);
  if (!valid.empty()) {
    setup.valid = data::load_dataset(valid, assets, encode);
    report(*setup.valid, "valid", observer);
  } else if (options.eval_every > 0) {
    throw input_error("--eval-every", fmt::format("{}", options.eval_every),
                      "there are no rows to evaluate on",
                      "give --eval-data, or a --data folder with valid.jsonl");
  }

  if (Sampler::wanted(options)) {
    setup.sampler.emplace(options, std::move(assets), setup.config.max_positions);
  }

  setup.cut_rows(0);
  setup.learning_rate = make_learning_rate(options, setup.total_steps);
  return setup;
}

}  // namespace wgrad::train
