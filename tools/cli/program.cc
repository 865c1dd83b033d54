#include <tools/cli/program.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>

#include <fmt/format.h>

#include <sluice/base/log.h>
#include <sluice/base/options.h>
#include <sluice/base/text.h>
#include <sluice/base/version.h>
#include <tools/cli/external_command.h>
#include <tools/cli/name_owners.h>

namespace sluice::cli {
namespace {

int failWith(const Status& status) {
  fmt::print(stderr, "sluice: {}\n", status.message());
  return static_cast<int>(exitCodeFor(status.code()));
}

// Returns the deepest subcommand that was named on the command line.
const CLI::App* chosenCommand(const CLI::App& root) {
  const CLI::App* command = &root;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  return command;
}

std::vector<std::string> subcommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

// Returns a list for the end of the program's help; empty if there are no external commands.
std::string listOfExternalCommands(const std::vector<std::string>& builtIn) {
  std::string list;
  for (const auto& [name, description] : findExternalCommands()) {
    if (std::ranges::find(builtIn, name) != builtIn.end()) continue;  // a part of it, as of doctor
    list +=
        fmt::format("\n  {:<28}{}", name, description.empty() ? "(see its --help)" : description);
  }
  return list.empty() ? "" : fmt::format("Programs sluice-NAME found here:{}\n\n", list);
}

// Returns the Python distribution that brings the program sluice-NAME; empty if we have no such
// program.
std::string_view distributionOf(std::string_view name) {
  constexpr std::array kInPapers{"plot", "reproduce", "study"};
  return std::ranges::find(kInPapers, name) == kInPapers.end() ? "" : "sluice-papers";
}

// Returns the text of an error. Words behind a flag that nobody knows are left out: they may be its
// value, and that a key or a password.
std::string textOf(const CLI::ParseError& error, const CLI::App& root) {
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr) return error.what();
  std::vector<std::string> shown;
  bool isBehindFlag = false;
  for (const std::string& word : root.remaining(/*recurse=*/true)) {
    const bool isFlag = word.starts_with('-');
    if (isFlag) {
      const bool isLong = word.starts_with("--");
      shown.push_back(base::printable(word.substr(0, isLong ? word.find('=') : 2)));
    } else if (!isBehindFlag) {
      shown.push_back(base::printable(word));
    }
    isBehindFlag |= isFlag;
  }
  return fmt::format("not expected here: {}", fmt::join(shown, " "));
}

// Names the libraries inside too, so that a reader of a security notice knows if it concerns them.
std::string versionText() {
  const auto inside = base::librariesInside();
  return fmt::format("sluice {}{}{}", base::version(), inside.empty() ? "" : "\nwith ", inside);
}

}  // namespace

Program::Program()
    : root_("Gradient synchronisation for networks slower than the accelerators", "sluice") {
  root_.set_version_flag("--version", versionText(), "Show the version and exit");
  root_.set_help_flag("-h,--help", "Show this help and exit");
  root_.footer([this] {  // made only if the help is shown
    return listOfExternalCommands(subcommandNames(root_)) +
           "Examples:\n  sluice config show\n  sluice lab up --hosts 4 --rate 1gbit\n"
           "  sluice lab run -- ./train\n  sluice lab down\n  sluice bench replay --profile "
           "resnet50 "
           "--lab\n\n"
           "A command that is not listed is looked for as a program sluice-NAME beside this one "
           "and on the "
           "PATH.\n"
           "Exit codes: 0 ok, 1 failed, 2 usage, 3 permission, 4 unavailable, 5 findings, 124 "
           "timeout, 127 no "
           "such "
           "command, 130 interrupted.";
  });
  addOption(&root_, option::kConfig);
  addOption(&root_, option::kLog);
}

CLI::App* Program::addCommand(CLI::App& parent, const std::string& name, const std::string& help,
                              const std::vector<std::string>& examples) {
  CLI::App* command = parent.add_subcommand(name, help);
  std::string footer = "Examples:";
  for (const auto& example : examples) footer += "\n  " + example;
  command->footer(footer);
  return command;
}

