# Dawn, the WebGPU implementation: target wgrad_dawn.
# A Dawn found by CMake (or given by -DDawn_DIR=) comes first; otherwise a pinned prebuilt is brought
# by pip (the library) and npm (the headers) and checked by hash.
# wgrad_dawn_shared names the imported shared library, to be installed beside the program.
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
set(wgrad_dawn_shared "")

add_library(wgrad_dawn INTERFACE)

find_package(Dawn CONFIG QUIET)
if(Dawn_FOUND)
  foreach(target IN ITEMS dawn::webgpu_dawn dawn::webgpu webgpu_dawn)
    if(TARGET ${target})
      message(STATUS "Dawn: ${target} of ${Dawn_DIR}")
      target_link_libraries(wgrad_dawn INTERFACE ${target})
      get_target_property(wgrad_dawn_kind ${target} TYPE)
      if(wgrad_dawn_kind STREQUAL "SHARED_LIBRARY")
        set(wgrad_dawn_shared ${target})
      endif()
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "The Dawn of ${Dawn_DIR} has no target dawn::webgpu_dawn; it was built without "
                      "DAWN_ENABLE_INSTALL or DAWN_BUILD_MONOLITHIC_LIBRARY. Build it with both and "
                      "give -DDawn_DIR=<prefix>/lib/cmake/Dawn, or leave Dawn_DIR unset.")
endif()

if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux" OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  message(FATAL_ERROR "No prebuilt Dawn for ${CMAKE_SYSTEM_NAME} on ${CMAKE_SYSTEM_PROCESSOR}: build "
                      "or download Dawn with its CMake package and give "
                      "-DDawn_DIR=<prefix>/lib/cmake/Dawn.")
endif()

set(wgrad_own_dawn "To use a Dawn of your own give -DDawn_DIR=<prefix>/lib/cmake/Dawn.")

function(wgrad_fetch_dawn folder)
  find_program(WGRAD_PYTHON NAMES python3 python)
  if(NOT WGRAD_PYTHON)
    message(FATAL_ERROR "python3 was not found; its pip brings the Dawn library. Install it: "
                        "apt-get install python3-pip. ${wgrad_own_dawn}")
  endif()
  execute_process(COMMAND ${WGRAD_PYTHON} -m pip --version RESULT_VARIABLE result OUTPUT_QUIET
                  ERROR_QUIET)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${WGRAD_PYTHON} has no pip, which brings the Dawn library. Install it: "
                        "apt-get install python3-pip. ${wgrad_own_dawn}")
  endif()

  set(wheel rillfacet-0.1.3-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl)
  set(wgrad_dawn_work ${folder}.part)
  file(REMOVE_RECURSE ${wgrad_dawn_work})
  file(MAKE_DIRECTORY ${wgrad_dawn_work})

  message(STATUS "Dawn: fetching the library by pip")
  wgrad_fetch("the Dawn library" ${wgrad_dawn_work}
    "Check the network and pip (${WGRAD_PYTHON} -m pip --version). ${wgrad_own_dawn}"
    ${WGRAD_PYTHON} -m pip download --quiet --no-deps --only-binary=:all:
    --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --python-version 3.11
    --implementation cp --abi cp311 --require-hashes
    -r ${PROJECT_SOURCE_DIR}/cmake/dawn-requirements.txt -d ${wgrad_dawn_work})
  wgrad_check_hash(${wgrad_dawn_work}/${wheel}
                   b333f2c4c84df2f1105e4d0146e3c7aae8dd2200a0b6c7ded74c38e8ca0a5f93
                   "${wgrad_own_dawn}")
  message(STATUS "Dawn: fetching the headers by npm")
  wgrad_npm_pack(react-native-webgpu 0.10.2
                 6bbccc00e30c51ae196f8024167a5fbd66382ffc6c5ab57a834ee64a970c037f
                 ${wgrad_dawn_work} "${wgrad_own_dawn}")

  file(ARCHIVE_EXTRACT INPUT ${wgrad_dawn_work}/${wheel} DESTINATION ${wgrad_dawn_work}
       PATTERNS rillfacet/libwebgpu_dawn.so rillfacet-*/licenses/*)
  file(ARCHIVE_EXTRACT INPUT ${wgrad_dawn_work}/react-native-webgpu-0.10.2.tgz DESTINATION ${wgrad_dawn_work}
       PATTERNS package/cpp/webgpu/*)
  file(REMOVE ${wgrad_dawn_work}/${wheel} ${wgrad_dawn_work}/react-native-webgpu-0.10.2.tgz)
  file(RENAME ${wgrad_dawn_work}/rillfacet/libwebgpu_dawn.so ${wgrad_dawn_work}/libwebgpu_dawn.so)
  file(RENAME ${wgrad_dawn_work}/package/cpp ${wgrad_dawn_work}/include)
  if(CMAKE_STRIP)
    wgrad_fetch("the stripped Dawn library" ${wgrad_dawn_work} "Check ${CMAKE_STRIP}."
                ${CMAKE_STRIP} --strip-unneeded ${wgrad_dawn_work}/libwebgpu_dawn.so)
  endif()
  file(REMOVE_RECURSE ${folder})
  file(RENAME ${wgrad_dawn_work} ${folder})
endfunction()

set(wgrad_dawn_folder ${WGRAD_DEPS_DIR}/dawn-b333f2c4-6bbccc00)
file(LOCK ${WGRAD_DEPS_DIR}/dawn.lock GUARD FILE TIMEOUT 1200)
if(NOT EXISTS ${wgrad_dawn_folder}/libwebgpu_dawn.so)
  wgrad_fetch_dawn(${wgrad_dawn_folder})
endif()
file(LOCK ${WGRAD_DEPS_DIR}/dawn.lock RELEASE)
message(STATUS "Dawn: ${wgrad_dawn_folder}")

file(COPY ${wgrad_dawn_folder}/libwebgpu_dawn.so DESTINATION ${PROJECT_BINARY_DIR})
add_library(wgrad_dawn_library SHARED IMPORTED)
set_target_properties(wgrad_dawn_library PROPERTIES
  IMPORTED_LOCATION ${PROJECT_BINARY_DIR}/libwebgpu_dawn.so
  INTERFACE_INCLUDE_DIRECTORIES ${wgrad_dawn_folder}/include)
target_link_libraries(wgrad_dawn INTERFACE wgrad_dawn_library)
set(wgrad_dawn_shared wgrad_dawn_library)
set(wgrad_dawn_licences ${wgrad_dawn_folder}/rillfacet-0.1.3.dist-info/licenses)
