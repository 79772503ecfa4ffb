# oneDNN: the CPU's f32 matrix product. It picks its kernels for the processor at run time.
# Its CMake package is used only where -Ddnnl_DIR= names one: Debian's stops the configuration
# unless OpenCL's headers are installed, which nothing here needs.
add_library(wgrad_onednn INTERFACE)
if(dnnl_DIR)
  find_package(dnnl CONFIG REQUIRED)
  target_link_libraries(wgrad_onednn INTERFACE DNNL::dnnl)
else()
  find_path(WGRAD_DNNL_INCLUDE dnnl.h)
  find_library(WGRAD_DNNL_LIBRARY dnnl)
  if(NOT WGRAD_DNNL_INCLUDE OR NOT WGRAD_DNNL_LIBRARY)
    message(FATAL_ERROR "oneDNN was not found; install it: apt-get install libdnnl-dev "
                        "(or give -Ddnnl_DIR=<its CMake folder>)")
  endif()
  target_include_directories(wgrad_onednn INTERFACE ${WGRAD_DNNL_INCLUDE})
  target_link_libraries(wgrad_onednn INTERFACE ${WGRAD_DNNL_LIBRARY})
endif()
