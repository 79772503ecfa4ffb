#pragma once

#include <webgpu/webgpu_cpp.h>

#include <string_view>

namespace wgrad::gpu {

inline std::string_view view(wgpu::StringView s) {
  return s.data == nullptr         ? std::string_view()
         : s.length == WGPU_STRLEN ? std::string_view(s.data)
                                   : std::string_view(s.data, s.length);
}

}  // namespace wgrad::gpu
