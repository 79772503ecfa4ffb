# What report.html is made of: the page's style and script (src/train/report) and uPlot, which draws
# the charts, a pinned npm package. wgrad_report_assets is their text in the library.
set(WGRAD_UPLOT_DIR "" CACHE PATH "A folder with a uPlot of your own, laid out as its npm package")
set(wgrad_uplot ${WGRAD_UPLOT_DIR})
if(NOT wgrad_uplot)
  set(wgrad_uplot ${WGRAD_DEPS_DIR}/uplot-4b8a8191)
  file(LOCK ${WGRAD_DEPS_DIR}/uplot.lock GUARD FILE TIMEOUT 1200)
  if(NOT EXISTS ${wgrad_uplot}/dist/uPlot.iife.min.js)
    message(STATUS "uPlot: fetching it by npm")
    set(work ${wgrad_uplot}.part)
    file(REMOVE_RECURSE ${work})
    file(MAKE_DIRECTORY ${work})
    wgrad_npm_pack(uplot 1.6.32 4b8a8191e425658e3ea8c8c1314b0fc679c861ee3a1af2b20c7b16ba50b5133d
                   ${work} "To use a uPlot of your own give -DWGRAD_UPLOT_DIR=<its package>.")
    file(ARCHIVE_EXTRACT INPUT ${work}/uplot-1.6.32.tgz DESTINATION ${work}
         PATTERNS package/LICENSE package/dist/uPlot.iife.min.js package/dist/uPlot.min.css)
    file(RENAME ${work}/package ${wgrad_uplot})
    file(REMOVE_RECURSE ${work})
  endif()
  file(LOCK ${WGRAD_DEPS_DIR}/uplot.lock RELEASE)
endif()
message(STATUS "uPlot: ${wgrad_uplot}")

set(report_sources ${PROJECT_SOURCE_DIR}/src/train/report/page.css
    ${PROJECT_SOURCE_DIR}/src/train/report/charts.js ${wgrad_uplot}/LICENSE
    ${wgrad_uplot}/dist/uPlot.min.css ${wgrad_uplot}/dist/uPlot.iife.min.js)
set(report_assets ${PROJECT_BINARY_DIR}/generated/report_assets.cc)
add_custom_command(
  OUTPUT ${report_assets}
  COMMAND ${CMAKE_COMMAND} -DOUT=${report_assets} -DPAGE=${PROJECT_SOURCE_DIR}/src/train/report
          -DUPLOT=${wgrad_uplot} -P ${PROJECT_SOURCE_DIR}/cmake/EmbedReport.cmake
  DEPENDS ${report_sources} ${PROJECT_SOURCE_DIR}/cmake/EmbedReport.cmake
          ${PROJECT_SOURCE_DIR}/cmake/RawLiteral.cmake
  VERBATIM)
add_library(wgrad_report_assets STATIC ${report_assets})
target_include_directories(wgrad_report_assets PUBLIC ${PROJECT_SOURCE_DIR}/src)
target_compile_features(wgrad_report_assets PRIVATE cxx_std_20)
set_target_properties(wgrad_report_assets PROPERTIES POSITION_INDEPENDENT_CODE ON)
