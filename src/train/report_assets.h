#pragma once

#include <string_view>

namespace wgrad::train {

/// The report's style sheet and script, uPlot's with its licence and the page's own in one, and
/// their SHA-256 in hexadecimal, by which the page allows them and nothing else. Made by
/// cmake/EmbedReport.cmake.
extern const std::string_view kReportStyle, kReportStyleHash;
extern const std::string_view kReportScript, kReportScriptHash;

}  // namespace wgrad::train
