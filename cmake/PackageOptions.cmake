# Read by cpack once a generator: the archive also gets the component `bundled` (Install.cmake).
if(CPACK_GENERATOR STREQUAL "TGZ")
  list(GET CPACK_INSTALL_CMAKE_PROJECTS 0 build)
  list(APPEND CPACK_INSTALL_CMAKE_PROJECTS ${build} wgrad bundled /)
endif()
