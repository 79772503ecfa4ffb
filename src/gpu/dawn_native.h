#pragma once

#include <vector>

#include "gpu/dawn.h"

#if __has_include(<dawn/native/DawnNative.h>)
#include <dawn/native/DawnNative.h>
#else
// The webgpu headers offer one adapter at a time, never a list. Dawn's own interface does, but the
// prebuilt library comes without its header: these are the parts of it that wgrad calls.
namespace dawn::native {

class AdapterBase;
class InstanceBase;

class Adapter {
 public:
  Adapter(const Adapter&);
  ~Adapter();
  WGPUAdapter Get() const;

 private:
  AdapterBase* mImpl = nullptr;
};

class Instance {
 public:
  explicit Instance(InstanceBase* impl);
  ~Instance();
  std::vector<Adapter> EnumerateAdapters(const wgpu::RequestAdapterOptions* options) const;

 private:
  InstanceBase* mImpl = nullptr;
};

}  // namespace dawn::native
#endif