void Program::onRun(CLI::App* command, Run run) {
  runs_[command] = std::move(run);
}

void Program::addExternalPart(CLI::App& parent, const std::string& name, const std::string& help,
                              const std::vector<std::string>& examples, const Status& missing) {
  CLI::App* part = addCommand(parent, name, help, examples);
  part->prefix_command();
  externalParts_.emplace(parent.get_name(), name);
  onRun(part, [missing](const base::Config&) -> Result<int> { return missing; });
}

CLI::Option* Program::addOption(CLI::App* command, const base::Option& option) {
  const std::string name(option.name);
  auto& slot = flags_[name];
  if (!slot) slot = std::make_unique<std::string>();
  std::string help(option.help);
  if (!option.choices.empty()) help += fmt::format(" ({})", option.choices);
  if (!option.fallback.empty()) help += fmt::format(" [{}]", option.fallback);
  if (option.kind == base::Kind::kSwitch) {
    // --name alone means on; --name=off means off
    return command->add_flag("--" + name, *slot, help);
  }
  return command->add_option("--" + name, *slot, help)
      ->type_name(std::string(base::kindName(option.kind)));
}

int Program::run(int argc, char** argv) {
  if (const auto complaint = complaintAboutOwners(ownFolder()); !complaint.empty())
    fmt::print(stderr, "sluice: {}\n", complaint);
  // A first word that is no flag and no subcommand may be a program of its own.
  if (argc > 1 && argv[1][0] != '-') {
    const auto names = subcommandNames(root_);
    if (std::ranges::find(names, argv[1]) == names.end()) {
      runExternalCommand(argv[1], argv + 1);
      if (const auto distribution = distributionOf(argv[1]); !distribution.empty()) {
        fmt::print(stderr, "sluice {}: needs the package {}; install it with 'pip install {}'\n",
                   argv[1], distribution, distribution);
        return static_cast<int>(ExitCode::kNoCommand);
      }
      const std::vector<std::string_view> candidates(names.begin(), names.end());
      const auto guess = base::nearest(argv[1], candidates);
      fmt::print(stderr, "sluice: no command '{}' and no program sluice-{} on the PATH; {}\n",
                 argv[1], argv[1],
                 guess.empty() ? "'sluice --help' lists the commands"
                               : fmt::format("did you mean '{}'?", guess));
      return static_cast<int>(ExitCode::kNoCommand);
    }
  }
  if (argc > 2 && externalParts_.contains({argv[1], argv[2]}))
    runExternalCommand(argv[1], argv + 1);
  try {
    root_.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return root_.exit(help);  // --help and --version
  } catch (const CLI::ParseError& error) {
    const CLI::App* command = chosenCommand(root_);
    std::string path = command->get_name();
    for (const CLI::App* up = command->get_parent(); up != nullptr; up = up->get_parent()) {
      path = fmt::format("{} {}", up->get_name(), path);
    }
    fmt::print(stderr, "sluice: {}; see '{} --help'\n", textOf(error, root_), path);
    return static_cast<int>(ExitCode::kUsage);
  }
  const CLI::App* command = chosenCommand(root_);
  const auto found = runs_.find(command);
  if (found == runs_.end()) {  // `sluice lab` alone: show what it offers
    fmt::print("{}", command->help());
    return static_cast<int>(command == &root_ && argc == 1 ? ExitCode::kOk : ExitCode::kUsage);
  }
  return runCommand(found->second);
}

int Program::runCommand(const Run& run) {
  base::Config::Values flags;
  for (const auto& [name, text] : flags_) {
    if (!text->empty()) flags[name] = *text;
  }
  const auto config = base::Config::read(flags, base::processEnvironment());
  if (!config.isOk()) return failWith(config.status());
  if (const Status status = base::setLogLevels(config->text(option::kLog)); !status.isOk())
    return failWith(status);
  for (const auto& warning : config->warnings()) log("config").warn("{}", warning);
  const Result<int> result = run(*config);
  return result.isOk() ? *result : failWith(result.status());
}

}  // namespace sluice::cli
