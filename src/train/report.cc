#include "train/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "train/report_assets.h"
#include "train/report_data.h"

namespace wgrad::train {
namespace {

constexpr size_t kMostPoints = 2000;   // of a chart
constexpr size_t kMostTableRows = 26;  // of the figures as text
constexpr size_t kMostSamples = 12;    // of a prompt

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

/// A SHA-256 in hexadecimal as a content security policy has it.
std::string base64_of_hex(std::string_view hex) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : hex) {
    bits = bits << 4 | static_cast<uint32_t>(c <= '9' ? c - '0' : c - 'a' + 10);
    for (count += 4; count >= 6; count -= 6) out += kDigits[bits >> (count - 6) & 63];
  }
  if (count > 0) out += kDigits[bits << (6 - count) & 63];
  while (out.size() % 4 != 0) out += '=';
  return out;
}

std::string figure(double value, const char* unit = "") {
  return std::isfinite(value) ? fmt::format("{:.4g}{}", value, unit) : "–";
}

std::string grouped(double value) {
  std::string digits = fmt::format("{:.0f}", value);
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<size_t>(at), ",");
  }
  return digits;
}

std::string short_count(double count) {
  if (count >= 1e9) return fmt::format("{:.2f} B", count / 1e9);
  return count >= 1e6 ? fmt::format("{:.2f} M", count / 1e6) : grouped(count);
}

std::string duration(double seconds) {
  const auto s = static_cast<int64_t>(seconds + 0.5);
  if (s >= 3600) return fmt::format("{} h {:02} min", s / 3600, s / 60 % 60);
  return s >= 60 ? fmt::format("{} min {:02} s", s / 60, s % 60) : fmt::format("{} s", s);
}

/// Numbers of a run's JSON as a list for the script; null where there is none.
template <typename T>
std::string list(const std::vector<T>& items, double T::*member) {
  std::string out = "[";
  for (const T& item : items) {
    const double value = item.*member;
    out += out.size() > 1 ? "," : "";
    out += std::isfinite(value) ? fmt::format("{:.7g}", value) : "null";
  }
  return out + "]";
}

/// The charts' data. In a script element `<` could begin its end tag.
std::string chart_data(const ReportData& data, const nlohmann::json& rows) {
  const std::vector<ReportStep> steps = thinned(data.steps, kMostPoints);
  const std::vector<ReportEval> evals = thinned(data.evals, kMostPoints);
  std::string json = fmt::format(
      "{{\"steps\":{},\"loss\":{},\"lr\":{},\"grad_norm\":{},\"tokens_per_second\":{},\"memory\":{}"
      ","
      "\"eval\":{{\"steps\":{},\"loss\":{}}}",
      list(steps, &ReportStep::step), list(steps, &ReportStep::loss), list(steps, &ReportStep::lr),
      list(steps, &ReportStep::grad_norm), list(steps, &ReportStep::tokens_per_second),
      list(steps, &ReportStep::memory), list(evals, &ReportEval::step),
      list(evals, &ReportEval::loss));
  if (rows.contains("lengths")) json += ",\"lengths\":" + rows["lengths"].dump();
  json += "}";
  for (size_t at = 0; (at = json.find('<', at)) != std::string::npos;) {
    json.replace(at, 1, "\\u003c");
  }
  return json;
}

template <typename T>
std::string in_words(const std::vector<T>& items, double T::*member, const char* unit = "") {
  const T *first = nullptr, *low = nullptr, *high = nullptr, *last = nullptr;
  for (const T& item : items) {
    if (!std::isfinite(item.*member)) continue;
    if (!first) first = low = high = &item;
    if (item.*member < low->*member) low = &item;
    if (item.*member > high->*member) high = &item;
    last = &item;
  }
  if (!first) return {};
  if (low == high) return fmt::format("{} throughout", figure(last->*member, unit));
  return fmt::format("{} at step {}, {} at the last; lowest {}, highest {}",
                     figure(first->*member, unit), first->step, figure(last->*member, unit),
                     figure(low->*member, unit), figure(high->*member, unit));
}

