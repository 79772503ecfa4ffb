#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpu/device.h"
#include "wgrad/error.h"

namespace wgrad::gpu {

/// A checked device on the software driver, unless told otherwise. Throws, and so fails the test,
/// where there is none.
inline DeviceOptions software(bool checked = true) {
  DeviceOptions options;
  options.selector = "software";
  options.checked = checked;
  return options;
}

inline KernelSpec generated(std::string_view name, std::string text,
                            std::string_view entry_point = "main") {
  KernelSpec kernel;
  kernel.source = name;
  kernel.entry_point = entry_point;
  kernel.generated_text = std::move(text);
  return kernel;
}

inline Binding all(const Buffer& buffer) { return {&buffer, 0, buffer.size()}; }

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span<const T>(&value, 1));
}

template <typename T>
Buffer make_buffer(Device& device, const std::vector<T>& data, std::string_view label = "test") {
  Buffer buffer = device.allocate(data.size() * sizeof(T), label);
  device.upload({&buffer, 0, data.size() * sizeof(T)}, std::as_bytes(std::span<const T>(data)));
  return buffer;
}

template <typename T>
std::vector<T> contents(Device& device, const Buffer& buffer, size_t count) {
  std::vector<T> out(count);
  device.read({&buffer, 0, count * sizeof(T)}, std::as_writable_bytes(std::span<T>(out)));
  return out;
}

/// The text of the wgrad::Error that `f` throws; empty where it throws none.
inline std::string error_text(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

}  // namespace wgrad::gpu
