#include "data/data_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "wgrad/error.h"

namespace wgrad::data {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found;
}

/// The file STEM.jsonl of a folder, or one of the other endings; none is empty.
Files file_of(const fs::path& folder, const std::string& stem) {
  for (const char* ending : {".jsonl", ".jsonl.gz", ".json", ".json.gz"}) {
    const fs::path file = folder / (stem + ending);
    if (is_there(file)) return {file.string()};
  }
  return {};
}

/// Every file of JSON lines but those kept for evaluation.
Files lines_of(const fs::path& folder) {
  Files files;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const std::string_view stem = std::string_view(name).substr(0, name.find(".jsonl"));
    if (name.starts_with('.') || stem == "valid" || stem == "test") continue;
    if (name.ends_with(".jsonl") || name.ends_with(".jsonl.gz")) {
      files.push_back(it->path().string());
    }
  }
  if (error) {
    throw input_error(folder.string(), "cannot be read (" + error.message() + ")", {},
                      "check its permissions");
  }
  std::ranges::sort(files);
  return files;
}

DataFiles files_of_folder(const std::string& folder) {
  DataFiles files{file_of(folder, "train"), file_of(folder, "valid")};
  if (files.train.empty()) files.train = lines_of(folder);
  return files;
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t comma = std::min(list.find(',', begin), list.size());
    const std::string_view part = std::string_view(list).substr(begin, comma - begin);
    const size_t first = std::min(part.find_first_not_of(" \t"), part.size());
    const size_t last = part.find_last_not_of(" \t");
    if (first < part.size()) parts.emplace_back(part.substr(first, last + 1 - first));
    begin = comma + 1;
  }
  return parts;
}

/// A comma may also belong to a file's name.
std::vector<std::string> entries_of(const std::string& data) {
  if (data.find(',') == std::string::npos || is_there(data)) return {data};
  std::vector<std::string> entries = split(data);
  if (entries.empty()) {
    throw input_error(data, "names no file", "expected files with commas between them",
                      "give their paths");
  }
  if (std::ranges::count(entries, "-") > 1) {
    throw input_error(data, "reads standard input twice", "it can be read once", "name it once");
  }
  for (const std::string& entry : entries) {
    if (entry == "-" || is_there(entry)) continue;
    throw input_error(entry, "there is no such file",
                      fmt::format("expected the {} files of the list", entries.size()),
                      "check its path");
  }
  return entries;
}

void append(Files& files, const Files& more) {
  files.insert(files.end(), more.begin(), more.end());
}

/// A path that is no folder is a file to train on; of a folder's files each may be missing.
DataFiles files_of(const std::string& entry) {
  std::error_code error;
  if (entry == "-" || !fs::is_directory(entry, error)) return {{entry}, {}};
  return files_of_folder(entry);
}

[[noreturn]] void refuse_folder(const std::string& folder, std::string_view wanted) {
  throw input_error(folder, fmt::format("has no {}.jsonl and no other .jsonl file", wanted),
                    "expected train.jsonl (and valid.jsonl), or files of JSON lines",
                    fmt::format("name the file itself, or rename it to {}.jsonl", wanted));
}

}  // namespace

std::string name_of(const Files& files) {
  if (files.empty()) return "no file";
  const std::string first = files.front() == "-" ? "standard input" : files.front();
  return files.size() == 1 ? first : fmt::format("{} and {} more", first, files.size() - 1);
}

DataFiles find_data_files(const std::string& data) {
  DataFiles all;
  for (const std::string& entry : entries_of(data)) {
    const DataFiles files = files_of(entry);
    if (files.train.empty()) refuse_folder(entry, "train");
    append(all.train, files.train);
    append(all.valid, files.valid);
  }
  return all;
}

Files find_eval_files(const std::string& data) {
  Files all;
  for (const std::string& entry : entries_of(data)) {
    const DataFiles files = files_of(entry);
    if (files.valid.empty() && files.train.empty()) refuse_folder(entry, "valid");
    append(all, files.valid.empty() ? files.train : files.valid);
  }
  return all;
}

}  // namespace wgrad::data
