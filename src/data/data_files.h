#pragma once

#include <string>
#include <vector>

namespace wgrad::data {

/// Files of rows, read one after the other; "-" is standard input.
using Files = std::vector<std::string>;

/// "a.jsonl", or "a.jsonl and 2 more", for messages.
std::string name_of(const Files& files);

/// What `data` names: a file, "-", a folder, or several of them with commas between them. Of a
/// folder it is train.jsonl (or .json, each also with .gz) with valid.jsonl, and where there is no
/// train.jsonl every .jsonl file by name but valid.jsonl and test.jsonl. An input error names what
/// is missing.
struct DataFiles {
  Files train, valid;  ///< valid: empty where there is none
};
DataFiles find_data_files(const std::string& data);

/// What to evaluate on: the files, and of a folder valid.jsonl alone where it has one.
Files find_eval_files(const std::string& data);

}  // namespace wgrad::data
