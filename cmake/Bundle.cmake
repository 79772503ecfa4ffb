# Run while installing: copies the shared libraries that wgrad_program needs into wgrad_private and
# their licences, where the system's packages name them, into wgrad_licences. Left to the system:
# the C library and GCC's runtime, which every system has and which drivers need in their own version.
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${wgrad_program}
     RESOLVED_DEPENDENCIES_VAR libraries UNRESOLVED_DEPENDENCIES_VAR missing
     PRE_EXCLUDE_REGEXES "^lib(c|m|dl|rt|pthread|gcc_s|stdc\\+\\+)\\.so" "^ld-linux" "^libwebgpu_dawn")
if(missing)
  message(FATAL_ERROR "${wgrad_program} needs libraries that were not found: ${missing}")
endif()
find_program(WGRAD_DPKG_QUERY dpkg-query)
foreach(library IN LISTS libraries)
  file(INSTALL ${library} DESTINATION ${wgrad_private} FOLLOW_SYMLINK_CHAIN)
  if(WGRAD_DPKG_QUERY)
    file(REAL_PATH ${library} real)
    get_filename_component(name ${real} NAME)
    execute_process(COMMAND ${WGRAD_DPKG_QUERY} -S "*/${name}" OUTPUT_VARIABLE owner ERROR_QUIET)
    if(owner MATCHES "^([^:\n]+):")
      set(licence /usr/share/doc/${CMAKE_MATCH_1}/copyright)
      if(EXISTS ${licence})
        file(INSTALL ${licence} DESTINATION ${wgrad_licences}/${CMAKE_MATCH_1} FOLLOW_SYMLINK_CHAIN)
      endif()
    endif()
  endif()
endforeach()
