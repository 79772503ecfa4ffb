#include "train/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace wgrad::train {
namespace {

constexpr double kWidth = 720, kHeight = 200;  // of a chart's plot
constexpr double kLeft = 76, kTop = 8, kBottom = 24;
constexpr size_t kMostPoints = 1000;

struct Point {
  double x = 0, y = 0;
};

struct Series {
  std::string_view name, css;
  std::vector<Point> points;
};

struct Metrics {
  std::vector<Point> loss, eval_loss, lr, grad_norm, speed;
  double seconds = 0, tokens = 0, memory = 0;
};

std::string escape(std::string_view text) {
  std::string out;
  for (char c : text) {
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
      default:
        out += c;
    }
  }
  return out;
}

void add(const nlohmann::json& line, const char* key, std::vector<Point>& points) {
  const auto value = line.find(key);
  if (value == line.end() || !value->is_number()) return;
  points.push_back({line["step"].get<double>(), value->get<double>()});
}

Metrics parse(std::string_view text) {
  Metrics m;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const auto line = nlohmann::json::parse(text.substr(0, end), nullptr, false);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.is_object() || !line.contains("step") || !line["step"].is_number()) continue;
    add(line, "loss", m.loss);
    add(line, "eval_loss", m.eval_loss);
    add(line, "lr", m.lr);
    add(line, "grad_norm", m.grad_norm);
    add(line, "tokens_per_second", m.speed);
    m.seconds = line.value("seconds", m.seconds);
    m.tokens = line.value("total_tokens", m.tokens);
    m.memory = std::max(m.memory, line.value("peak_memory_bytes", 0.0));
  }
  return m;
}

struct Range {
  double low = INFINITY, high = -INFINITY;
  void cover(double v) {
    low = std::min(low, v);
    high = std::max(high, v);
  }
  /// Position of v from 0 to 1; the middle where all values are the same.
  double at(double v) const { return high > low ? (v - low) / (high - low) : 0.5; }
};

/// Evenly spaced points and the last, so that a page of a long run stays small.
std::vector<Point> thin(const std::vector<Point>& points) {
  if (points.size() <= kMostPoints) return points;
  std::vector<Point> kept;
  const size_t stride = (points.size() + kMostPoints - 1) / kMostPoints;
  for (size_t i = 0; i < points.size(); i += stride) kept.push_back(points[i]);
  kept.push_back(points.back());
  return kept;
}

std::string curve(const Series& series, const Range& x, const Range& y) {
  std::string coordinates;
  const std::vector<Point> points = thin(series.points);
  for (const Point& p : points) {
    coordinates +=
        fmt::format("{:.1f},{:.1f} ", kLeft + kWidth * x.at(p.x), kTop + kHeight * (1 - y.at(p.y)));
  }
  if (points.size() == 1) {
    return fmt::format("<circle class=\"{0}\" cx=\"{1:.1f}\" cy=\"{2:.1f}\" r=\"3\"/>\n",
                       series.css, kLeft + kWidth * x.at(points[0].x),
                       kTop + kHeight * (1 - y.at(points[0].y)));
  }
  return fmt::format("<polyline class=\"{}\" points=\"{}\"/>\n", series.css, coordinates);
}

std::string chart(std::string_view title, std::vector<Series> all) {
  std::erase_if(all, [](const Series& s) { return s.points.empty(); });
  if (all.empty()) return {};
  Range x, y;
  for (const Series& s : all) {
    for (const Point& p : s.points) {
      x.cover(p.x);
      y.cover(p.y);
    }
  }
  std::string html = fmt::format("<h2>{}</h2>\n<p class=\"key\">", title);
  for (const Series& s : all) {
    html +=
        fmt::format("<span class=\"{}\">{}: last {:.5g}</span> ", s.css, s.name, s.points.back().y);
  }
  html += fmt::format("</p>\n<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n",
                      kLeft + kWidth + 8, kTop + kHeight + kBottom, title);
  html += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n", kLeft, kTop, kWidth,
                      kHeight);
  const double right = kLeft + kWidth, bottom = kTop + kHeight;
  auto label = [&](double px, double py, const char* anchor, double value) {
    html += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\">{:.5g}</text>\n", px, py,
                        anchor, value);
  };
  label(kLeft - 6, kTop + 11, "end", y.high);
  if (y.high > y.low) label(kLeft - 6, bottom, "end", y.low);
  label(kLeft, bottom + 17, "start", x.low);
  if (x.high > x.low) label(right, bottom + 17, "end", x.high);
  for (const Series& s : all) html += curve(s, x, y);
  return html + "</svg>\n";
}

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --ink: #1c1e21; --paper: #ffffff; --line: #c9ced6;
  --a: #1f6feb; --b: #d1570a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --paper: #14171a; --line: #3a4048;
  --a: #6cb0ff; --b: #ffa657; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 860px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.4em; overflow-wrap: anywhere; } h2 { font-size: 1.05em; margin: 1.6em 0 0; }
svg { width: 100%; height: auto; } rect { fill: none; stroke: var(--line); }
text { fill: var(--ink); font-size: 12px; }
polyline { fill: none; stroke-width: 1.6; } polyline.a { stroke: var(--a); }
polyline.b { stroke: var(--b); } circle.a { fill: var(--a); } circle.b { fill: var(--b); }
.key { margin: .2em 0; } .key .a { color: var(--a); } .key .b { color: var(--b); }
table { border-collapse: collapse; } td, th { text-align: left; padding: .15em 1.5em .15em 0;
  border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
)";

}  // namespace

std::string render_report(std::string_view title, std::string_view metrics,
                          const std::vector<std::pair<std::string, std::string>>& settings) {
  const Metrics m = parse(metrics);
  const std::string name = escape(title);
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>{0}</title>\n"
      "<style>{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n",
      name, kStyle);
  const double steps = m.loss.empty() ? 0 : m.loss.back().x;
  html += fmt::format("<p>{} steps, {} tokens, {:.0f} s, {:.2f} GB at most.</p>\n", steps,
                      static_cast<int64_t>(m.tokens), m.seconds, m.memory / 1e9);
  html += chart("Loss", {{"training", "a", m.loss}, {"evaluation", "b", m.eval_loss}});
  html += chart("Learning rate", {{"rate", "a", m.lr}});
  html += chart("Gradient norm before clipping", {{"norm", "a", m.grad_norm}});
  html += chart("Tokens a second", {{"speed", "a", m.speed}});
  html += "<h2>Settings</h2>\n<table>\n";
  for (const auto& [key, value] : settings) {
    html += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", escape(key), escape(value));
  }
  return html + "</table>\n</body>\n</html>\n";
}

}  // namespace wgrad::train
