#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "io/checkpoint_source.h"
#include "model/batch.h"
#include "model/decoder.h"
#include "model/model.h"
#include "ops/context.h"
#include "wgrad/error.h"

namespace wgrad::model::testing {

/// Those whose goldens have a greedy text too.
inline const std::vector<std::string> kFamilies = {
    "gemma2", "gemma3",    "gemma3_whole", "granite",       "olmo2",
    "phi3",   "phi3_wide", "smollm3",      "llama_dynamic", "llama_yarn"};
inline const std::vector<std::string> kModels = [] {
  std::vector<std::string> all = {"llama2",  "llama3", "llama_bias",   "smollm2",
                                  "mistral", "qwen2",  "qwen2_window", "qwen3"};
  all.insert(all.end(), kFamilies.begin(), kFamilies.end());
  return all;
}();

inline std::filesystem::path data_folder() {
  return std::filesystem::path(WGRAD_TEST_DATA) / "models";
}

enum class Device { kCpu, kSoftwareGpu };

inline void PrintTo(Device device, std::ostream* out) {
  *out << (device == Device::kCpu ? "CPU" : "software GPU");
}

/// One context a device for the whole binary: making a device is slow.
inline Context& context(Device device) {
  static const std::unique_ptr<Context> cpu = Context::cpu({});
  if (device == Device::kCpu) return *cpu;
  static const std::unique_ptr<Context> gpu =
      Context::gpu({.selector = "software", .checked = true}, {});
  return *gpu;
}

/// A file of goldens: tensors as flat vectors.
class Golden {
 public:
  explicit Golden(const std::filesystem::path& path) : source_(io::open_safetensors(path)) {}

  std::vector<float> values(const std::string& name) const {
    const io::TensorView& view = source_->get(name);
    std::vector<float> out(static_cast<size_t>(view.elements()));
    source_->read_f32(name, out);
    return out;
  }
  std::vector<int32_t> integers(const std::string& name) const {
    const io::TensorView& view = source_->get(name);
    std::vector<int32_t> out(static_cast<size_t>(view.elements()));
    source_->read_bytes(view, 0, view.rows(), std::as_writable_bytes(std::span(out)));
    return out;
  }
  std::vector<std::string> names() const { return source_->names(); }

 private:
  std::unique_ptr<io::TensorSource> source_;
};

/// The rows that a model's goldens were computed for.
struct GoldenRows {
  explicit GoldenRows(const Golden& golden) : labels(golden.integers("labels")) {
    for (const int32_t id : golden.integers("ids")) ids.push_back(static_cast<uint32_t>(id));
    for (const int32_t n : golden.integers("row_lengths")) {
      lengths.push_back(static_cast<size_t>(n));
    }
  }
  std::vector<Row> rows(size_t begin, size_t end) const {
    std::vector<Row> out;
    size_t at = 0;
    for (size_t i = 0; i < lengths.size(); ++i) {
      if (i >= begin && i < end) {
        out.push_back(
            {std::span(ids).subspan(at, lengths[i]), std::span(labels).subspan(at, lengths[i])});
      }
      at += lengths[i];
    }
    return out;
  }
  std::vector<Row> rows() const { return rows(0, lengths.size()); }

  std::vector<uint32_t> ids;
  std::vector<int32_t> labels;
  std::vector<size_t> lengths;
};

inline double largest(const std::vector<float>& values) {
  double most = 0;
  for (const float x : values) most = std::max(most, std::abs(static_cast<double>(x)));
  return most;
}

/// The largest difference; NaN counts as infinite.
inline double difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    most = std::isnan(d) ? INFINITY : std::max(most, d);
  }
  return most;
}

/// Gives all matrices of an adapter values, and takes DoRA's lengths away from those of the
/// weights.
inline void move_from_start(Context& ctx, const Adapter& adapter) {
  for (const Parameter& p : adapter.parameters().parameters()) {
    std::vector<float> values = ctx.read<float>(p.value);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto wave = static_cast<float>(std::sin(static_cast<double>(7 * i + p.name.size())));
      values[i] = p.name.ends_with("vector") ? values[i] * (1 + 0.3f * wave) : 0.1f * wave;
    }
    ctx.upload<float>(p.value, values);
  }
}

/// The text of the error that `call` throws; fails where it throws none.
template <class Call>
std::string error_text(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

/// A folder that is empty at first and removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "wgrad-model-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string device_and_model(
    const ::testing::TestParamInfo<std::tuple<Device, std::string>>& info) {
  return std::get<1>(info.param) + (std::get<0>(info.param) == Device::kCpu ? "_cpu" : "_gpu");
}

}  // namespace wgrad::model::testing
