#include "train/report.h"

#include <gtest/gtest.h>

namespace wgrad::train {
namespace {

constexpr const char* kMetrics =
    R"({"step":1,"loss":4.0,"lr":0.1,"grad_norm":2.5,"tokens_per_second":100,"seconds":1,"total_tokens":10,"peak_memory_bytes":2000000000})"
    "\n"
    R"({"step":2,"loss":null,"lr":0.2,"grad_norm":null,"tokens_per_second":120,"seconds":2,"total_tokens":20,"peak_memory_bytes":2000000000})"
    "\n"
    R"({"step":2,"eval_loss":3.5,"eval_tokens":7})"
    "\n"
    R"({"step":3,"loss":2.0,"lr":0.1,"grad_norm":1.5,"tokens_per_second":110,"seconds":3,"total_tokens":30,"peak_memory_bytes":2000000000})"
    "\n{\"step\":4,\"lo";

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(Report, HasACurveForEachMetric) {
  const std::string html = render_report("run", kMetrics, {{"lr", "0.1"}});
  EXPECT_EQ(count(html, "<svg"), 4u);
  EXPECT_EQ(count(html, "</svg>"), 4u);
  EXPECT_EQ(count(html, "<polyline"), 4u);
  EXPECT_EQ(count(html, "<circle"), 1u);  // the one evaluation
  EXPECT_NE(html.find("training: last 2"), std::string::npos);
  EXPECT_NE(html.find("evaluation: last 3.5"), std::string::npos);
  EXPECT_NE(html.find("3 steps, 30 tokens, 3 s, 2.00 GB"), std::string::npos);
  EXPECT_NE(html.find("<tr><th>lr</th><td>0.1</td></tr>"), std::string::npos);
  EXPECT_NE(html.find("prefers-color-scheme: dark"), std::string::npos);
}

TEST(Report, NeedsNothingElse) {
  const std::string html = render_report("run", kMetrics, {});
  for (const char* part : {"http", "src=", "href=", "<script", "@import", "url("}) {
    EXPECT_EQ(html.find(part), std::string::npos) << part;
  }
}

TEST(Report, ShowsTextAsText) {
  const std::string html =
      render_report("<b>&\"", "", {{"data", "</td><script>alert('x')</script>"}});
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_EQ(html.find("<b>"), std::string::npos);
  EXPECT_NE(html.find("<title>&lt;b&gt;&amp;&quot;</title>"), std::string::npos);
  EXPECT_EQ(count(html, "<svg"), 0u);
}

TEST(Report, OfALongRunStaysSmallAndEndsAtItsLastStep) {
  std::string metrics;
  for (int i = 1; i <= 50000; ++i) {
    metrics += "{\"step\":" + std::to_string(i) + ",\"loss\":" + std::to_string(50000 - i) + "}\n";
  }
  const std::string html = render_report("run", metrics, {});
  EXPECT_LT(html.size(), 40000u);
  EXPECT_NE(html.find(">50000</text>"), std::string::npos);
  EXPECT_NE(html.find("training: last 0"), std::string::npos);
}

}  // namespace
}  // namespace wgrad::train
