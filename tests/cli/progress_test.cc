#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "testing.h"

namespace wgrad::cli {
namespace {

using namespace testing;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// What the program writes to a terminal of so many columns. `resize` is told how much came so far
/// and may give a new width.
struct Terminal {
  int columns = 80;
  Arguments environment;  ///< NAME=VALUE
  std::function<int(const std::string&)> resize;

  Outcome run(const Arguments& arguments) const {
    std::vector<std::string> words = {"env", "OMP_NUM_THREADS=1"};
    words.insert(words.end(), environment.begin(), environment.end());
    words.push_back(WGRAD_PROGRAM);
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    winsize size{24, static_cast<unsigned short>(columns), 0, 0};
    int master = -1;
    const pid_t child = forkpty(&master, nullptr, nullptr, &size);
    if (child == 0) {
      alarm(100);
      execvp(argv[0], argv.data());
      _exit(127);
    }
    Outcome outcome;
    char buffer[4096];
    for (ssize_t n; (n = read(master, buffer, sizeof buffer)) > 0;) {
      outcome.out.append(buffer, static_cast<size_t>(n));
      if (const int width = resize ? resize(outcome.out) : 0; width > 0) {
        size.ws_col = static_cast<unsigned short>(width);
        ioctl(master, TIOCSWINSZ, &size);
      }
    }
    close(master);
    int status = 0;
    waitpid(child, &status, 0);
    outcome.code = WEXITSTATUS(status);
    return outcome;
  }
};

constexpr const char* kClear = "\r\x1b[K";

/// The texts of the line that renews itself.
std::vector<std::string> renewals(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = text.find(kClear); at != std::string::npos;) {
    const size_t begin = at + 4;
    at = text.find(kClear, begin);
    const std::string line = text.substr(begin, std::min(at, text.find('\r', begin)) - begin);
    if (line.starts_with("step ") && line.find("eval") == std::string::npos) lines.push_back(line);
  }
  return lines;
}

/// The data's summary, which comes before, has as many lines as the rows' lengths need.
int64_t lines_from_the_plan(const std::string& text) {
  const size_t plan = std::min(text.find("lora: "), text.size());
  return std::count(text.begin() + static_cast<std::ptrdiff_t>(plan), text.end(), '\n');
}

/// Columns of a text of ASCII characters and ellipses.
size_t columns_of(const std::string& line) {
  return static_cast<size_t>(
      std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

Arguments steps(const Workplace& place, const Arguments& more = {}) {
  Arguments all = {"--steps", "30", "--batch-size", "1"};
  all.insert(all.end(), more.begin(), more.end());
  return place.train(all);
}

TEST(Progress, LineRenewsItselfWithAllItsPartsWhereTheyFit) {
  const Workplace place;
  const Outcome outcome = Terminal{120, {"TERM=xterm"}, {}}.run(steps(place));
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  const std::vector<std::string> lines = renewals(outcome.out);
  ASSERT_EQ(lines.size(), 30u);
  EXPECT_THAT(lines.back(), ContainsRegex("^step 30/30  loss [0-9.]+  lr [0-9.e+-]+  grad_norm "
                                          "[0-9.]+  [0-9]+ tokens/s  [0-9.]+ .B  0:00 left$"));
  EXPECT_EQ(lines_from_the_plan(outcome.out), 4);  // plan, last, saved, done
}

TEST(Progress, LineLeavesPartsOutToFitANarrowTerminal) {
  const Workplace place;
  for (const int columns : {1, 2, 7, 20, 40, 60}) {
    std::error_code ignored;
    fs::remove_all(place.path("out"), ignored);
    const Outcome outcome = Terminal{columns, {"TERM=xterm"}, {}}.run(steps(place));
    EXPECT_EQ(outcome.code, 0);
    const std::string shown = outcome.out.substr(outcome.out.find(kClear));
    for (const std::string& line : renewals(outcome.out)) {
      EXPECT_LT(columns_of(line), static_cast<size_t>(columns)) << line;
    }
    if (columns < 20) continue;
    const std::vector<std::string> lines = renewals(outcome.out);
    ASSERT_EQ(lines.size(), 30u) << columns;
    EXPECT_THAT(lines.back(), StartsWith(columns == 20 ? "step 30/30" : "step 30/30  loss "));
    EXPECT_EQ(lines.back().find("left") != std::string::npos, columns >= 40);
  }
}

TEST(Progress, LineFollowsTheTerminalsWidth) {
  const Workplace place;
  Terminal terminal{100, {"TERM=xterm"}, {}};
  bool narrow = false;
  size_t before = 0;
  terminal.resize = [&](const std::string& text) {
    if (narrow || renewals(text).size() < 5) return 0;
    narrow = true;
    before = text.size();
    return 30;
  };
  const Outcome outcome = terminal.run(place.train({"--steps", "400", "--batch-size", "1"}));
  EXPECT_EQ(outcome.code, 0);
  EXPECT_GT(columns_of(renewals(outcome.out.substr(0, before)).front()), 30u);
  const std::vector<std::string> after = renewals(outcome.out.substr(before));
  ASSERT_GT(after.size(), 20u);
  for (size_t i = after.size() / 2; i < after.size(); ++i) EXPECT_LT(columns_of(after[i]), 30u);
}

TEST(Progress, OnADumbTerminalOrInAPipeIsPlainLines) {
  const Workplace place;
  const Outcome dumb = Terminal{40, {"TERM=dumb"}, {}}.run(steps(place));
  fs::remove_all(place.path("out"));
  const std::string piped = run_program(steps(place)).err;
  for (const std::string& text : {dumb.out, piped}) {
    EXPECT_THAT(text, Not(HasSubstr("\x1b")));
    EXPECT_THAT(text, HasSubstr("step 7/30  loss "));
    EXPECT_EQ(lines_from_the_plan(text), 33);
  }
  EXPECT_THAT(piped, Not(HasSubstr("\r")));
}

TEST(Progress, HasNoColourWhereThatIsAskedFor) {
  const Workplace place;
  const Outcome coloured = Terminal{90, {"TERM=xterm", "NO_COLOR="}, {}}.run(steps(place));
  fs::remove_all(place.path("out"));
  const Outcome plain = Terminal{90, {"TERM=xterm", "NO_COLOR=1"}, {}}.run(steps(place));
  EXPECT_THAT(coloured.out, HasSubstr("\x1b[2m"));
  EXPECT_THAT(plain.out, Not(ContainsRegex("\x1b\\[[0-9]*m")));
  EXPECT_EQ(renewals(plain.out).size(), 30u);
}

TEST(Progress, ShowsASampleInOneLineThatATerminalDoesNotObey) {
  const Workplace place;
  const Arguments sample = {"--sample-prompt", "\x1b[31m漢字漢字漢字漢字漢字漢字漢字漢字\nline",
                            "--sample-raw"};
  const std::string piped = run_program(steps(place, sample)).err;
  EXPECT_THAT(piped, HasSubstr("step 30   [31m漢字漢字漢字漢字漢字漢字漢字漢字 line -> "));
  EXPECT_THAT(piped, Not(HasSubstr("\x1b")));
  fs::remove_all(place.path("out"));
  const Outcome narrow = Terminal{30, {"TERM=xterm"}, {}}.run(steps(place, sample));
  // "step 0   [31m" takes 13 of 29 columns, the ellipsis one: seven wide characters fit.
  EXPECT_THAT(narrow.out, HasSubstr("step 0   [31m漢字漢字漢字漢…\r\n"));
}

}  // namespace
}  // namespace wgrad::cli
