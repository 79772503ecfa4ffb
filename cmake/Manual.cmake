# The manual page and the shells' completion scripts, which the program prints, in
# <build>/generated/share, laid out as below the prefix of an installation.
set(wgrad_share ${PROJECT_BINARY_DIR}/generated/share)
add_custom_command(TARGET wgrad POST_BUILD
  COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:wgrad> -DSHARE=${wgrad_share}
          -P ${PROJECT_SOURCE_DIR}/cmake/WriteManual.cmake
  VERBATIM)
install(DIRECTORY ${wgrad_share}/ DESTINATION ${CMAKE_INSTALL_DATADIR})
