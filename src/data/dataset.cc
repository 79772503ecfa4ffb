#include "data/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>

#include "data/encode_rows.h"

namespace wgrad::data {
namespace {

namespace fs = std::filesystem;

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

uint64_t fingerprint_of(const std::vector<Row>& rows) {
  uint64_t hash = 0x13198A2E03707344ull;
  for (const Row& row : rows) {
    mix(hash, row.ids.size());
    for (size_t i = 0; i < row.ids.size(); ++i) {
      mix(hash, uint64_t{row.ids[i]} << 1 | row.counted[i]);
    }
  }
  return hash;
}

/// Goes on without a bad row where the options say so.
void skip_bad(const std::exception_ptr& error, const EncodeOptions& options, Summary& summary) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& bad) {
    if (!options.skip_bad_rows || bad.kind() != ErrorKind::kInput) throw;
    if (summary.bad++ == 0) summary.first_bad = bad.what();
  }
}

/// The model's own limit where it is what cuts rows, else 0.
int64_t limit_of_model(const EncodeOptions& options) {
  const bool wider = options.max_seq_len <= 0 || options.max_seq_len >= options.model_limit;
  return options.model_limit > 0 && wider ? options.model_limit : 0;
}

void take_row(Row row, const EncodeOptions& options, Summary& summary,
              const std::function<void(Row&&)>& take) {
  if (cut(row, summary.model_limit > 0 ? summary.model_limit : options.max_seq_len)) ++summary.cut;
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

/// A path that is no folder is the file to train on; of a folder's files each may be missing.
DataFiles files_of(const std::string& path) {
  std::error_code error;
  if (path == "-" || !fs::is_directory(path, error)) return {path, {}};
  auto find = [&](const std::string& stem) -> std::string {
    for (const char* ending : {".jsonl", ".json"}) {
      const fs::path file = fs::path(path) / (stem + ending);
      if (fs::symlink_status(file, error).type() != fs::file_type::not_found) return file.string();
    }
    return {};
  };
  return {find("train"), find("valid")};
}

}  // namespace

int64_t Row::counted_tokens() const {
  return ids.empty() ? 0 : std::count(counted.begin() + 1, counted.end(), uint8_t{1});
}

std::vector<std::string> Summary::warnings() const {
  std::vector<std::string> texts;
  if (bad > 0) texts.push_back(fmt::format("{} bad rows skipped; the first: {}", bad, first_bad));
  if (cut > 0) {
    texts.push_back(fmt::format(
        "{} of {} rows cut to {}", cut, rows + nothing_left,
        model_limit > 0
            ? fmt::format("{} tokens, the model's limit (max_position_embeddings); split them",
                          model_limit)
            : "the longest length; raise --max-seq-len to keep them whole"));
  }
  if (nothing_left > 0) {
    texts.push_back(fmt::format("{} rows {}: nothing in them counts in the loss{}", nothing_left,
                                kept_uncounted ? "would be skipped" : "skipped",
                                cut > 0 ? " (some after the cut)" : ""));
  }
  return texts;
}

Summary for_each_row(const std::string& path, const text::TextAssets& assets,
                     const EncodeOptions& options, const std::function<void(Row&&)>& take) {
  Summary summary;
  summary.kept_uncounted = options.keep_uncounted;
  summary.model_limit = limit_of_model(options);
  RowEncoder encoder(path, assets, options);
  const int64_t most = options.limit > 0 ? options.limit : INT64_MAX;
  int64_t read = 0;
  for (;;) {
    std::vector<EncodedRow> rows = encoder.next(most - read);
    if (rows.empty()) break;
    for (EncodedRow& row : rows) {
      if (row.error) {
        skip_bad(row.error, options, summary);
        continue;
      }
      ++read;
      take_row(std::move(row.row), options, summary, take);
    }
  }
  if (read == 0 && summary.bad == 0) {
    const bool piped = path == "-";
    throw input_error(
        piped ? "standard input" : path, "holds no rows", "expected one JSON object a line",
        piped ? "check what is piped into it" : "check the path and how the file was written");
  }
  return summary;
}

Dataset load_dataset(const std::string& path, const text::TextAssets& assets,
                     const EncodeOptions& options) {
  Dataset dataset;
  dataset.path = path;
  dataset.summary = for_each_row(path, assets, options,
                                 [&](Row&& row) { dataset.rows.push_back(std::move(row)); });
  if (dataset.rows.empty()) {
    const Summary& s = dataset.summary;
    throw input_error(
        path,
        s.nothing_left > 0
            ? fmt::format("none of its {} rows has anything to train on", s.nothing_left)
            : fmt::format("all of its {} rows are bad; the first: {}", s.bad, s.first_bad),
        "expected rows with an answer (an assistant turn, a completion or a text)",
        s.cut == 0          ? "see `wgrad data` for what counts"
        : s.model_limit > 0 ? "shorten the rows: the answers lie past the model's limit"
                            : "raise --max-seq-len: the answers lie past the cut");
  }
  dataset.fingerprint = fingerprint_of(dataset.rows);
  return dataset;
}

DataFiles find_data_files(const std::string& path) {
  DataFiles files = files_of(path);
  if (!files.train.empty()) return files;
  throw input_error(path, "has no train.jsonl", "expected train.jsonl (and valid.jsonl)",
                    "name the file itself, or rename it to train.jsonl");
}

std::string find_eval_file(const std::string& path) {
  const DataFiles files = files_of(path);
  if (!files.valid.empty()) return files.valid;
  if (!files.train.empty()) return files.train;
  throw input_error(path, "has no valid.jsonl", "expected valid.jsonl or train.jsonl",
                    "name the file itself, or rename it to valid.jsonl");
}

}  // namespace wgrad::data
