#include <unistd.h>

#include <cmath>
#include <cstdlib>

#include "testing.h"
#include "train/report.h"

namespace wgrad::cli {
namespace {

using namespace testing;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kAttack = "</dd></script><script>document.title='taken'</script>";

/// Measures what the page's script drew: of each chart how many pixels have a strong colour, and
/// the mean height of those at its left and right end; and the colours of the page.
constexpr const char* kProbe = R"(<script>
addEventListener("load", () => {
  const measure = (canvas) => {
    const {width, height} = canvas;
    const data = canvas.getContext("2d").getImageData(0, 0, width, height).data;
    const columns = [];
    let count = 0;
    for (let x = 0; x < width; ++x) {
      let n = 0, sum = 0;
      for (let y = 0; y < height; ++y) {
        const [r, g, b, a] = data.slice(4 * (y * width + x), 4 * (y * width + x) + 4);
        if (a > 200 && Math.max(r, g, b) - Math.min(r, g, b) > 80) { ++n; sum += y; }
      }
      count += n;
      if (n > 0) columns.push(sum / n / height);
    }
    return {count, columns: columns.length / width, left: columns[0], right: columns.at(-1)};
  };
  const charts = {};
  for (const figure of document.querySelectorAll("figure")) {
    charts[figure.id] = {...measure(figure.querySelector("canvas")), drawn: figure.dataset.drawn,
                         legend: figure.querySelector(".u-legend").innerText};
  }
  const rgb = (text) => text.match(/\d+/g).slice(0, 3).map(Number);
  const style = getComputedStyle(document.body);
  const card = getComputedStyle(document.querySelector(".card"));
  const soft = getComputedStyle(document.querySelector(".card dt"));
  const out = document.createElement("pre");
  out.textContent = "PROBE" + JSON.stringify({charts, title: document.title,
      ink: rgb(style.color), paper: rgb(style.backgroundColor), card: rgb(card.backgroundColor),
      soft: rgb(soft.color), wide: document.documentElement.scrollWidth > innerWidth}) + "END";
  document.body.append(out);
});
</script>)";

std::string page() {
  std::string metrics, samples;
  for (int i = 1; i <= 80; ++i) {
    const nlohmann::json line = {{"step", i},
                                 {"loss", 1 + 3 * std::exp(-i / 20.0) + 0.2 * std::sin(i)},
                                 {"lr", 1e-4 * i},
                                 {"grad_norm", 1 + 0.5 * std::cos(i)},
                                 {"tokens_per_second", 1000 + i},
                                 {"seconds", i},
                                 {"total_tokens", 100 * i},
                                 {"peak_memory_bytes", 2e9 + 1e7 * i}};
    metrics += line.dump() + "\n";
    if (i % 20 == 0) {
      metrics += nlohmann::json{{"step", i}, {"eval_loss", 4 - i / 40.0}}.dump() + "\n";
      samples += nlohmann::json{{"step", i}, {"prompt", kAttack}, {"text", kAttack}}.dump() + "\n";
    }
  }
  const nlohmann::json run = {
      {"method", "lora"},
      {"device", kAttack},
      {"data", {{"rows", 9}, {"lengths", {{"width", 10}, {"rows", {1, 5, 3}}}}}}};
  return train::render_report({kAttack, metrics, samples, run.dump(), {{"out", kAttack}}});
}

std::string browser() {
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
    if (std::system(("command -v " + std::string(name) + " >/dev/null").c_str()) == 0) return name;
  }
  return {};
}

/// The document after its scripts ran.
std::string dom_of(const Workplace& place, const std::string& name, bool dark) {
  const std::string out = place.path("dom"), profile = place.path("profile");
  const std::string command =
      "timeout 120 " + browser() +
      " --headless --no-sandbox --disable-gpu --no-first-run --window-size=1200,2400"
      " --virtual-time-budget=5000 --user-data-dir=" +
      profile + " --blink-settings=preferredColorScheme=" + (dark ? "0" : "1") +
      " --dump-dom file://" + place.path(name) + " >" + out + " 2>" + out + ".err </dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0) << read_file(out + ".err");
  return read_file(out);
}

