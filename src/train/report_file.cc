#include <yaml-cpp/yaml.h>

#include <system_error>

#include "io/atomic_file.h"
#include "io/json.h"
#include "train/report.h"
#include "wgrad/error.h"

namespace wgrad::train {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostLogBytes = size_t{1} << 30;
constexpr size_t kMostYamlBytes = size_t{1} << 16;  // yaml-cpp may take quadratic time

/// The file's text; empty where it is missing.
std::string text_of(const fs::path& path, size_t most) {
  std::error_code error;
  return fs::exists(path, error) ? io::read_text_file(path, most) : std::string();
}

std::vector<std::pair<std::string, std::string>> settings_of(const fs::path& path) {
  std::vector<std::pair<std::string, std::string>> settings;
  try {
    const YAML::Node root = YAML::Load(text_of(path, kMostYamlBytes));
    if (!root.IsMap()) return settings;
    for (const auto& entry : root) {
      if (entry.first.IsScalar() && entry.second.IsScalar()) {
        settings.emplace_back(entry.first.Scalar(), entry.second.Scalar());
      }
    }
  } catch (const YAML::Exception& error) {
    throw input_error(path.string(), error.msg, "expected the run.yaml of a run", "mend the file");
  }
  return settings;
}

}  // namespace

void write_report(const fs::path& run) {
  std::error_code error;
  if (!fs::exists(run / "metrics.jsonl", error)) {
    throw input_error(run.string(), "has no metrics.jsonl", "expected the folder of a run",
                      "give the --out of `wgrad train`");
  }
  const fs::path name = fs::weakly_canonical(run, error).filename();
  ReportInput input;
  input.title = "wgrad: " + (error || name.empty() ? run : name).string();
  input.metrics = text_of(run / "metrics.jsonl", kMostLogBytes);
  input.samples = text_of(run / "samples.jsonl", kMostLogBytes);
  input.run = text_of(run / "run.json", io::kMaxJsonFileBytes);
  input.settings = settings_of(run / "run.yaml");
  io::write_file_atomically(run / "report.html", render_report(input));
}

}  // namespace wgrad::train
