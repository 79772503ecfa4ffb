// The rule of the source tree: includes point down only.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace fs = std::filesystem;

// Higher may include lower; folders of one height may not include each other.
const std::map<std::string, int> kHeights = {
    {"cli", 5}, {"train", 4}, {"model", 3}, {"data", 3}, {"ops", 2},    {"text", 2},
    {"io", 2},  {"gpu", 1},   {"cpu", 1},   {"base", 0}, {"wgrad", -1},
};

bool is_webgpu(const std::string& header) {
  return header.starts_with("webgpu/") || header.starts_with("dawn/");
}

// What is wrong with an include of `header` in a file of `layer`; empty if nothing.
std::string fault(const std::string& layer, const std::string& header, bool quoted) {
  if (is_webgpu(header)) return layer == "gpu" ? "" : "WebGPU belongs to src/gpu alone";
  if (!quoted) return "";
  if (header.find("..") != std::string::npos) return "paths are written from src";
  const std::size_t slash = header.find('/');
  if (slash == std::string::npos) return layer == "cli" ? "" : "the layer is missing";
  const std::string other = header.substr(0, slash);
  const auto found = kHeights.find(other);
  if (found == kHeights.end()) return "there is no such layer";
  if (other == layer || found->second < kHeights.at(layer)) return "";
  return layer + " may not include " + other;
}

std::string_view without_blanks(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(" \t"), text.size()));
}

// The header that a line includes, with its opening quote or bracket before it; empty if none.
std::string_view included(std::string_view line) {
  for (const std::string_view word : {"#", "include"}) {
    line = without_blanks(line);
    if (!line.starts_with(word)) return {};
    line.remove_prefix(word.size());
  }
  line = without_blanks(line);
  if (!line.starts_with('"') && !line.starts_with('<')) return {};
  return line.substr(0, line.find_first_of("\">", 1));
}

std::vector<std::string> faults(const std::string& layer, std::istream& source) {
  std::vector<std::string> found;
  std::string line;
  for (int number = 1; std::getline(source, line); ++number) {
    const std::string_view header = included(line);
    if (header.empty()) continue;
    const std::string what = fault(layer, std::string(header.substr(1)), header.front() == '"');
    if (!what.empty()) found.push_back(std::to_string(number) + ": " + line + " (" + what + ")");
  }
  return found;
}

std::vector<std::string> faults_of(const std::string& layer, const std::string& text) {
  std::istringstream source(text);
  return faults(layer, source);
}

bool is_source(const fs::path& path) {
  return path.extension() == ".h" || path.extension() == ".cc";
}

// Checks all sources below the folder; says how many there were.
int check(const std::string& layer, const fs::path& folder) {
  int files = 0;
  if (!fs::exists(folder)) return files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (!is_source(entry.path())) continue;
    ++files;
    std::ifstream source(entry.path());
    for (const std::string& what : faults(layer, source)) {
      ADD_FAILURE() << entry.path().string() << ":" << what;
    }
  }
  return files;
}

TEST(Layers, IncludeDownwardsOnly) {
  const fs::path root = WGRAD_SOURCE_DIR;
  for (const fs::directory_entry& entry : fs::directory_iterator(root / "src")) {
    const std::string layer = entry.path().filename().string();
    if (!entry.is_directory() || layer == "kernels") continue;
    ASSERT_TRUE(kHeights.contains(layer)) << "src/" << layer << " has no place in the order";
    EXPECT_GT(check(layer, entry.path()), 0) << layer;
  }
  check("cli", root / "cli");
  EXPECT_GT(check("wgrad", root / "include" / "wgrad"), 0);
}

TEST(Layers, AreCheckedByACheckThatSeesFaults) {
  EXPECT_EQ(faults_of("io", "#include \"ops/context.h\"\n").size(), 1u);
  EXPECT_EQ(faults_of("io", "\n  #  include \"data/format.h\" // why\n").size(), 1u);
  EXPECT_EQ(faults_of("data", "#include \"model/config.h\"\n").size(), 1u);
  EXPECT_EQ(faults_of("cpu", "#include \"gpu/device.h\"\n").size(), 1u);
  EXPECT_EQ(faults_of("wgrad", "#include \"base/x.h\"\n").size(), 1u);
  EXPECT_EQ(faults_of("ops", "#include <webgpu/webgpu_cpp.h>\n").size(), 1u);
  EXPECT_EQ(faults_of("ops", "#include \"../gpu/device.h\"\n").size(), 1u);
  EXPECT_EQ(faults_of("ops", "#include \"nowhere/x.h\"\n#include \"context.h\"\n").size(), 2u);
  EXPECT_TRUE(faults_of("ops", "#include \"gpu/device.h\"\n#include <vector>\n").empty());
  EXPECT_TRUE(faults_of("gpu", "#include <dawn/native/DawnNative.h>\n").empty());
  EXPECT_TRUE(faults_of("cli", "#include \"train/loop.h\"\n#include \"commands.h\"\n").empty());
  EXPECT_TRUE(faults_of("train", "#include \"wgrad/error.h\"\n").empty());
}

}  // namespace