std::string chart(std::string_view id, std::string_view title, const std::string& words,
                  bool wide = false) {
  if (words.empty()) return {};
  return fmt::format(
      "<figure id=\"{}\"{}><figcaption><h2>{}</h2><p>{}</p></figcaption>"
      "<div class=\"plot\" role=\"img\" aria-label=\"{}: {}\"></div></figure>\n",
      id, wide ? " class=\"wide\"" : "", title, escape(words), title, escape(words));
}

std::string card(std::string_view name, const std::string& value, const std::string& under = {}) {
  return fmt::format("<div class=\"card\"><dt>{}</dt><dd>{}</dd><p>{}</p></div>\n", name,
                     escape(value), escape(under));
}

double whole(const nlohmann::json& json, const char* key) {
  const auto value = json.find(key);
  return value != json.end() && value->is_number() ? value->get<double>() : 0.0;
}

std::string cards(const ReportData& data, const nlohmann::json& run) {
  std::string html = "<dl class=\"cards\">\n";
  const double steps = data.steps.empty() ? 0 : data.steps.back().step;
  const double all = whole(run, "steps");
  html += card("steps", grouped(steps), all > steps ? fmt::format("of {}", grouped(all)) : "");
  if (!data.steps.empty())
    html += card("training loss", figure(data.steps.back().loss), "last step");
  if (!data.evals.empty()) {
    const ReportEval& last = data.evals.back();
    html += card("evaluation loss", figure(last.loss),
                 fmt::format("perplexity {}", figure(std::exp(last.loss))));
  }
  html += card("tokens", grouped(data.tokens));
  html +=
      card("time", duration(data.seconds),
           data.seconds > 0 ? fmt::format("{} tokens/s", grouped(data.tokens / data.seconds)) : "");
  const double planned = whole(run, "planned_memory_bytes") / 1e9;
  html += card("peak memory", figure(data.memory, " GB"),
               planned > 0 ? fmt::format("{} planned", figure(planned, " GB")) : "");
  if (const double trained = whole(run, "trainable_parameters"); trained > 0) {
    const double parameters = std::max(1.0, whole(run, "parameters"));
    html += card("trained", short_count(trained),
                 fmt::format("{:.2f}% of {}", 100 * trained / parameters, short_count(parameters)));
  }
  return html + "</dl>\n";
}

std::string charts(const ReportData& data, const nlohmann::json& rows) {
  std::string loss = in_words(data.steps, &ReportStep::loss);
  if (const std::string eval = in_words(data.evals, &ReportEval::loss); !eval.empty()) {
    loss += (loss.empty() ? "evaluation: " : ". Evaluation: ") + eval;
  }
  std::string html = "<div class=\"charts\">\n";
  html += chart("loss", "Loss", loss, true);
  html += chart("lr", "Learning rate", in_words(data.steps, &ReportStep::lr));
  html += chart("grad_norm", "Gradient norm before clipping",
                in_words(data.steps, &ReportStep::grad_norm));
  html += chart("speed", "Tokens a second", in_words(data.steps, &ReportStep::tokens_per_second));
  html += chart("memory", "Peak memory", in_words(data.steps, &ReportStep::memory, " GB"));
  if (rows.contains("lengths")) {
    html += chart(
        "lengths", "Lengths of the rows",
        fmt::format("{} rows of {} tokens on average, {} the longest", grouped(whole(rows, "rows")),
                    figure(whole(rows, "tokens") / std::max(1.0, whole(rows, "rows"))),
                    grouped(whole(rows, "longest"))));
  }
  return html + "</div>\n";
}

std::string figures(const ReportData& data) {
  if (data.steps.empty()) return {};
  std::string html =
      "<section><details id=\"figures\" open><summary>Figures as text</summary>\n"
      "<div class=\"figures\"><table>\n<thead><tr><th>step</th><th>loss</th><th>learning rate</th>"
      "<th>gradient norm</th><th>tokens/s</th><th>peak memory</th></tr></thead>\n<tbody>\n";
  for (const ReportStep& s : thinned(data.steps, kMostTableRows)) {
    html +=
        fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                    s.step, figure(s.loss), figure(s.lr), figure(s.grad_norm),
                    figure(s.tokens_per_second), figure(s.memory, " GB"));
  }
  html += "</tbody></table>\n";
  if (!data.evals.empty()) {
    html += "<table>\n<thead><tr><th>step</th><th>evaluation loss</th></tr></thead>\n<tbody>\n";
    for (const ReportEval& e : thinned(data.evals, kMostTableRows)) {
      html += fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", e.step, figure(e.loss));
    }
    html += "</tbody></table>\n";
  }
  return html + "</div></details></section>\n";
}

