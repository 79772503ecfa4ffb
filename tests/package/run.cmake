# Makes the packages of BUILD in WORK, looks at what they hold, and runs the program of the unpacked
# archive with an empty environment. tools/check-packages.sh runs them on bare systems.
# -DBUILD= -DWORK= -DSOURCE= (of wgrad) -DCPACK= -DVERSION=
include(${CMAKE_CURRENT_LIST_DIR}/../run.cmake)

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
run(${CPACK} --config ${BUILD}/CPackConfig.cmake -B ${WORK})
set(contents bin/wgrad lib/wgrad/wgrad lib/wgrad/libwebgpu_dawn.so lib/libwgrad.so
    include/wgrad/train.h lib/cmake/wgrad/wgrad-config.cmake lib/cmake/wgrad/wgrad-config-version.cmake
    share/doc/wgrad/LICENSE share/man/man1/wgrad.1 share/bash-completion/completions/wgrad)

file(GLOB archive ${WORK}/wgrad-${VERSION}-*.tar.gz)
file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${WORK})
string(REGEX REPLACE "\\.tar\\.gz$" "" unpacked ${archive})
file(GLOB_RECURSE output LIST_DIRECTORIES false RELATIVE ${unpacked} ${unpacked}/*)
expect_in_output(${contents} lib/wgrad/libdnnl.so lib/wgrad/libgomp.so share/doc/wgrad/licences/dawn)
if(output MATCHES "libc\\.so|libstdc")
  message(FATAL_ERROR "the archive carries what belongs to the system or to the tests:\n${output}")
endif()

# Whatever the program loads comes from the archive, but for the C library and GCC's runtime.
execute_process(COMMAND env -i LD_TRACE_LOADED_OBJECTS=1 ${unpacked}/bin/wgrad
                OUTPUT_VARIABLE output RESULT_VARIABLE result)
string(REPLACE "\n" ";" loaded "${output}")
foreach(line IN LISTS loaded)
  if(line MATCHES "=> (not found|/[^ ]*)" AND
     NOT line MATCHES "${unpacked}/|/lib(c|m|gcc_s|stdc\\+\\+|dl|rt|pthread)\\.so|/ld-linux")
    message(FATAL_ERROR "the archive's program takes from the system:${line}")
  endif()
endforeach()

file(WRITE ${WORK}/rows.jsonl "{\"text\": \"w5 w6 w7 w8\"}\n")
set(alone env -i ${unpacked}/bin/wgrad)
run(${alone} --version)
expect_in_output(${VERSION})
run(${alone} devices)
run(${alone} train --plan --device cpu --model ${SOURCE}/tests/data/models/smollm2
    --data ${WORK}/rows.jsonl --out ${WORK}/unused)

find_program(DPKG_DEB dpkg-deb)
file(GLOB package ${WORK}/wgrad_${VERSION}_*.deb)
if(package AND DPKG_DEB)
  run(${DPKG_DEB} --contents ${package})
  list(TRANSFORM contents PREPEND ./usr/)
  expect_in_output(${contents})
  if(output MATCHES "libdnnl|libgomp")
    message(FATAL_ERROR "the Debian package carries Debian's libraries:\n${output}")
  endif()
  run(${DPKG_DEB} --field ${package} Depends)
  expect_in_output(libc6 libdnnl libfmt libgomp1 libstdc++6 libyaml-cpp zlib1g)
endif()
file(REMOVE_RECURSE ${WORK})
