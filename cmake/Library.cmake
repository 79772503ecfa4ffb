# wgrad::wgrad for other programs: one shared library with the API of include/wgrad and nothing else,
# so that nobody who links it needs the headers, libraries or tools that wgrad is built with. The
# program and the tests link the layers themselves.
# Nothing in the library calls its API: the layers that hold it come in whole, as objects, and what they
# need out of the layers' archives.
file(GLOB wgrad_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/wgrad/*.h)
add_library(wgrad_library SHARED ${wgrad_headers} $<TARGET_OBJECTS:wgrad_base>
            $<TARGET_OBJECTS:wgrad_ops> $<TARGET_OBJECTS:wgrad_train>)
add_library(wgrad::wgrad ALIAS wgrad_library)
target_link_libraries(wgrad_library PRIVATE wgrad_train)
target_include_directories(wgrad_library PUBLIC
                           $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(wgrad_library PUBLIC cxx_std_20)
set_target_properties(wgrad_library PROPERTIES
  OUTPUT_NAME wgrad
  EXPORT_NAME wgrad
  LINKER_LANGUAGE CXX
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
if(CMAKE_EXECUTABLE_FORMAT STREQUAL "ELF")
  set(wgrad_exports ${PROJECT_SOURCE_DIR}/cmake/exports.map)
  target_link_options(wgrad_library PRIVATE LINKER:--version-script=${wgrad_exports})
  set_target_properties(wgrad_library PROPERTIES LINK_DEPENDS ${wgrad_exports})
endif()
