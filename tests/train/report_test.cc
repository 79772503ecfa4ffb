#include "train/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "testing.h"

namespace wgrad::train {
namespace {

using namespace testing;

constexpr const char* kMetrics =
    R"({"step":1,"loss":4.0,"lr":0.1,"grad_norm":2.5,"tokens_per_second":100,"seconds":1,"total_tokens":10,"peak_memory_bytes":2000000000})"
    "\n"
    R"({"step":2,"loss":null,"lr":0.2,"grad_norm":null,"tokens_per_second":120,"seconds":2,"total_tokens":20,"peak_memory_bytes":2000000000})"
    "\n"
    R"({"step":2,"eval_loss":3.5,"eval_tokens":7})"
    "\n"
    R"({"step":3,"loss":2.0,"lr":0.1,"grad_norm":1.5,"tokens_per_second":110,"seconds":3,"total_tokens":30,"peak_memory_bytes":2000000000})"
    "\n{\"step\":4,\"lo";

constexpr const char* kRun =
    R"({"device":"CPU","method":"lora","dtype":"f32","steps":3,"parameters":2000000,
    "trainable_parameters":20000,"data":{"path":"rows.jsonl","rows":3,"tokens":30,
    "counted_tokens":12,"longest":11,"lengths":{"width":5,"rows":[0,2,1]}}})";

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

/// The page without the style and script that are always the same.
std::string own_part(std::string html) {
  const size_t style = html.find("<style>");
  html.erase(style, html.find("</style>") - style);
  const size_t script = html.rfind("<script>");
  return html.erase(script, html.find("</script>", script) - script);
}

nlohmann::json data_of(const std::string& html) {
  const std::string tag = "id=\"run\">";
  const size_t begin = html.find(tag) + tag.size();
  return nlohmann::json::parse(html.substr(begin, html.find("</script>", begin) - begin));
}

TEST(Report, HasAChartAndWordsForEachMetric) {
  const std::string html = render_report({"run", kMetrics, "", kRun, {{"lr", "0.1"}}});
  for (const char* id : {"loss", "lr", "grad_norm", "speed", "memory", "lengths"}) {
    EXPECT_EQ(count(html, "<figure id=\"" + std::string(id) + "\""), 1u) << id;
  }
  for (const char* words :
       {"4 at step 1, 2 at the last; lowest 2, highest 4", "Evaluation: 3.5 throughout",
        "3 rows of 10 tokens on average, 11 the longest", "12 counted (40.0%)", "1.00% of 2.00 M",
        "<tr><td>2</td><td>–</td><td>0.2</td>", "<dt>lr</dt><dd>0.1</dd>", "lora · f32 · CPU",
        "prefers-color-scheme: dark", "<noscript>"}) {
    EXPECT_NE(html.find(words), std::string::npos) << words;
  }
  EXPECT_EQ(data_of(html), nlohmann::json::parse(R"({"steps":[1,2,3],"loss":[4,null,2],
    "lr":[0.1,0.2,0.1],"grad_norm":[2.5,null,1.5],"tokens_per_second":[100,120,110],
    "memory":[2,2,2],"eval":{"steps":[2],"loss":[3.5]},"lengths":{"width":5,"rows":[0,2,1]}})"));
}

TEST(Report, AsksForNothingAndKeepsTheLicenceOfWhatDrawsIt) {
  const std::string html = render_report({"run", kMetrics, "", kRun, {}});
  for (const char* part : {"http:", "https:", "src=", "href=", "@import", "url("}) {
    EXPECT_EQ(own_part(html).find(part), std::string::npos) << part;
  }
  EXPECT_EQ(count(html, "<script>"), 1u);
  EXPECT_NE(html.find("default-src 'none'"), std::string::npos);
  EXPECT_NE(html.find("The MIT License (MIT)"), std::string::npos);
  EXPECT_NE(html.find("Leon Sorokin"), std::string::npos);
}

