# cpack makes wgrad-<version>-<system>-<processor>.tar.gz, which carries its libraries, and, where
# Debian's tools are, wgrad_<version>_<architecture>.deb, which depends on Debian's.
set(CPACK_PACKAGE_NAME wgrad)
set(CPACK_PACKAGE_VENDOR "the wgrad authors")
set(CPACK_PACKAGE_CONTACT "the wgrad authors <wgrad@invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGE_DESCRIPTION "wgrad trains LoRA and QLoRA adapters or whole models through WebGPU
or on the CPU, without Python and CUDA. The package holds the program, and the
library libwgrad with its headers and CMake package.")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)
set(CPACK_GENERATOR TGZ)
find_program(WGRAD_DPKG_SHLIBDEPS dpkg-shlibdeps)
mark_as_advanced(WGRAD_DPKG_SHLIBDEPS)
if(WGRAD_DPKG_SHLIBDEPS)
  list(APPEND CPACK_GENERATOR DEB)
endif()
string(TOLOWER ${CMAKE_SYSTEM_NAME} system)
set(CPACK_PACKAGE_FILE_NAME wgrad-${PROJECT_VERSION}-${system}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/cmake/PackageOptions.cmake)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
# Dawn opens the Vulkan loader when a GPU is asked for.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS libvulkan1)
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)
include(CPack)
