# The target `docs`: the library's reference in <build>/docs/html, made from the public headers and
# docs/library.md by Doxygen. Whatever is not documented, or is documented wrongly, is an error.
find_program(WGRAD_DOXYGEN doxygen)
mark_as_advanced(WGRAD_DOXYGEN)
if(WGRAD_DOXYGEN)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/Doxyfile.in ${PROJECT_BINARY_DIR}/generated/Doxyfile @ONLY)
  add_custom_target(docs COMMAND ${WGRAD_DOXYGEN} ${PROJECT_BINARY_DIR}/generated/Doxyfile
                    COMMENT "Documentation in ${PROJECT_BINARY_DIR}/docs/html" VERBATIM)
endif()
