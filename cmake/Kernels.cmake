# src/kernels/*.wgsl and src/kernels/export/*.wgsl become one table of strings in the library
# (gpu/kernel_sources.h).
file(GLOB WGRAD_KERNELS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/kernels/*.wgsl
     ${PROJECT_SOURCE_DIR}/src/kernels/export/*.wgsl)
set(kernel_table ${PROJECT_BINARY_DIR}/generated/kernel_sources.cc)
add_custom_command(
  OUTPUT ${kernel_table}
  COMMAND ${CMAKE_COMMAND} -DOUT=${kernel_table} "-DKERNELS=${WGRAD_KERNELS}"
          -P ${PROJECT_SOURCE_DIR}/cmake/EmbedKernels.cmake
  DEPENDS ${WGRAD_KERNELS} ${PROJECT_SOURCE_DIR}/cmake/EmbedKernels.cmake
          ${PROJECT_SOURCE_DIR}/cmake/RawLiteral.cmake
  VERBATIM)
add_library(wgrad_kernel_sources STATIC ${kernel_table})
target_include_directories(wgrad_kernel_sources PUBLIC ${PROJECT_SOURCE_DIR}/src)
target_compile_features(wgrad_kernel_sources PRIVATE cxx_std_20)
set_target_properties(wgrad_kernel_sources PROPERTIES POSITION_INDEPENDENT_CODE ON)
