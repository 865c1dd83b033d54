// sluice config show: every option, its value and where it came from. sluice config docs: the same
// list as the Markdown page docs/configuration.md; sluice config python: as the keywords of
// sluice.distribute(). cli_test.py compares both with the kept files.
#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sluice/base/options.h>
#include <sluice/base/text.h>
#include <tools/cli/commands.h>
#include <tools/cli/program.h>
#include <tools/cli/table.h>

namespace sluice::cli {
namespace {

std::string describeOrigin(const base::Config::Value& value) {
  if (value.source == base::Source::kDefault) return "default";
  return fmt::format("{} {}", base::name(value.source), value.origin);
}

Result<int> show(const base::Config& config, bool asJson) {
  Table table({"option", "value", "from", "variable", "help"});
  for (const base::Option* option : base::allOptions()) {
    const auto& value = config.value(*option);
    const bool hidden = option->secret && !value.text.empty();
    table.addRow({std::string(option->name), hidden ? "(set)" : value.text, describeOrigin(value),
                  base::environmentName(*option), std::string(option->help)});
  }
  table.print(asJson);
  return 0;
}

constexpr std::string_view kDocsHead =
    R"(# Configuration

<!-- Written by `sluice config docs > docs/configuration.md` from the options' declarations. -->

An option `stall-after` is the flag `--stall-after`, the variable `SLUICE_STALL_AFTER` and the key
`"stall-after"` of a JSON file (comments allowed). The nearest one wins: flag, then variable, then
file, then default. The file is the one named by `--config` or `SLUICE_CONFIG`.

`sluice config show` prints each value and where it came from. A `SLUICE_` variable that no option
has is warned about, with the nearest name that exists; an unknown key in the file is an error. Not
every command has every flag (see its `--help`); variables and the file reach all of them.

Durations are written like `250ms`, `10s` or `5min`, sizes like `64KiB` or `4MB`, rates like
`100mbit` or `1gbit`.

| option | variable | values | default | what it does |
|---|---|---|---|---|
)";

Result<int> docs(const base::Config& /*config*/) {
  fmt::print("{}", kDocsHead);
  // Escape bars: a bar would end the cell, also inside backquotes.
  const auto cell = [](std::string_view text) {
    std::string escaped;
    for (const char c : text) escaped += c == '|' ? std::string("\\|") : std::string(1, c);
    return escaped;
  };
  const auto code = [&](std::string_view text) {
    return text.empty() ? std::string() : fmt::format("`{}`", cell(text));
  };
  for (const base::Option* option : base::allOptions()) {
    fmt::print(
        "| `{}` | `{}` | {} | {} | {} |\n", option->name, base::environmentName(*option),
        option->choices.empty() ? std::string(base::kindName(option->kind)) : code(option->choices),
        code(option->fallback), cell(option->help));
  }
  return 0;
}

constexpr std::string_view kPythonHead =
    R"("""The options of sluice.distribute() as keywords, for editors and type checkers.

Written by `sluice config python > python/sluice/_front/options.py` from the options' declarations.
"""

from typing import Literal, TypedDict


class Options(TypedDict, total=False):
)";

std::string pythonType(const base::Option& option) {
  switch (option.kind) {
    case base::Kind::kInteger: return "int";
    case base::Kind::kNumber: return "float";
    case base::Kind::kSwitch: return R"(bool | Literal["on", "off"])";
    case base::Kind::kBytes: return "int | str";  // 65536 or "64KiB"
    case base::Kind::kChoice:
      return fmt::format(R"(Literal["{}"])",
                         fmt::join(base::split(option.choices, '|'), R"(", ")"));
    case base::Kind::kText:
    case base::Kind::kDuration:
    case base::Kind::kRate: return "str";
  }
  return "?";
}

// Returns the text as an indented docstring in lines of at most 100 characters.
std::string docstring(std::string_view text) {
  constexpr size_t kWidth = 100;
  constexpr std::string_view kIndent = "    ";
  constexpr std::string_view kQuotes = R"(""")";
  std::string written;
  std::string line = fmt::format("{}{}", kIndent, kQuotes);
  std::string_view space;  // before the next word
  for (const auto word : base::split(text, ' ')) {
    if (line.size() + space.size() + word.size() + kQuotes.size() > kWidth) {
      written += line + "\n";
      line = kIndent;
      space = {};
    }
    line += fmt::format("{}{}", space, word);
    space = " ";
  }
  return fmt::format("{}{}{}\n", written, line, kQuotes);
}

Result<int> python(const base::Config& /*config*/) {
  fmt::print("{}", kPythonHead);
  for (const base::Option* option : base::allOptions()) {
    std::string key(option->name);
    std::ranges::replace(key, '-', '_');
    const auto fallback =
        option->fallback.empty() ? "" : fmt::format(". Default: {}", option->fallback);
    fmt::print("    {}: {}\n{}", key, pythonType(*option),
               docstring(fmt::format("{}{}.", option->help, fallback)));
  }
  return 0;
}

}  // namespace

void addConfigCommand(Program& program, CLI::App& root) {
  CLI::App* group =
      program.addCommand(root, "config", "Look at the configuration", {"sluice config show"});
  CLI::App* show =
      program.addCommand(*group, "show", "Print each option, its value and where it came from",
                         {"sluice config show", "SLUICE_LOG=debug sluice config show --json"});
  auto asJson = std::make_shared<bool>(false);
  show->add_flag("--json", *asJson, "Print JSON instead of a table");
  program.onRun(show, [asJson](const base::Config& config) { return cli::show(config, *asJson); });
  CLI::App* docs = program.addCommand(*group, "docs", "Print the list of options as Markdown",
                                      {"sluice config docs > docs/configuration.md"});
  program.onRun(docs, cli::docs);
  CLI::App* python =
      program.addCommand(*group, "python", "Print the list of options as keywords in Python",
                         {"sluice config python > python/sluice/_front/options.py"});
  program.onRun(python, cli::python);
}

}  // namespace sluice::cli