std::string samples(const ReportData& data) {
  if (data.prompts.empty()) return {};
  std::string html = "<section id=\"samples\"><h2>Samples</h2>\n";
  for (const ReportPrompt& prompt : data.prompts) {
    html +=
        fmt::format("<p class=\"prompt\">{}</p>\n<dl class=\"samples\">\n", escape(prompt.prompt));
    for (const ReportSample& s : thinned(prompt.samples, kMostSamples)) {
      html += fmt::format("<div><dt>step {}</dt><dd>{}</dd></div>\n", s.step, escape(s.text));
    }
    html += "</dl>\n";
  }
  return html + "</section>\n";
}

std::string rows_of(std::string_view name, const nlohmann::json& rows) {
  if (!rows.is_object()) return {};
  const double tokens = whole(rows, "tokens");
  const nlohmann::json path = rows.value("path", nlohmann::json());
  return fmt::format(
      "<tr><th>{}</th><td>{}</td><td>{} rows</td><td>{} tokens</td><td>{} counted ({:.1f}%)</td>"
      "<td>{} cut, {} skipped</td></tr>\n",
      name, escape(path.is_string() ? path.get<std::string>() : ""), grouped(whole(rows, "rows")),
      grouped(tokens), grouped(whole(rows, "counted_tokens")),
      100 * whole(rows, "counted_tokens") / std::max(1.0, tokens), grouped(whole(rows, "cut")),
      grouped(whole(rows, "skipped")));
}

std::string data_section(const nlohmann::json& run) {
  const std::string rows = rows_of("training", run.value("data", nlohmann::json())) +
                           rows_of("evaluation", run.value("eval_data", nlohmann::json()));
  if (rows.empty()) return {};
  return "<section><h2>Data</h2>\n<table>\n" + rows + "</table></section>\n";
}

std::string settings_section(const ReportInput& input) {
  std::string html = "<section><h2>Settings</h2>\n<dl class=\"settings\">\n";
  for (const auto& [key, value] : input.settings) {
    html += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(key), escape(value));
  }
  return html + "</dl></section>\n";
}

std::string head(const ReportInput& input) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'sha256-{}'; script-src 'sha256-{}'; base-uri 'none'; form-action 'none'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>{}</title>\n"
      "<style>{}</style>\n</head>\n",
      base64_of_hex(kReportStyleHash), base64_of_hex(kReportScriptHash), escape(input.title),
      kReportStyle);
}

/// What the run ran as, in a line under the title.
std::string in_a_line(const nlohmann::json& run) {
  std::vector<std::string> words;
  for (const char* key : {"method", "dtype", "device"}) {
    const auto value = run.find(key);
    if (value != run.end() && value->is_string())
      words.push_back(escape(value->get<std::string>()));
  }
  return fmt::format("{}", fmt::join(words, " · "));
}

}  // namespace

std::string render_report(const ReportInput& input) {
  const ReportData data = parse_report_data(input.metrics, input.samples);
  nlohmann::json run = read_json(input.run);
  if (!run.is_object()) run = nlohmann::json::object();
  const nlohmann::json rows = run.value("data", nlohmann::json::object());
  std::string html = head(input);
  html += fmt::format("<body>\n<h1>{}</h1>\n<p class=\"under\">{}</p>\n", escape(input.title),
                      in_a_line(run));
  html += "<noscript><p>The charts need scripts; the figures stand below as text.</p></noscript>\n";
  html += cards(data, run) + charts(data, rows) + samples(data) + data_section(run) +
          settings_section(input) + figures(data);
  html += fmt::format("<script type=\"application/json\" id=\"run\">{}</script>\n",
                      chart_data(data, rows));
  html += fmt::format("<script>{}</script>\n</body>\n</html>\n", kReportScript);
  return html;
}

}  // namespace wgrad::train
