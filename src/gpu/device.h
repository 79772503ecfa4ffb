#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace wgrad::gpu {

/// What a device can do beyond core WebGPU. Kernels are chosen by these, never by a vendor's name.
struct Features {
  bool shader_f16 = false;
  bool subgroups = false;
  /// f16 x f16 -> f32 subgroup matrices of 16x16x16.
  bool subgroup_matrix_f16 = false;
  bool timestamps = false;
  uint32_t subgroup_min_size = 0;
  uint32_t subgroup_max_size = 0;
};

struct Limits {
  uint64_t max_buffer_size = 0;
  uint64_t max_binding_size = 0;
  uint32_t max_storage_buffers = 0;
  uint32_t max_workgroups_per_dimension = 0;
  uint32_t max_workgroup_memory = 0;
  uint32_t max_workgroup_invocations = 0;
  uint32_t storage_offset_alignment = 256;
};

struct AdapterInfo {
  enum class Type { kDiscrete, kIntegrated, kCpu, kUnknown };
  std::string name, vendor, architecture, driver, backend;
  Type type = Type::kUnknown;
  uint64_t memory_bytes = 0;  ///< of the device itself, in use or not; 0 where it is not known
  Features features;
  Limits limits;
  /// A software driver (Type::kCpu): used only when asked for by `software`.
  bool is_software() const { return type == Type::kCpu; }
};

/// All adapters of this machine; empty where there is no driver.
std::vector<AdapterInfo> list_adapters();

struct DeviceOptions {
  /// "auto" (discrete, else integrated; never software), "gpu" (same), "gpu:NAME" (part of the
  /// adapter's name), "software".
  std::string selector = "auto";
  /// Keep Dawn's robustness and validation on: for tests. Off, kernels run faster and do their own
  /// bounds checks.
  bool checked = false;
  /// Use nothing beyond core WebGPU: no f16, no subgroups, default limits (16 KiB workgroup memory,
  /// 256 invocations, 8 storage buffers, 128 MiB bindings). For tests of the core paths.
  bool core_only = false;
  bool allow_f16 = true;
  bool allow_subgroups = true;
  bool allow_subgroup_matrix = true;
  /// Lowers the limit on a binding, so that tests meet splitting with small tensors; 0: the
  /// device's.
  uint64_t max_binding_size = 0;
};

class Device;

/// Owns a buffer of device memory; counted by its device until destroyed. Contents start as zero.
class Buffer {
 public:
  Buffer(Buffer&&) noexcept;
  Buffer& operator=(Buffer&&) noexcept;
  ~Buffer();
  uint64_t size() const;  ///< in bytes

  struct Impl;
  explicit Buffer(std::unique_ptr<Impl> impl);
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// A range of a buffer as a kernel sees it. Offsets are multiples of 256, sizes of 4.
struct Binding {
  const Buffer* buffer = nullptr;
  uint64_t offset = 0;
  uint64_t size = 0;
};

/// What makes one pipeline: a file of src/kernels, an entry point, the typed prelude and the
/// override constants. Equal specifications share one pipeline.
struct KernelSpec {
  std::string_view source;  ///< file name without .wgsl
  std::string_view entry_point;
  /// WGSL placed before the file's text: `enable` lines, aliases, constants.
  std::string prelude;
  std::vector<std::pair<std::string, double>> overrides;
  /// Text to compile in place of the file, for kernels that are generated; `source` then only names
  /// it in messages.
  std::string generated_text;
  /// This object stays where and as it is for the program's life, so its pipeline is found by its
  /// address: texts of tens of kilobytes are not compared for every dispatch.
  bool permanent = false;

  bool operator==(const KernelSpec& other) const {
    return source == other.source && entry_point == other.entry_point && prelude == other.prelude &&
           overrides == other.overrides && generated_text == other.generated_text;
  }
};

/// Takes tens of nanoseconds however long the texts are: long ones are sampled, since equality is
/// always decided by comparing them.
uint64_t hash_of(const KernelSpec& kernel);

struct KernelSpecHash {
  size_t operator()(const KernelSpec& kernel) const { return hash_of(kernel); }
};

struct Workgroups {
  uint32_t x = 1, y = 1, z = 1;
};

/// The workgroups for `count` independent groups, folded into x and y where they pass the limit on
/// a dimension (65535): group = x + y * num_workgroups.x. Kernels check group < count.
Workgroups fold_workgroups(uint64_t count);

/// What timestamp queries enclose: each dispatch (which then runs alone: slower), or each pass,
/// that is everything between two copies or submits, as it runs untimed.
enum class Timed { kDispatches, kPasses };

struct DispatchTime {
  std::string kernel;  ///< "source.entry_point"; of a pass, its first
  double seconds = 0;
};

/// A WebGPU device and everything recorded for it. Not thread-safe.
/// Work is recorded in order and runs in order; nothing waits but read(), wait() and the
/// destructor. A failing shader compile, a validation error, running out of memory and a lost
/// device each become one wgrad::Error, thrown by the next call made from the foreground.
class Device {
 public:
  explicit Device(const DeviceOptions& options);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const AdapterInfo& info() const;  ///< features and limits as granted, after the options' masks

  /// Allocates `bytes` (rounded up to 4; 0 becomes 4).
  Buffer allocate(uint64_t bytes, std::string_view label);
  /// Everything alive: buffers, and what the device holds for itself (Statistics::internal_bytes).
  uint64_t allocated_bytes() const;
  uint64_t peak_allocated_bytes() const;
  void reset_peak();

  /// Records one dispatch. Bindings are numbered from 0 in order; `parameters` (a multiple of 4
  /// bytes, at most 256) becomes the uniform at the number that follows the last binding.
  /// `writable` marks the bindings declared read_write in the kernel, bit i for binding i; it is
  /// checked against the kernel's text.
  void dispatch(const KernelSpec& kernel, std::span<const Binding> bindings, uint32_t writable,
                std::span<const std::byte> parameters, Workgroups workgroups);

  /// Records a copy; offsets and sizes are multiples of 4.
  void copy(Binding from, Binding to);
  void fill_zero(Binding range);
  /// Records an upload at this point of the recording: later work sees it, earlier work does not.
  /// `data` is copied at once. Large data is passed on in pieces, so host memory stays bounded.
  /// Where its size is no multiple of 4, the bytes up to the next multiple become zero.
  void upload(Binding to, std::span<const std::byte> data);

  /// Hands what was recorded to the device. Called by itself every few hundred dispatches, so that
  /// the device works while the host records.
  void submit();
  /// Submits and waits, then copies out. `from.size` must equal `into.size()`, which need not be a
  /// multiple of 4.
  void read(Binding from, std::span<std::byte> into);
  /// Starts a read-back without waiting; `finish_read` waits for that one alone.
  uint64_t start_read(Binding from);
  void finish_read(uint64_t ticket, std::span<std::byte> into);
  void wait();

  /// Compiles ahead, in parallel; throws on the first that fails.
  void compile(std::span<const KernelSpec> kernels);

  /// From here dispatches or passes are timed; take_times() submits, waits, returns the times and
  /// ends the timing.
  void start_timing(Timed timed = Timed::kDispatches);
  std::vector<DispatchTime> take_times();

  /// Counters since the device was made, for `bench` and tests.
  struct Statistics {
    uint64_t dispatches = 0, submits = 0, pipelines = 0, bind_groups = 0;
    /// Now held for parameters, uploads, read-backs and timestamps; part of allocated_bytes().
    uint64_t internal_bytes = 0;
  };
  Statistics statistics() const;

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace wgrad::gpu