TEST(Report, ShowsTextAsText) {
  const std::string attack = "</script></td><script>alert('x')</script><img onerror=\"x\">";
  const nlohmann::json sample = {{"step", 1}, {"prompt", attack}, {"text", attack}};
  const nlohmann::json run = {{"device", attack},
                              {"data", {{"path", attack}, {"lengths", {{attack, attack}}}}}};
  const std::string html =
      render_report({"<b>&\"", kMetrics, sample.dump() + "\n", run.dump(), {{attack, attack}}});
  EXPECT_EQ(own_part(html).find("<img"), std::string::npos);
  EXPECT_EQ(count(html, "<script"), 2u);
  EXPECT_EQ(count(html, "</script>"), 2u);
  EXPECT_NE(html.find("<title>&lt;b&gt;&amp;&quot;</title>"), std::string::npos);
}

TEST(Report, OfALongRunStaysSmallAndEndsAtItsLastStep) {
  std::string metrics, samples;
  for (int i = 1; i <= 50000; ++i) {
    const std::string step = "{\"step\":" + std::to_string(i);
    metrics += step + ",\"loss\":" + std::to_string(50000 - i) + "}\n";
    samples += step + ",\"prompt\":\"p\",\"text\":\"t" + std::to_string(i) + "\"}\n";
  }
  const std::string html = render_report({"run", metrics, samples, "", {}});
  EXPECT_LT(own_part(html).size(), 100000u);
  const nlohmann::json data = data_of(html);
  EXPECT_EQ(data["steps"].size(), 2000u);
  EXPECT_EQ(data["steps"].front(), 1);
  EXPECT_EQ(data["steps"].back(), 50000);
  EXPECT_NE(html.find("5e+04 at step 1, 0 at the last"), std::string::npos);
  EXPECT_EQ(count(html, "<div><dt>step "), 12u);
  EXPECT_NE(html.find("t50000</dd>"), std::string::npos);
}

TEST(Report, OfOddOrMissingFilesIsMadeOfWhatThereIs) {
  for (const char* run :
       {"", "[1]", "{\"data\": 3, \"steps\": \"x\"}", "{\"data\":{\"lengths\":1}}"}) {
    EXPECT_NE(
        render_report({"run", "nonsense\n{}\n{\"step\":\"x\"}\n", "[]\n", run, {}}).find("</html>"),
        std::string::npos)
        << run;
  }
}

TEST(Report, OfARunFileNestedWithoutEndIsMadeOfTheRest) {
  ReportInput input;
  input.metrics = kMetrics;
  const std::string deep(200000, '[');
  input.run = R"({"data":{"lengths":)" + deep + std::string(deep.size(), ']') + "}}";
  EXPECT_EQ(count(render_report(input), "<h1>"), 1u);
}

TEST(Report, IsWrittenAtCheckpointsAtTheEndAndOnAStop) {
  class Watch : public Record {
   public:
    explicit Watch(fs::path page) : page_(std::move(page)) {}
    void on_step(const StepMetrics& m) override {
      if (m.step == 3) last_step = data_of(read_file(page_))["steps"].back();
      if (m.step == 5) stop = true;
    }
    int last_step = 0;
    std::atomic<bool> stop{false};

   private:
    fs::path page_;
  };
  const TemporaryFolder folder;
  TrainOptions o = tiny_options("llama3", "lora_llama3", folder.path() / "out");
  o.report = true;
  o.steps = 8;
  o.save_every = 2;
  const fs::path page = fs::path(o.out) / "report.html";
  Watch watch(page);
  run_training(o, watch, &watch.stop);
  EXPECT_EQ(watch.last_step, 2);
  EXPECT_EQ(data_of(read_file(page))["steps"].back(), 5);
  o.resume = true;
  Record record;
  run_training(o, record);
  const std::string html = read_file(page);
  EXPECT_EQ(data_of(html)["steps"].size(), 8u);
  int64_t rows = 0;
  const nlohmann::json counts = data_of(html)["lengths"]["rows"];
  for (const int64_t n : counts) rows += n;
  EXPECT_EQ(rows, record.plan.rows);
  fs::remove(page);
  write_report(o.out);
  EXPECT_EQ(read_file(page), html);
  EXPECT_THROW(write_report(folder.path()), Error);
}

}  // namespace
}  // namespace wgrad::train
