#include <algorithm>
#include <cctype>
#include <regex>
#include <set>
#include <sstream>

#include "testing.h"

namespace wgrad::cli {
namespace {

using namespace testing;

const fs::path kSource = WGRAD_SOURCE_DIR;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string help(Arguments command) {
  command.push_back("--help");
  const Outcome outcome = run_program(command);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome.out;
}

/// The subcommands that a help text lists.
std::vector<std::string> subcommands(const std::string& help) {
  std::vector<std::string> names;
  bool listed = false;
  for (const std::string& line : lines_of(help)) {
    if (!line.empty() && line[0] != ' ') listed = line == "Subcommands:";
    if (listed && line.size() > 2 && line[0] == ' ' && line[2] != ' ') {
      names.push_back(line.substr(2, line.find(' ', 2) - 2));
    }
  }
  return names;
}

void expect_page_holds(const std::string& page, const Arguments& command) {
  const std::string printed = help(command);
  const std::string text = read_file(kSource / "docs/commands" / page);
  EXPECT_TRUE(text.find("```text\n" + printed + "```\n") != std::string::npos)
      << "docs/commands/" << page << " differs from what the program prints; renew it with\n"
      << "    make command-docs\n"
      << printed;
  for (const std::string& name : subcommands(printed)) {
    if (command.empty()) continue;
    Arguments part = command;
    part.push_back(name);
    expect_page_holds(page, part);
  }
}

TEST(CommandPages, AreWhatTheProgramPrints) {
  expect_page_holds("README.md", {});
  std::set<std::string> pages = {"README.md"};
  for (const std::string& name : subcommands(help({}))) {
    expect_page_holds(name + ".md", {name});
    pages.insert(name + ".md");
  }
  EXPECT_GT(pages.size(), 10u);
  for (const auto& entry : fs::directory_iterator(kSource / "docs/commands")) {
    EXPECT_TRUE(pages.contains(entry.path().filename())) << entry.path() << " has no command";
  }
}

/// The project's documents: those at the top and under the folders that hold some.
std::vector<fs::path> documents() {
  std::vector<fs::path> found;
  const auto add = [&](const fs::path& path) {
    if (path.extension() == ".md") found.push_back(path);
  };
  for (const auto& entry : fs::directory_iterator(kSource)) add(entry.path());
  for (const char* folder : {"docs", "bench", "examples", "tools", "src", "tests"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kSource / folder)) add(entry.path());
  }
  return found;
}

/// The text without fenced and indented code and without `code`.
std::string without_code(const std::string& markdown) {
  std::string text;
  bool fenced = false;
  for (const std::string& line : lines_of(markdown)) {
    if (line.starts_with("```")) fenced = !fenced;
    if (!fenced && !line.starts_with("```") && !line.starts_with("    ")) text += line + "\n";
  }
  return std::regex_replace(text, std::regex("`[^`]*`"), "`");
}

/// The names by which a page's headings can be linked to, as GitHub makes them.
std::set<std::string> anchors(const std::string& markdown) {
  std::set<std::string> names;
  for (const std::string& line : lines_of(markdown)) {
    if (!line.starts_with("#")) continue;
    std::string name;
    for (const char c : line.substr(std::min(line.find(' ') + 1, line.size()))) {
      if (std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_') {
        name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      } else if (c == ' ') {
        name += '-';
      }
    }
    names.insert(name);
  }
  return names;
}

void expect_leads_somewhere(const fs::path& page, const std::string& target) {
  if (target.find("://") != std::string::npos || target.starts_with("mailto:")) return;
  const size_t hash = std::min(target.find('#'), target.size());
  const fs::path file = hash == 0 ? page : page.parent_path() / target.substr(0, hash);
  EXPECT_TRUE(fs::exists(file)) << page << " links to " << target;
  if (hash < target.size() && fs::is_regular_file(file)) {
    EXPECT_TRUE(anchors(read_file(file)).contains(target.substr(hash + 1)))
        << page << " links to " << target << ", a heading that is not there";
  }
}

TEST(Documents, LinkToFilesAndHeadingsThatExist) {
  const std::regex link(R"(\]\(([^)\s]+)\))");
  int links = 0;
  for (const fs::path& page : documents()) {
    const std::string text = without_code(read_file(page));
    for (std::sregex_iterator at(text.begin(), text.end(), link), end; at != end; ++at, ++links) {
      expect_leads_somewhere(page, (*at)[1]);
    }
  }
  EXPECT_GT(links, 40);
}

TEST(Documents, AreAllInTheIndex) {
  const std::string index = read_file(kSource / "docs/README.md");
  for (const auto& entry : fs::directory_iterator(kSource / "docs")) {
    const std::string name = entry.path().filename();
    if (!name.ends_with(".md") || name == "README.md") continue;
    EXPECT_THAT(index, ::testing::HasSubstr("](" + name + ")")) << "add it to docs/README.md";
  }
}

/// Every source of the program in one text, string literals that follow each other joined.
std::string sources() {
  std::string text;
  for (const char* folder : {"cli", "src"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kSource / folder)) {
      if (entry.path().extension() != ".cc" && entry.path().extension() != ".h") continue;
      std::string file = read_file(entry.path());
      for (size_t at = 0; (at = file.find("\"\n", at)) != std::string::npos;) {
        const size_t next = file.find_first_not_of(" \n", at + 1);
        if (next == std::string::npos || file[next] != '"') {
          ++at;
        } else {
          file.erase(at, next + 1 - at);
        }
      }
      text += file;
    }
  }
  return std::regex_replace(text, std::regex(R"(\\")"), "\"");
}

TEST(Troubleshooting, IsAboutMessagesThatTheProgramHas) {
  const std::string program = sources();
  const std::string page = read_file(kSource / "docs/troubleshooting.md");
  int messages = 0;
  std::string message;
  for (const std::string& line : lines_of(page)) {
    if (line.starts_with("### ")) {
      EXPECT_EQ(message, "") << "no example of this message follows";
      message = line.substr(4);
      EXPECT_TRUE(program.find(message) != std::string::npos)
          << "docs/troubleshooting.md explains a message that is in no source: " << message;
      ++messages;
    } else if (!message.empty() && line.starts_with("    ") &&
               line.find(message) != std::string::npos) {
      message.clear();
    }
  }
  EXPECT_EQ(message, "") << "no example of this message follows";
  EXPECT_GT(messages, 20);
}

}  // namespace
}  // namespace wgrad::cli
