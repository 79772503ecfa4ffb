#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app_outline.h"
#include "command.h"

namespace wgrad::cli {
namespace {

/// Text as roff takes it literally.
std::string roff(std::string_view text) {
  std::string out;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    line_begins = c == '\n';
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string value_of(const OptionOutline& option) {
  if (option.kind == ValueKind::kNone) return {};
  if (option.kind == ValueKind::kChoice) {
    return fmt::format(" {}", roff(fmt::format("{}", fmt::join(option.choices, "|"))));
  }
  return option.kind == ValueKind::kPath ? " \\fITEXT\\fR" : " \\fIVALUE\\fR";
}

std::string paragraph(const OptionOutline& option) {
  std::string names;
  for (const std::string& name : option.names) {
    names += fmt::format("{}\\fB{}\\fR", names.empty() ? "" : ", ", roff(name));
  }
  std::string text = fmt::format(".TP\n{}{}\n{}", names, option.positional ? "" : value_of(option),
                                 roff(option.help));
  if (!option.standard.empty()) text += fmt::format(" [{}]", roff(option.standard));
  return text + "\n";
}

std::string commands_of(const CommandOutline& program) {
  std::string text;
  for (const CommandOutline* command : all_commands(program)) {
    if (command == &program) continue;
    text += fmt::format(".SS \"wgrad {}\"\n{}.\n", roff(command->name), roff(command->help));
    for (const OptionOutline& option : command->options) text += paragraph(option);
  }
  return text;
}

std::string manual(const CommandOutline& program) {
  return fmt::format(R"(.TH WGRAD 1 "" "wgrad {}" "User Commands"
.SH NAME
wgrad \- fine\-tune large language models on any GPU
.SH SYNOPSIS
.B wgrad
.I command
.RI [ options ]
.SH DESCRIPTION
{}
It reads a Hugging Face folder or a GGUF file and a file of examples, trains a LoRA or QLoRA adapter or
the whole model through WebGPU or on the CPU, and writes files that peft and transformers load.
.PP
Messages go to standard error, results to standard output.
.SH COMMANDS
{}.SH "EXIT STATUS"
0 done; 1 failed while running; 2 bad usage or input; 130, 143 or 129 stopped by a signal. The first
makes train finish its step and save a checkpoint, a second ends it at once.
.SH ENVIRONMENT
.TP
.B NO_COLOR
Not empty: no colours.
.TP
.B TERM
\(lqdumb\(rq: plain lines in place of one that renews itself.
.TP
.B OMP_NUM_THREADS
Threads of the CPU's work.
.SH EXAMPLES
.TP
wgrad train \-\-model M \-\-data rows.jsonl \-\-out run \-\-report
Train an adapter; run/report.html shows how it went.
.TP
wgrad train \-\-config examples/qlora\-8b\-12gb.yaml \-\-model M \-\-data rows.jsonl \-\-out run \-\-plan
What a recipe will need, before anything is trained.
.TP
wgrad chat \-\-model M \-\-adapter run
Talk with the result.
)",
                     WGRAD_VERSION, roff(program.help), commands_of(program));
}

}  // namespace

Run add_manual(CLI::App& app) {
  return [&app] {
    fmt::print("{}", manual(outline_of(*app.get_parent())));
    return kDone;
  };
}

}  // namespace wgrad::cli
