#include "data_summary.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/counted.h"

namespace wgrad::cli {
namespace {

constexpr int64_t kBarWidth = 32;

std::string what_was_left_out(const DataSummary& data) {
  std::string text;
  if (data.cut > 0) text += fmt::format("; {} cut to {}", data.cut, data.cut_to);
  if (data.skipped > 0) text += fmt::format("; {} with nothing that counts", data.skipped);
  if (data.bad > 0) text += fmt::format("; {} bad", data.bad);
  return text;
}

}  // namespace

std::string describe(const DataSummary& data) {
  std::string text = fmt::format(
      "{:<6}  {}, {}, {} counted ({:.0f}%)\n"
      "        length: median {}, 90% up to {}, longest {}{}\n",
      data.name, counted(data.rows, "row"), counted(data.tokens, "token"), data.counted_tokens,
      100.0 * static_cast<double>(data.counted_tokens) /
          static_cast<double>(std::max<int64_t>(data.tokens, 1)),
      data.median_length, data.p90_length, data.longest, what_was_left_out(data));
  int64_t most = 1;
  for (const DataSummary::Bin& bin : data.lengths) most = std::max(most, bin.rows);
  for (const DataSummary::Bin& bin : data.lengths) {
    const double share = static_cast<double>(bin.rows) / static_cast<double>(most);
    const auto width = static_cast<size_t>(share * kBarWidth + 0.999);
    text += fmt::format("        {:>15}  {:<{}}  {}\n", fmt::format("{}-{}", bin.from, bin.to),
                        std::string(width, '#'), kBarWidth, bin.rows);
  }
  return text;
}

nlohmann::ordered_json to_json(const DataSummary& data) {
  nlohmann::ordered_json json;
  json["rows"] = data.rows;
  json["tokens"] = data.tokens;
  json["counted_tokens"] = data.counted_tokens;
  json["length"] = {
      {"median", data.median_length}, {"p90", data.p90_length}, {"longest", data.longest}};
  json["cut"] = data.cut;
  json["skipped"] = data.skipped;
  json["bad"] = data.bad;
  json["histogram"] = nlohmann::ordered_json::array();
  for (const DataSummary::Bin& bin : data.lengths) {
    json["histogram"].push_back({{"from", bin.from}, {"to", bin.to}, {"rows", bin.rows}});
  }
  return json;
}

}  // namespace wgrad::cli
