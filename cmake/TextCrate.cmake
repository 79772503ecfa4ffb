# The tokenizer and chat template: two Rust crates in one static library with a C interface.
set(WGRAD_CARGO_TARGET_DIR "${PROJECT_BINARY_DIR}/cargo" CACHE PATH
    "Where cargo builds the text crate; several build folders may share one")
set(wgrad_rust_needed 1.88)

find_program(WGRAD_CARGO cargo HINTS "$ENV{CARGO_HOME}/bin" "$ENV{HOME}/.cargo/bin")
if(NOT WGRAD_CARGO)
  message(FATAL_ERROR "cargo was not found; the tokenizer needs Rust ${wgrad_rust_needed} or newer. "
                      "Install it with rustup: curl --proto '=https' --tlsv1.2 -sSf "
                      "https://sh.rustup.rs | sh -s -- -y --profile minimal "
                      "(or give -DWGRAD_CARGO=<path of cargo>)")
endif()
execute_process(COMMAND ${WGRAD_CARGO} --version OUTPUT_VARIABLE wgrad_cargo_version
                OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE wgrad_cargo_result
                ERROR_VARIABLE wgrad_cargo_error WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" wgrad_cargo_number "${wgrad_cargo_version}")
if(NOT wgrad_cargo_result EQUAL 0 OR NOT wgrad_cargo_number)
  message(FATAL_ERROR "${WGRAD_CARGO} --version failed: ${wgrad_cargo_error}")
endif()
if(wgrad_cargo_number VERSION_LESS wgrad_rust_needed)
  message(FATAL_ERROR "${WGRAD_CARGO} is ${wgrad_cargo_number}; the tokenizer needs Rust "
                      "${wgrad_rust_needed} or newer. With rustup: rustup update stable; without: "
                      "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y "
                      "--profile minimal, then -DWGRAD_CARGO=$HOME/.cargo/bin/cargo")
endif()

set(wgrad_crate_dir "${PROJECT_SOURCE_DIR}/src/text/rust")
set(wgrad_crate_library "${WGRAD_CARGO_TARGET_DIR}/release/${CMAKE_STATIC_LIBRARY_PREFIX}wgrad_text\
${CMAKE_STATIC_LIBRARY_SUFFIX}")
file(GLOB wgrad_crate_sources CONFIGURE_DEPENDS ${wgrad_crate_dir}/src/*.rs)

add_custom_command(
  OUTPUT ${wgrad_crate_library}
  COMMAND ${WGRAD_CARGO} build --locked --release --quiet --manifest-path
          ${wgrad_crate_dir}/Cargo.toml --target-dir ${WGRAD_CARGO_TARGET_DIR}
  # cargo leaves the library as it is when only a file's time has changed
  COMMAND ${CMAKE_COMMAND} -E touch_nocreate ${wgrad_crate_library}
  DEPENDS ${wgrad_crate_sources} ${wgrad_crate_dir}/Cargo.toml ${wgrad_crate_dir}/Cargo.lock
  WORKING_DIRECTORY ${wgrad_crate_dir}
  COMMENT "Building the text crate with cargo"
  VERBATIM)
add_custom_target(wgrad_text_crate_build DEPENDS ${wgrad_crate_library})

add_library(wgrad_text_crate INTERFACE)
add_dependencies(wgrad_text_crate wgrad_text_crate_build)
target_link_libraries(wgrad_text_crate INTERFACE ${wgrad_crate_library} Threads::Threads
                      ${CMAKE_DL_LIBS})
if(UNIX)
  target_link_libraries(wgrad_text_crate INTERFACE m)
endif()
