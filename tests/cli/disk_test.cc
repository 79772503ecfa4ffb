#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "testing.h"

namespace wgrad::cli {
namespace {

using namespace testing;
using ::testing::HasSubstr;

/// Writes past `bytes` of a file fail, as on a full disk.
ChildSetup files_of_at_most(rlim_t bytes) {
  return [bytes] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {bytes, bytes};
    setrlimit(RLIMIT_FSIZE, &limit);
  };
}

TEST(Disk, FullAtTheFirstCheckpoint) {
  const Workplace place;
  const Outcome outcome = run_program(place.train({"--steps", "3"}), files_of_at_most(20000));
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("error: "));
  EXPECT_THAT(outcome.err, HasSubstr("step-000003"));
  EXPECT_THAT(outcome.err, HasSubstr("disk"));
  EXPECT_TRUE(fs::is_empty(place.root() / "out/checkpoints"));
  EXPECT_FALSE(fs::exists(place.root() / "out/adapter_model.safetensors"));
}

TEST(Disk, AFileOverTheLimitIsAnErrorAndNoDeath) {
  const Workplace place;
  const ChildSetup limit = [] {
    ::signal(SIGXFSZ, SIG_DFL);
    const rlimit most = {20000, 20000};
    setrlimit(RLIMIT_FSIZE, &most);
  };
  const Outcome outcome = run_program(place.train({"--steps", "3"}), limit);
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("error: "));
  EXPECT_THAT(outcome.err, HasSubstr("step-000003"));
}

TEST(Disk, WithoutSpace) {
  const Workplace place;
  fs::create_directory(place.root() / "out");
  const std::string out = place.path("out");
  // A file system of 16 pages that only the child sees.
  const ChildSetup small_disk = [&out] {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) ||
        mount("tmpfs", out.c_str(), "tmpfs", 0, "size=64k") != 0) {
      _exit(77);
    }
  };
  const Outcome outcome = run_program(place.train({"--steps", "3"}), small_disk);
  if (outcome.code == 77) GTEST_SKIP() << "mounting a small disk is not permitted here";
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("error: " + out + "/checkpoints/step-000003"));
  EXPECT_THAT(outcome.err, HasSubstr("No space left"));
}

TEST(Disk, FullLaterLeavesTheLastCheckpointWhole) {
  const Workplace place;
  const Arguments run = place.train({"--steps", "4", "--save-every", "2", "--resume"});
  // A run that the disk stops between its checkpoints: metrics.jsonl cannot grow.
  ASSERT_EQ(
      run_program(place.train({"--steps", "4", "--save-every", "2"}), files_of_at_most(100000))
          .code,
      0);
  const std::string state = read_file(place.root() / "out/checkpoints/step-000002/state.json");
  fs::remove_all(place.root() / "out/checkpoints/step-000004");
  const Outcome full = run_program(run, files_of_at_most(700));
  EXPECT_EQ(full.code, 1) << full.err;
  EXPECT_THAT(full.err, HasSubstr("metrics.jsonl"));
  EXPECT_EQ(read_file(place.root() / "out/checkpoints/step-000002/state.json"), state);
  const Outcome again = run_program(run);
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(json_lines(read_file(place.root() / "out/metrics.jsonl")).size(), 4u);
}

TEST(Disk, FullWhileMerging) {
  const Workplace place;
  const std::string adapter = fs::path(WGRAD_TEST_DATA) / "models/llama3/adapter";
  const Outcome outcome = run_program({"merge", "--model", place.path("model"), "--adapter",
                                       adapter, "--out", place.path("merged")},
                                      files_of_at_most(50000));
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("merged"));
  EXPECT_FALSE(fs::exists(place.root() / "merged"));
}

TEST(Disk, OutputBelowAFile) {
  const Workplace place;
  const Outcome outcome = run_program(place.train({"--out", place.path("train.jsonl/out")}));
  EXPECT_TRUE(outcome.code == 1 || outcome.code == 2) << outcome.code;
  EXPECT_THAT(outcome.err, HasSubstr(place.path("train.jsonl/out")));
  EXPECT_THAT(outcome.err, HasSubstr("--out"));
}

TEST(Disk, OutputThatIsAFile) {
  const Workplace place;
  const std::string rows = read_file(place.root() / "train.jsonl");
  const Outcome outcome = run_program(place.train({"--out", place.path("train.jsonl")}));
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("train.jsonl: is a file"));
  EXPECT_EQ(read_file(place.root() / "train.jsonl"), rows);
}

