#include <set>

#include "testing.h"

namespace wgrad::cli {
namespace {

using namespace testing;
using ::testing::HasSubstr;

TEST(Verify, PrintsOneObjectWithARowForEachCase) {
  const Outcome outcome =
      run_program({"verify", "--device", "software", "--quick", "--only", "softmax", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto lines = json_lines(outcome.out);
  ASSERT_EQ(lines.size(), 1u);
  const auto& json = lines[0];
  EXPECT_NE(json["device"], "");
  EXPECT_EQ(json["failed"], 0);
  ASSERT_GT(json["results"].size(), 3u);
  EXPECT_EQ(json["passed"], json["results"].size());
  for (const auto& row : json["results"]) {
    EXPECT_THAT(row["kernel"].get<std::string>(), HasSubstr("softmax"));
    EXPECT_EQ(row["passed"], true);
    EXPECT_LE(row["worst_error"].get<double>(), row["bound"].get<double>());
  }
}

TEST(Verify, PrintsATableThatEndsWithTheCount) {
  const Outcome outcome = run_program({"verify", "--device", "software", "--only", "rope_apply"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("ok    rope_apply"));
  EXPECT_THAT(outcome.out, ::testing::EndsWith(" passed, 0 failed\n"));
}

TEST(Verify, RefusesTheCpuAndNamesThatDoNotExist) {
  EXPECT_EQ(run_program({"verify", "--device", "cpu"}).code, 2);
  EXPECT_EQ(run_program({"verify", "--device", "gpu:no such device"}).code, 2);
  const Outcome outcome = run_program({"verify", "--device", "software", "--only", "softmix"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--only softmix"));
  EXPECT_EQ(outcome.out, "");
}

TEST(KernelsExport, WritesTheKernelsAndTheirManifest) {
  const Workplace place;
  const fs::path folder = place.root() / "new" / "kernels";
  // Writing again replaces the same files and leaves others.
  for (int i = 0; i < 2; ++i) {
    const Outcome outcome = run_program({"kernels", "export", folder.string()});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    write_file(folder / "mine.txt", "mine");
  }
  EXPECT_EQ(read_file(folder / "mine.txt"), "mine");
  const std::string own = read_file(folder / "manifest.json");
  write_file(folder / "manifest.json", "mine");
  EXPECT_EQ(run_program({"kernels", "export", folder.string()}).code, 2);
  EXPECT_EQ(read_file(folder / "manifest.json"), "mine");
  write_file(folder / "manifest.json", own);
  const auto manifest = nlohmann::json::parse(read_file(folder / "manifest.json"));
  std::set<std::string> files = {"manifest.json", "mine.txt"};
  for (const auto& kernel : manifest.at("kernels")) {
    files.insert(kernel.at("file"));
    const std::string text = read_file(folder / kernel.at("file").get<std::string>());
    for (const auto& entry : kernel.at("entry_points")) {
      EXPECT_THAT(text, HasSubstr("fn " + entry.at("name").get<std::string>() + "("));
    }
  }
  EXPECT_EQ(manifest.at("kernels").size(), 10u);
  std::set<std::string> seen;
  for (const auto& file : fs::directory_iterator(folder)) seen.insert(file.path().filename());
  EXPECT_EQ(seen, files);
}

TEST(KernelsExport, SaysWhereItCannotWrite) {
  const Workplace place;
  place.write("file", "");
  const Outcome outcome = run_program({"kernels", "export", place.path("file")});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr(place.path("file")));
  EXPECT_EQ(run_program({"kernels", "export"}).code, 2);
  EXPECT_EQ(run_program({"kernels"}).code, 2);
}

TEST(Bench, RefusesBadOptions) {
  for (const Arguments& more : {Arguments{"--shape", "no-such-shape"},
                                {"--rows", "0"},
                                {"--tokens", "1"},
                                {"--method", "best"},
                                {"--no-such-option"}}) {
    Arguments arguments = {"bench", "--step-only", "--device", "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run_program(arguments);
    EXPECT_EQ(outcome.code, 2) << more[0];
    EXPECT_EQ(outcome.out.find('{'), std::string::npos) << more[0];
    EXPECT_NE(outcome.err, "") << more[0];
  }
}

}  // namespace
}  // namespace wgrad::cli
