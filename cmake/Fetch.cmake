# How pinned packages come into the build: by a package client, checked by hash.
set(WGRAD_DEPS_DIR "${PROJECT_BINARY_DIR}/_deps" CACHE PATH
    "Where fetched dependencies are kept; several build folders may share one")
file(MAKE_DIRECTORY ${WGRAD_DEPS_DIR})

# Runs a package client in a folder; on failure says what it said and what to do.
function(wgrad_fetch what folder advice)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY ${folder} RESULT_VARIABLE result
                  OUTPUT_VARIABLE output ERROR_VARIABLE output TIMEOUT 900)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "Fetching ${what} failed (${result}):\n${output}\n${advice}")
  endif()
endfunction()

function(wgrad_check_hash file expected advice)
  if(NOT EXISTS ${file})
    message(FATAL_ERROR "${file} was not downloaded. ${advice}")
  endif()
  file(SHA256 ${file} seen)
  if(NOT seen STREQUAL expected)
    message(FATAL_ERROR "${file} has SHA-256 ${seen}, expected ${expected}: it is not the pinned "
                        "file. Remove it and configure again. ${advice}")
  endif()
endfunction()

# Brings NAME-VERSION.tgz of npm into a folder.
function(wgrad_npm_pack name version hash folder advice)
  find_program(WGRAD_NPM npm)
  if(NOT WGRAD_NPM)
    message(FATAL_ERROR "npm was not found; it brings ${name}. Install it: apt-get install npm. "
                        "${advice}")
  endif()
  wgrad_fetch(${name} ${folder} "Check the network and npm (npm --version). ${advice}"
    ${WGRAD_NPM} pack --silent ${name}@${version} --pack-destination ${folder})
  wgrad_check_hash(${folder}/${name}-${version}.tgz ${hash} "${advice}")
endfunction()
