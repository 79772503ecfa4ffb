// Damaged files must end in wgrad::Error and nothing else: no crash, no other exception, no large
// allocation. The seeds are fixed, so that a failure repeats.
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "gguf_builder.h"
#include "io/gguf.h"
#include "io/gguf_names.h"
#include "io/json_lines.h"
#include "io/safetensors.h"
#include "testing.h"

namespace wgrad::io {
namespace {

constexpr int kRounds = 3000;

using Generator = std::mt19937;

std::size_t below(Generator& generator, std::size_t bound) {
  return std::uniform_int_distribution<std::size_t>(0, bound - 1)(generator);
}

// One damage within the first `reach` bytes: flipped bits, an extreme number, bytes removed,
// doubled or cut off.
std::string damaged(std::string bytes, std::size_t reach, Generator& generator) {
  const std::size_t at = below(generator, std::min(reach, bytes.size()));
  switch (below(generator, 6)) {
    case 0:
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(generator, 8)));
      break;
    case 1:
      bytes[at] = static_cast<char>(below(generator, 256));
      break;
    case 2: {
      const std::uint64_t extremes[] = {0,
                                        1,
                                        0x7fffffff,
                                        0xffffffff,
                                        ~std::uint64_t{0} >> 1,
                                        ~std::uint64_t{0},
                                        ~std::uint64_t{0} - 7};
      const std::string number = raw(extremes[below(generator, std::size(extremes))]);
      bytes.replace(at, 8, number);
      break;
    }
    case 3:
      bytes.erase(at, 1 + below(generator, 9));
      break;
    case 4:
      bytes.insert(at, bytes.substr(at, 1 + below(generator, 40)));
      break;
    default:
      bytes.resize(at);
  }
  return bytes;
}

// Tries `use` on damaged copies of `valid`; says how many were refused.
int refusals(const std::string& valid, std::size_t reach, std::uint32_t seed,
             const std::function<void(const fs::path&)>& use) {
  const TemporaryFolder folder;
  Generator generator(seed);
  int refused = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes = valid;
    for (std::size_t n = 1 + below(generator, 3); n > 0 && !bytes.empty(); --n) {
      bytes = damaged(std::move(bytes), reach, generator);
    }
    const fs::path path = folder.file("damaged.json", bytes);
    try {
      use(path);
    } catch (const Error&) {
      ++refused;
    }
  }
  return refused;
}

void read_everything(const std::vector<TensorView>& tensors) {
  for (const TensorView& tensor : tensors) {
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    to_f32(tensor.type, tensor.bytes, values);
  }
}

TEST(DamagedFiles, OfSafetensorsEndInErrors) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b.weight":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}})";
  const std::string valid = safetensors_bytes(header, std::string(32, 'x'));
  const int refused = refusals(valid, valid.size(), 1, [](const fs::path& path) {
    read_everything(SafetensorsFile::open(path).tensors());
  });
  EXPECT_GT(refused, kRounds / 2);
}

TEST(DamagedFiles, OfGgufEndInErrors) {
  GgufBuilder builder;
  builder.text("general.architecture", "llama")
      .key("array", kTagArray,
           raw<std::uint32_t>(kTagString) + raw<std::uint64_t>(2) + gguf_string("a") +
               gguf_string("b"))
      .key("nested", kTagArray,
           raw<std::uint32_t>(kTagArray) + raw<std::uint64_t>(1) + raw<std::uint32_t>(kTagUint64) +
               raw<std::uint64_t>(1) + raw<std::uint64_t>(7))
      .number("llama.block_count", 1)
      .number("llama.context_length", 64)
      .number("llama.embedding_length", 8)
      .number("llama.feed_forward_length", 8)
      .number("llama.attention.head_count", 2)
      .number("llama.attention.head_count_kv", 1)
      .fraction("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .zeros("token_embd.weight", {8, 4})
      .zeros("rope_freqs.weight", {2})
      .zeros("blk.0.attn_q.weight", {8, 8})
      .zeros("blk.0.attn_k.bias", {4});
  const std::string valid = builder.bytes();
  const int refused =
      refusals(valid, valid.size() - builder.data.size(), 2, [](const fs::path& path) {
        auto file = std::make_shared<const GgufFile>(GgufFile::open(path));
        read_everything(file->tensors());
        const auto source = open_gguf_source(file);
        for (const std::string& name : source->names()) {
          std::vector<float> values(static_cast<std::size_t>(source->get(name).elements()));
          source->read_f32(name, values);
        }
        gguf_config_json(*file);
      });
  EXPECT_GT(refused, kRounds / 2);
}

TEST(DamagedFiles, OfRowsEndInErrors) {
  const std::string valid =
      "[{\"messages\":[{\"role\":\"user\",\"content\":\"h\\u00e9 \xc3\xa9\"}]},\n "
      "[1e5,null],\"x\"]";
  const int refused = refusals(valid, valid.size(), 3, [](const fs::path& path) {
    JsonLines lines = JsonLines::open(path);
    nlohmann::ordered_json row;
    while (lines.next(row)) {
    }
  });
  EXPECT_GT(refused, kRounds / 4);
}

}  // namespace
}  // namespace wgrad::io
