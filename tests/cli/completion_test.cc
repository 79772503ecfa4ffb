#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "testing.h"

namespace wgrad::cli {
namespace {

using namespace testing;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;

bool has(const std::string& program) {
  return std::system(("command -v " + program + " >/dev/null").c_str()) == 0;
}

/// What a shell command prints.
std::string output_of(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  std::string out;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.append(buffer, n);
  EXPECT_EQ(pclose(pipe), 0) << command << "\n" << out;
  return out;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// What bash offers after these words, the last of which is being written.
std::vector<std::string> offered(const Workplace& place, const std::string& words) {
  place.write("ask.sh", "cd " + place.root().string() +
                            "\nsource <(" WGRAD_PROGRAM " completion bash)\nCOMP_WORDS=(wgrad " +
                            words +
                            ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_wgrad\n"
                            "((${#COMPREPLY[@]} == 0)) || printf '%s\\n' \"${COMPREPLY[@]}\"\n");
  return lines_of(output_of("bash --norc " + place.path("ask.sh") + " 2>&1"));
}

TEST(Completion, OfBashOffersCommandsOptionsValuesAndFiles) {
  const Workplace place;
  EXPECT_THAT(offered(place, "tr"), ElementsAre("train"));
  EXPECT_THAT(offered(place, "''"), IsSupersetOf({"train", "eval", "report", "completion"}));
  EXPECT_THAT(offered(place, "train --sched"), ElementsAre("--schedule"));
  EXPECT_THAT(offered(place, "train --no-sh"), ElementsAre("--no-shuffle"));
  EXPECT_THAT(offered(place, "train --method ''"), ElementsAre("lora", "qlora", "full"));
  EXPECT_THAT(offered(place, "train --rank 4 --method q"), ElementsAre("qlora"));
  EXPECT_THAT(offered(place, "train --method '=' q"), ElementsAre("qlora"));
  EXPECT_THAT(offered(place, "train --method '='"), ElementsAre("lora", "qlora", "full"));
  EXPECT_THAT(offered(place, "train --device s"), ElementsAre("software"));
  EXPECT_THAT(offered(place, "train --rank ''"), IsEmpty());
  EXPECT_THAT(offered(place, "train --data tr"), ElementsAre("train.jsonl"));
  EXPECT_THAT(offered(place, "train --config tr"), ElementsAre("train.jsonl"));
  EXPECT_THAT(offered(place, "train --plan --dry"), ElementsAre("--dry-run"));
  EXPECT_THAT(offered(place, "report mo"), ElementsAre("model"));
  EXPECT_THAT(offered(place, "kernels ex"), ElementsAre("export"));
  EXPECT_THAT(offered(place, "completion z"), ElementsAre("zsh"));
  EXPECT_THAT(offered(place, "completion tr"), IsEmpty()) << "no files";
}

TEST(Completion, KnowsEveryOptionOfEveryCommand) {
  const Workplace place;
  for (const char* command : {"train", "eval", "generate", "chat", "bench", "verify"}) {
    const std::vector<std::string> names = offered(place, std::string(command) + " --");
    std::istringstream help(run_program({command, "--help"}).out);
    for (std::string word; help >> word;) {
      if (!word.starts_with("--") || word.size() < 4) continue;
      word = word.substr(0, word.find_first_of(",:[=)"));
      EXPECT_THAT(names, Contains(word)) << command;
    }
  }
}

TEST(Completion, OfTheOtherShellsIsReadByThem) {
  const Workplace place;
  const auto script = [&](const std::string& shell) {
    const Outcome outcome = run_program({"completion", shell});
    EXPECT_EQ(outcome.code, 0);
    EXPECT_THAT(outcome.out, HasSubstr("qlora"));
    place.write(shell, outcome.out);
  };
  script("zsh");
  script("fish");
  if (has("zsh")) {
    EXPECT_EQ(output_of("zsh -f -c 'autoload -U compinit; compinit -u -D; source " +
                        place.path("zsh") + "; echo ${_comps[wgrad]}' 2>&1"),
              "_wgrad\n");
  }
  if (has("fish")) {
    EXPECT_THAT(lines_of(output_of("fish --no-config -c 'source " + place.path("fish") +
                                   "; complete -C \"wgrad train --method q\"' 2>&1")),
                ElementsAre(HasSubstr("qlora")));
  }
}

TEST(Completion, RefusesAnotherShell) { EXPECT_EQ(run_program({"completion", "csh"}).code, 2); }

TEST(Manual, NamesEveryOptionAndIsSetWithoutAWarning) {
  const Outcome outcome = run_program({"manual"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, HasSubstr(".SS \"wgrad kernels export\""));
  const Workplace place;
  place.write("wgrad.1", outcome.out);
  if (!has("groff")) GTEST_SKIP() << "there is no groff on the PATH";
  EXPECT_EQ(output_of("groff -man -Tutf8 -ww -z " + place.path("wgrad.1") + " 2>&1"), "");
  const std::string text = output_of("groff -man -Tutf8 -P-c -P-b -P-u " + place.path("wgrad.1"));
  for (const char* part : {"--warmup-ratio", "lora|qlora|full", "a prompt to answer along the run",
                           "EXIT STATUS", "NO_COLOR"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

}  // namespace
}  // namespace wgrad::cli
