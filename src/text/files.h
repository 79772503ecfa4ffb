#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace wgrad::text {

/// Whether there is an entry of this name, readable or not: what is wrong with a link that leads
/// nowhere is for its reader to say.
bool is_there(const std::filesystem::path& path);

/// The whole file; throws an input error that names it when it cannot be read or is larger than a
/// tokenizer's files ever are.
std::string read_file(const std::filesystem::path& path);

/// The file as a JSON object, its keys in the order of the file; throws an input error with line
/// and column when it is not one, or is nested deeper or has more keys or values than
/// such files ever do.
nlohmann::ordered_json read_json_object(const std::filesystem::path& path);

}  // namespace wgrad::text