nlohmann::json probe(const Workplace& place, bool dark) {
  std::string html = page();
  const size_t policy = html.find("<meta http-equiv");  // it would refuse the probe
  html.erase(policy, html.find('\n', policy) - policy);
  html.insert(html.find("</body>"), kProbe);
  place.write("probed.html", html);
  const std::string dom = dom_of(place, "probed.html", dark);
  const size_t begin = dom.rfind("PROBE"), end = dom.rfind("END");
  if (begin == std::string::npos || end == std::string::npos) return nullptr;
  return nlohmann::json::parse(dom.substr(begin + 5, end - begin - 5));
}

/// The contrast of two colours as WCAG defines it.
double contrast(const std::vector<double>& a, const std::vector<double>& b) {
  const auto luminance = [](const std::vector<double>& rgb) {
    const double weights[] = {0.2126, 0.7152, 0.0722};
    double sum = 0;
    for (size_t i = 0; i < 3; ++i) {
      const double c = rgb[i] / 255;
      sum += weights[i] * (c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4));
    }
    return sum;
  };
  const double x = luminance(a), y = luminance(b);
  return (std::max(x, y) + 0.05) / (std::min(x, y) + 0.05);
}

class ReportPage : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (browser().empty()) GTEST_SKIP() << "there is no chromium on the PATH";
  }
};

TEST_P(ReportPage, DrawsItsChartsInColoursThatCanBeRead) {
  const Workplace place;
  const nlohmann::json seen = probe(place, GetParam());
  ASSERT_TRUE(seen.is_object());
  const nlohmann::json& charts = seen.at("charts");
  ASSERT_EQ(charts.size(), 6u);
  for (const auto& [id, chart] : charts.items()) {
    EXPECT_EQ(chart.at("drawn"), "yes") << id;
    EXPECT_GT(chart.at("count"), 150) << id;
    EXPECT_GT(chart.at("columns"), 0.3) << id;  // it spans its plot
  }
  // Heights are from the top: the loss falls, rate, speed and memory rise.
  EXPECT_LT(charts["loss"]["left"], charts["loss"]["right"]);
  for (const char* id : {"lr", "speed", "memory"}) {
    EXPECT_GT(charts[id]["left"], charts[id]["right"]) << id;
  }
  for (const char* word : {"training", "smoothed", "evaluation", "2"}) {  // its last value
    EXPECT_THAT(charts["loss"]["legend"].get<std::string>(), HasSubstr(word));
  }
  EXPECT_GE(contrast(seen.at("ink"), seen.at("card")), 7);
  EXPECT_GE(contrast(seen.at("soft"), seen.at("card")), 4.5);
  const double brightness = seen.at("paper")[0];
  EXPECT_EQ(brightness < 128, GetParam());
  EXPECT_FALSE(seen.at("wide").get<bool>());
  EXPECT_THAT(seen.at("title").get<std::string>(), HasSubstr("document.title="));
}

TEST_P(ReportPage, RunsItsOwnScriptAndNoOther) {
  const Workplace place;
  std::string html = page();
  // What would run if some text had not been made harmless.
  html.insert(html.find("</body>"), "<script>document.title='taken'</script>");
  place.write("report.html", html);
  const std::string dom = dom_of(place, "report.html", GetParam());
  EXPECT_THAT(dom, HasSubstr("data-drawn=\"yes\""));
  EXPECT_THAT(dom, HasSubstr("<canvas"));
  EXPECT_THAT(dom, Not(HasSubstr("<title>taken</title>")));
}

INSTANTIATE_TEST_SUITE_P(LightAndDark, ReportPage, ::testing::Values(false, true));

}  // namespace
}  // namespace wgrad::cli
