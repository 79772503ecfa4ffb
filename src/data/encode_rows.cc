#include "data/encode_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <utility>

#include "data/encode.h"
#include "data/format.h"

namespace wgrad::data {
namespace {

constexpr size_t kRowsAThread = 64;
constexpr size_t kChunkBytes = size_t{8} << 20;

/// About the bytes that the row's texts take.
size_t text_bytes(const nlohmann::ordered_json& value) {
  if (value.is_string()) return value.get_ref<const std::string&>().size();
  size_t bytes = 1;
  if (value.is_structured()) {
    for (const auto& item : value) bytes += text_bytes(item);
  }
  return bytes;
}

void check_ids(const Row& row, int64_t vocab_size) {
  if (vocab_size <= 0) return;
  for (size_t i = 0; i < row.ids.size(); ++i) {
    if (row.ids[i] < vocab_size) continue;
    throw input_error(row.where, fmt::format("token {} of the row is {}", i, row.ids[i]),
                      fmt::format("expected one below the model's vocabulary of {}", vocab_size),
                      "use the tokenizer that belongs to the model");
  }
}

}  // namespace

RowEncoder::RowEncoder(Files files, const text::TextAssets& assets, const EncodeOptions& options)
    : files_(std::move(files)),
      assets_(assets),
      options_(options),
      threads_(std::max(1u, std::thread::hardware_concurrency())) {}

bool RowEncoder::read(EncodedRow& row) {
  while (true) {
    if (!lines_) {
      if (opened_ == files_.size()) return false;
      lines_ = io::JsonLines::open(files_[opened_++]);
    }
    try {
      if (!lines_->next(row.json)) {
        lines_.reset();
        continue;
      }
    } catch (...) {
      row.error = std::current_exception();
    }
    row.row.where = lines_->where();
    row.row.number = ++read_;
    // The rest of such a row may have no end.
    if (row.error && lines_->within_row() && !options_.skip_bad_rows) {
      lines_.reset();
      opened_ = files_.size();
    }
    return true;
  }
}

void RowEncoder::encode(EncodedRow& row) const {
  if (row.error) return;
  try {
    const int64_t number = row.row.number;
    const std::string where = std::move(row.row.where);
    const bool has_template = assets_.chat_template.has_value();
    const ParsedRow parsed = parse_row(row.json, options_.prompt_style, has_template, where);
    row.beside_template = has_template && parsed.plain && parsed.plain->is_completion;
    row.row = encode_row(parsed, assets_, options_.train_on, where);
    row.row.number = number;
    row.row.where = where;
    check_ids(row.row, options_.vocab_size);
  } catch (...) {
    row.error = std::current_exception();
  }
  row.json = nullptr;
}

void RowEncoder::encode_all(std::vector<EncodedRow>& rows) const {
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < rows.size(); i = next++) encode(rows[i]);
  };
  std::vector<std::jthread> helpers;
  try {
    while (helpers.size() + 1 < std::min(threads_, rows.size())) helpers.emplace_back(work);
  } catch (const std::system_error&) {  // as many threads as the system gives
  }
  work();
}

std::vector<EncodedRow> RowEncoder::next(int64_t most) {
  std::vector<EncodedRow> rows;
  size_t bytes = 0;
  const size_t count =
      static_cast<size_t>(std::min(most, static_cast<int64_t>(kRowsAThread * threads_)));
  while (rows.size() < count && bytes < kChunkBytes) {
    EncodedRow row;
    if (!read(row)) break;
    bytes += text_bytes(row.json);
    rows.push_back(std::move(row));
  }
  encode_all(rows);
  return rows;
}

}  // namespace wgrad::data