TEST(Disk, ReadOnlyFolder) {
  const Workplace place;
  fs::create_directory(place.root() / "closed");
  fs::permissions(place.root() / "closed", fs::perms::owner_read | fs::perms::owner_exec);
  // Root writes everywhere unless the program is started without that right.
  const ChildSetup without_override = [] {
    constexpr int kDacOverride = 1;  // CAP_DAC_OVERRIDE
    if (geteuid() == 0 && prctl(PR_CAPBSET_DROP, kDacOverride, 0, 0, 0) != 0) _exit(77);
  };
  for (const char* out : {"closed/out", "closed"}) {
    const Outcome outcome = run_program(place.train({"--out", place.path(out)}), without_override);
    if (outcome.code == 77) GTEST_SKIP() << "root may not give up its right to write everywhere";
    EXPECT_EQ(outcome.code, 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("error: " + place.path("closed")));
    EXPECT_THAT(outcome.err, HasSubstr("Permission denied"));
    EXPECT_TRUE(fs::is_empty(place.root() / "closed"));
  }
  fs::permissions(place.root() / "closed", fs::perms::owner_all);
}

TEST(Disk, ThatCannotBeWritten) {
  const Workplace place;
  fs::create_directory(place.root() / "closed");
  const std::string closed = place.path("closed");
  const ChildSetup read_only_disk = [&closed] {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) ||
        mount("tmpfs", closed.c_str(), "tmpfs", MS_RDONLY, "size=64k") != 0) {
      _exit(77);
    }
  };
  for (const char* out : {"closed/out", "closed"}) {
    const Outcome outcome = run_program(place.train({"--out", place.path(out)}), read_only_disk);
    if (outcome.code == 77) GTEST_SKIP() << "mounting a disk is not permitted here";
    EXPECT_EQ(outcome.code, 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("error: " + closed));
    EXPECT_THAT(outcome.err, HasSubstr("Read-only file system"));
  }
}

TEST(Disk, OutputThatHoldsAnotherRun) {
  const Workplace place;
  ASSERT_EQ(run_program(place.train({"--steps", "1"})).code, 0);
  const auto before = place.snapshot();
  const Outcome outcome = run_program(place.train({"--steps", "1"}));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr(place.path("out")));
  EXPECT_THAT(outcome.err, HasSubstr("--resume"));
  EXPECT_TRUE(place.snapshot() == before);
  const Outcome merge = run_program({"merge", "--model", place.path("model"), "--adapter",
                                     place.path("out"), "--out", place.path("model")});
  EXPECT_EQ(merge.code, 2);
  EXPECT_THAT(merge.err, HasSubstr(place.path("model")));
  EXPECT_TRUE(place.snapshot() == before);
}

TEST(Disk, OutputPipeThatIsFull) {
  const Workplace place;
  const ChildSetup to_full_device = [] {
    if (!freopen("/dev/full", "w", stdout)) _exit(77);
  };
  const Outcome outcome =
      run_program({"info", "--model", place.path("model"), "--json"}, to_full_device);
  if (outcome.code == 77) GTEST_SKIP() << "this system has no /dev/full";
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("standard output"));
}

/// Full fine-tuning keeps weights, gradients and two moments in memory: a model whose file is
/// mostly a hole does not fit on any machine, and the run says so before it reads it.
TEST(Memory, TooSmallForTheRun) {
  const Workplace place;
  constexpr int64_t kHidden = 16384, kLayers = 60;
  place.edit_config({{"hidden_size", kHidden},
                     {"intermediate_size", 4 * kHidden},
                     {"num_hidden_layers", kLayers},
                     {"num_attention_heads", 128},
                     {"num_key_value_heads", 128},
                     {"head_dim", 128}});
  nlohmann::json header;
  int64_t end = 0;
  auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    int64_t bytes = 4;
    for (int64_t d : shape) bytes *= d;
    header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {end, end + bytes}}};
    end += bytes;
  };
  add("model.embed_tokens.weight", {149, kHidden});
  for (int64_t i = 0; i < kLayers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i);
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
      add(layer + ".self_attn." + name + ".weight", {kHidden, kHidden});
    }
    add(layer + ".mlp.gate_proj.weight", {4 * kHidden, kHidden});
    add(layer + ".mlp.up_proj.weight", {4 * kHidden, kHidden});
    add(layer + ".mlp.down_proj.weight", {kHidden, 4 * kHidden});
    add(layer + ".input_layernorm.weight", {kHidden});
    add(layer + ".post_attention_layernorm.weight", {kHidden});
  }
  add("model.norm.weight", {kHidden});
  const std::string text = header.dump();
  const uint64_t length = text.size();
  const fs::path weights = place.root() / "model/model.safetensors";
  std::ofstream(weights, std::ios::binary)
      << std::string(reinterpret_cast<const char*>(&length), sizeof length) << text;
  std::error_code error;
  fs::resize_file(weights, 8 + length + static_cast<uint64_t>(end), error);
  if (error) GTEST_SKIP() << "this file system has no files of " << end << " bytes";

  const Outcome outcome = run_program(place.train({"--method", "full", "--rank", "16"}));
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("error: memory: the run needs "));
  EXPECT_THAT(outcome.err, HasSubstr("no setting makes it fit"));
  EXPECT_FALSE(fs::exists(place.root() / "out"));
}

}  // namespace
}  // namespace wgrad::cli
