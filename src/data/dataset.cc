#include "data/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "base/counted.h"
#include "data/encode_rows.h"

namespace wgrad::data {
namespace {

/// Cuts the row at the end; true where that shortened it.
bool cut(Row& row, int64_t max_tokens) {
  if (max_tokens <= 0 || row.tokens() <= max_tokens) return false;
  row.ids.resize(static_cast<size_t>(max_tokens));
  row.counted.resize(static_cast<size_t>(max_tokens));
  return true;
}

void mix(uint64_t& hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
  hash ^= hash >> 29;
}

void mix(uint64_t& hash, const Row& row) {
  mix(hash, row.ids.size());
  for (size_t i = 0; i < row.ids.size(); ++i) {
    mix(hash, uint64_t{row.ids[i]} << 1 | row.counted[i]);
  }
}

/// Only bad input can be skipped.
void note_bad(const std::exception_ptr& error, Summary& summary) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& bad) {
    if (bad.kind() != ErrorKind::kInput) throw;
    ++summary.bad;
    if (summary.first_bad.size() < Summary::kBadListed) summary.first_bad.push_back(bad.what());
  }
}

[[noreturn]] void refuse_bad(const Files& files, const std::exception_ptr& first,
                             const Summary& summary) {
  if (summary.bad == 1) std::rethrow_exception(first);
  throw input_error(name_of(files), summary.describe_bad(), {},
                    "mend these rows, or pass --skip-bad-rows");
}

/// Rows that are looked through for more bad ones: what is piped in may have no end.
constexpr int64_t kMostReadOn = 20'000;

Summary first_summary(const EncodeOptions& options) {
  Summary summary;
  summary.kept_uncounted = options.keep_uncounted;
  summary.models_limit = options.model_limit > 0 &&
                         (options.max_seq_len <= 0 || options.max_seq_len >= options.model_limit);
  summary.cut_to = summary.models_limit ? options.model_limit : options.max_seq_len;
  return summary;
}

void take_row(Row row, const EncodeOptions& options, Summary& summary,
              const std::function<void(Row&&)>& take) {
  ++summary.lengths[row.tokens()];
  if (cut(row, summary.cut_to)) ++summary.cut;
  const int64_t counted = row.counted_tokens();
  if (counted == 0) {
    ++summary.nothing_left;
    if (options.keep_uncounted) take(std::move(row));
    return;
  }
  ++summary.rows;
  summary.tokens += row.tokens();
  summary.counted_tokens += counted;
  summary.longest = std::max(summary.longest, row.tokens());
  take(std::move(row));
}

}  // namespace

Summary for_each_row(const Files& files, const text::TextAssets& assets,
                     const EncodeOptions& options, const std::function<void(Row&&)>& take) {
  Summary summary = first_summary(options);
  RowEncoder encoder(files, assets, options);
  const int64_t most = options.limit > 0 ? options.limit : INT64_MAX;
  int64_t read = 0;
  std::exception_ptr first_bad;  // where bad rows are not skipped; more are read to list them
  int64_t read_on = 0;
  for (;;) {
    std::vector<EncodedRow> rows = encoder.next(most - read);
    if (first_bad) read_on += static_cast<int64_t>(rows.size());
    if (read_on > kMostReadOn) break;
    if (rows.empty()) break;
    for (EncodedRow& row : rows) {
      if (row.error) {
        note_bad(row.error, summary);
        if (!options.skip_bad_rows && !first_bad) first_bad = row.error;
        continue;
      }
      ++read;
      if (first_bad) continue;
      if (row.beside_template) ++summary.beside_template;
      take_row(std::move(row.row), options, summary, take);
    }
  }
  if (first_bad) refuse_bad(files, first_bad, summary);
  if (read == 0 && summary.bad == 0) {
    const bool piped = files == Files{"-"};
    throw input_error(
        name_of(files), "holds no rows", "expected one JSON object a line",
        piped ? "check what is piped into it" : "check the path and how the file was written");
  }
  return summary;
}

Dataset load_dataset(const Files& files, const text::TextAssets& assets,
                     const EncodeOptions& options) {
  Dataset dataset;
  dataset.name = name_of(files);
  dataset.fingerprint = 0x13198A2E03707344ull;
  dataset.summary = for_each_row(files, assets, options, [&](Row&& row) {
    mix(dataset.fingerprint, row);
    dataset.rows.add(row);
  });
  if (dataset.rows.size() == 0) {
    const Summary& s = dataset.summary;
    throw input_error(
        dataset.name,
        s.nothing_left > 0
            ? fmt::format("none of its {} has anything to train on", counted(s.nothing_left, "row"))
            : fmt::format("none of its rows can be used: {}", s.describe_bad()),
        "expected rows with an answer (an assistant turn, a completion or a text)",
        s.cut == 0       ? "see `wgrad data` for what counts"
        : s.models_limit ? "shorten the rows: the answers lie past the model's limit"
                         : "raise --max-seq-len: the answers lie past the cut");
  }
  return dataset;
}

}  // namespace wgrad::data
