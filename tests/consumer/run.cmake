# Installs BUILD (a build folder of wgrad) into a prefix within WORK, moves the prefix, builds this
# folder and examples/cpp against it as a project of their own, and runs them.
# -DBUILD= -DWORK= -DSOURCE= (of wgrad) -DGENERATOR= -DCOMPILER= [-DLAUNCHER=]
# -DDEPS= -DCARGO= (WGRAD_DEPS_DIR and WGRAD_CARGO of BUILD)
include(${CMAKE_CURRENT_LIST_DIR}/../run.cmake)

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/first)
file(RENAME ${WORK}/first ${WORK}/prefix)
run(${WORK}/prefix/bin/wgrad --version)

run(${CMAKE_COMMAND} -S ${SOURCE}/tests/consumer -B ${WORK}/build -G ${GENERATOR}
    -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}
    -DCMAKE_PREFIX_PATH=${WORK}/prefix -DWGRAD_EXAMPLES=${SOURCE}/examples/cpp
    "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
run(${CMAKE_COMMAND} --build ${WORK}/build)

foreach(i RANGE 7)
  file(APPEND ${WORK}/rows.jsonl "{\"text\": \"w5 w6 w${i} w8 w9\"}\n")
endforeach()
file(WRITE ${WORK}/valid.jsonl "{\"text\": \"w9 w8 w7 w6\"}\n")
set(model ${SOURCE}/tests/data/models/smollm2)
set(examples ${WORK}/build/examples)
run(${WORK}/build/consumer ${model} ${WORK}/rows.jsonl)
run(${examples}/example_train ${model} ${WORK}/rows.jsonl ${WORK}/trained cpu)
expect_in_output("10 steps, final loss")
if(NOT EXISTS ${WORK}/trained/adapter_model.safetensors)
  message(FATAL_ERROR "example_train wrote no adapter")
endif()
# At this learning rate the evaluation's loss soon rises.
run(${examples}/example_stop_early ${model} ${WORK}/rows.jsonl ${WORK}/valid.jsonl
    ${WORK}/stopped 0.05)
expect_in_output("stopped after")
run(${examples}/example_kernel software)
expect_in_output("dx[1, 2]")

run(${CMAKE_COMMAND} -S ${SOURCE}/tests/consumer/embedded -B ${WORK}/embedded -G ${GENERATOR}
    -DCMAKE_CXX_COMPILER=${COMPILER} -DWGRAD_SOURCE=${SOURCE} -DWGRAD_DEPS_DIR=${DEPS}
    -DWGRAD_CARGO=${CARGO})

# The library exports what its headers declare and nothing of what it is made from.
find_program(NM nm)
if(NM)
  file(GLOB library ${WORK}/prefix/lib*/libwgrad.so ${WORK}/prefix/lib/*/libwgrad.so)
  run(${NM} -D --defined-only --demangle --format=posix ${library})
  string(REGEX REPLACE "\n$" "" output "${output}")
  string(REPLACE ";" "" output "${output}")
  string(REPLACE "\n" ";" symbols "${output}")
  set(api "Error|input_error|runtime_failure|run_training|plan_training|Kernel|KernelRunner|kernels")
  foreach(symbol IN LISTS symbols)
    if(NOT symbol MATCHES "^((vtable|typeinfo|typeinfo name) for )?wgrad::(${api})[(: ]")
      message(FATAL_ERROR "libwgrad exports ${symbol}")
    endif()
  endforeach()
endif()
file(REMOVE_RECURSE ${WORK})
