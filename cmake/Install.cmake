# What cmake --install brings:
#   bin/wgrad                  a link to the program
#   lib/wgrad/                 the program with Dawn beside it (and what Bundle.cmake carries)
#   lib/libwgrad.so, include/  the library; lib/cmake/wgrad is its package
#   share/doc/wgrad            licences
# Everything finds its libraries by $ORIGIN: the prefix may be moved.
include(CMakePackageConfigHelpers)
# Installing brings what was built (the program and the library) and does not build the tests.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)
set(wgrad_private ${CMAKE_INSTALL_LIBDIR}/wgrad)
set(wgrad_package ${CMAKE_INSTALL_LIBDIR}/cmake/wgrad)
set(wgrad_doc ${CMAKE_INSTALL_DATADIR}/doc/wgrad)
# DT_RPATH, not RUNPATH: it holds for the libraries' own libraries too, where they are carried along.
set(wgrad_rpath_flag "")
if(CMAKE_EXECUTABLE_FORMAT STREQUAL "ELF")
  set(wgrad_rpath_flag LINKER:--disable-new-dtags)
endif()

if(TARGET wgrad)
  target_link_options(wgrad PRIVATE ${wgrad_rpath_flag})
  set_target_properties(wgrad PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS wgrad RUNTIME DESTINATION ${wgrad_private})
  file(RELATIVE_PATH link ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR}/wgrad/wgrad)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/generated/bin)
  file(CREATE_LINK ${link} ${PROJECT_BINARY_DIR}/generated/bin/wgrad SYMBOLIC)
  install(FILES ${PROJECT_BINARY_DIR}/generated/bin/wgrad DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(wgrad_dawn_shared)
  install(IMPORTED_RUNTIME_ARTIFACTS ${wgrad_dawn_shared} DESTINATION ${wgrad_private})
endif()

target_link_options(wgrad_library PRIVATE ${wgrad_rpath_flag})
set_target_properties(wgrad_library PROPERTIES INSTALL_RPATH "$ORIGIN/wgrad")
install(TARGETS wgrad_library EXPORT wgrad LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/wgrad DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h")
install(EXPORT wgrad NAMESPACE wgrad:: FILE wgrad-config.cmake DESTINATION ${wgrad_package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/generated/wgrad-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/generated/wgrad-config-version.cmake
        DESTINATION ${wgrad_package})

install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md
              ${PROJECT_SOURCE_DIR}/CHANGELOG.md DESTINATION ${wgrad_doc})
if(wgrad_dawn_licences)
  install(DIRECTORY ${wgrad_dawn_licences}/ DESTINATION ${wgrad_doc}/licences/dawn)
endif()
install(FILES ${wgrad_uplot}/LICENSE DESTINATION ${wgrad_doc}/licences/uplot)

# The component `bundled`, which the archive has and the Debian package has not: the libraries of the
# system that the program needs beyond the C and C++ runtime.
install(CODE "set(wgrad_program \"${PROJECT_BINARY_DIR}/wgrad\")
set(wgrad_private \"\${CMAKE_INSTALL_PREFIX}/${wgrad_private}\")
set(wgrad_licences \"\${CMAKE_INSTALL_PREFIX}/${wgrad_doc}/licences\")
include(\"${PROJECT_SOURCE_DIR}/cmake/Bundle.cmake\")" COMPONENT bundled EXCLUDE_FROM_ALL)
