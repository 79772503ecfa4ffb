#include "train/tensorboard.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include "io/record_file.h"
#include "testing.h"

namespace wgrad::train {
namespace {

using namespace testing;

/// CRC-32C by its definition: the remainder of a polynomial division, a bit at a time.
uint32_t crc_by_definition(const std::string& bytes) {
  uint32_t remainder = 0xFFFFFFFF;
  for (const char c : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      const uint32_t in = static_cast<unsigned char>(c) >> bit & 1;
      const bool divide = ((remainder & 1) ^ in) != 0;
      remainder >>= 1;
      if (divide) remainder ^= 0x82F63B78;
    }
  }
  return remainder ^ 0xFFFFFFFF;
}

uint32_t masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xA282EAD8; }

template <typename T>
T at(const std::string& bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

std::vector<std::string> records_of(const std::string& file) {
  std::vector<std::string> records;
  for (size_t begin = 0; begin < file.size();) {
    const auto length = at<uint64_t>(file, begin);
    EXPECT_EQ(at<uint32_t>(file, begin + 8), masked(crc_by_definition(file.substr(begin, 8))));
    const std::string payload = file.substr(begin + 12, length);
    EXPECT_EQ(payload.size(), length);
    EXPECT_EQ(at<uint32_t>(file, begin + 12 + length), masked(crc_by_definition(payload)));
    records.push_back(payload);
    begin += 16 + length;
  }
  return records;
}

/// The fields of a protocol buffer message: number, then the varint, or the bytes of the rest.
struct Field {
  uint64_t number = 0, varint = 0;
  std::string bytes;
};

std::vector<Field> fields_of(const std::string& message) {
  size_t next = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.at(next++));
      value |= uint64_t{byte & 127u} << shift;
      if (byte < 128) return value;
    }
  };
  std::vector<Field> fields;
  while (next < message.size()) {
    const uint64_t key = varint();
    Field field{key / 8, 0, {}};
    if (key % 8 == 0) {
      field.varint = varint();
    } else {
      const uint64_t size = key % 8 == 1 ? 8 : key % 8 == 5 ? 4 : varint();
      field.bytes = message.substr(next, size);
      next += size;
    }
    fields.push_back(field);
  }
  return fields;
}

struct Scalar {
  int64_t step;
  std::string tag;
  float value;
  bool operator==(const Scalar&) const = default;
};

/// Every scalar of the event files of a run, in the order in which TensorBoard reads them.
std::vector<Scalar> scalars_of(const fs::path& run) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(run / "tensorboard"))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<Scalar> scalars;
  for (const fs::path& file : files) {
    EXPECT_TRUE(file.filename().string().starts_with("events.out.tfevents."));
    std::string version;
    for (const std::string& record : records_of(read_file(file))) {
      int64_t step = 0;
      double wall_time = 0;
      for (const Field& field : fields_of(record)) {
        if (field.number == 1) wall_time = at<double>(field.bytes, 0);
        if (field.number == 2) step = static_cast<int64_t>(field.varint);
        if (field.number == 3) version = field.bytes;
        if (field.number != 5) continue;
        for (const Field& value : fields_of(field.bytes)) {
          EXPECT_EQ(value.number, 1u);
          const std::vector<Field> parts = fields_of(value.bytes);
          EXPECT_EQ(parts.size(), 2u);
          scalars.push_back({step, parts.at(0).bytes, at<float>(parts.at(1).bytes, 0)});
        }
      }
      EXPECT_GT(wall_time, 1.6e9);
      EXPECT_EQ(version, "brain.Event:2");  // of the first record
    }
  }
  return scalars;
}

/// What metrics.jsonl says under the same names.
std::vector<Scalar> scalars_of_metrics(const fs::path& run) {
  std::vector<Scalar> scalars;
  for (const auto& line : read_lines(run / "metrics.jsonl")) {
    const int64_t step = line.at("step");
    const auto add = [&](const char* tag, const char* key, double unit = 1) {
      scalars.push_back({step, tag, static_cast<float>(line.at(key).get<double>() / unit)});
    };
    if (line.contains("eval_loss")) {
      add("eval/loss", "eval_loss");
      continue;
    }
    add("train/loss", "loss");
    add("train/lr", "lr");
    add("train/grad_norm", "grad_norm");
    add("train/tokens_per_second", "tokens_per_second");
    add("train/peak_memory_gb", "peak_memory_bytes", 1e9);
  }
  return scalars;
}

class StopAfter : public Record {
 public:
  explicit StopAfter(int64_t step) : step_(step) {}
  void on_step(const StepMetrics& m) override { stop = m.step == step_; }
  std::atomic<bool> stop{false};

 private:
  int64_t step_;
};

TrainOptions logged(const TemporaryFolder& folder) {
  TrainOptions o = tiny_options("llama3", "lora_llama3", folder.path() / "out");
  o.steps = 9;
  o.eval_data = o.data;
  o.eval_every = 4;
  o.save_every = 2;
  o.keep = 10;
  o.tensorboard = true;
  return o;
}

TEST(TensorBoard, HasEveryScalarOfMetrics) {
  const TemporaryFolder folder;
  Record record;
  run_training(logged(folder), record);
  const std::vector<Scalar> scalars = scalars_of(folder.path() / "out");
  EXPECT_EQ(scalars.size(), 9u * 5 + 3);
  EXPECT_EQ(scalars, scalars_of_metrics(folder.path() / "out"));
}

TEST(TensorBoard, OfAResumedRunHasEveryStepOnce) {
  const TemporaryFolder folder;
  TrainOptions o = logged(folder);
  StopAfter first(5);
  run_training(o, first, &first.stop);
  // As if it had been killed after its checkpoint of step 2, in the middle of an event.
  for (const char* later : {"step-000004", "step-000005"}) {
    fs::remove_all(fs::path(o.out) / "checkpoints" / later);
  }
  const fs::path file = fs::directory_iterator(fs::path(o.out) / "tensorboard")->path();
  const std::string whole = read_file(file);
  write_file(file, whole.substr(0, whole.size() - 7));
  o.resume = true;
  Record second;
  run_training(o, second);
  const std::vector<Scalar> scalars = scalars_of(o.out);
  EXPECT_EQ(scalars, scalars_of_metrics(o.out));
  std::set<std::pair<int64_t, std::string>> seen;
  for (const Scalar& s : scalars)
    EXPECT_TRUE(seen.emplace(s.step, s.tag).second) << s.step << s.tag;
}

TEST(RecordFile, HasTheChecksumOfTheStandard) {
  EXPECT_EQ(io::crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(io::crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(io::crc32c(""), crc_by_definition(""));
}

TEST(RecordFile, SeesATornAndADamagedRecord) {
  const std::string record = io::frame_record("payload");
  ASSERT_TRUE(io::first_record(record + "more"));
  EXPECT_EQ(*io::first_record(record + "more"), "payload");
  for (size_t size = 0; size < record.size(); ++size) {
    EXPECT_FALSE(io::first_record(record.substr(0, size))) << size;
  }
  for (size_t i = 0; i < record.size(); ++i) {
    std::string damaged = record;
    damaged[i] ^= 1;
    EXPECT_FALSE(io::first_record(damaged)) << i;
  }
}

}  // namespace
}  // namespace wgrad::train
