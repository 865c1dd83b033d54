// sluice config show: every option, its value and where it came from.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sluice/cli/commands.h>
#include <sluice/cli/program.h>
#include <sluice/cli/table.h>

namespace sluice::cli {
namespace {

std::string describeOrigin(const Config::Value& value) {
  if (value.source == base::Source::kDefault) return "default";
  return fmt::format("{} {}", base::name(value.source), value.origin);
}

Result<int> show(const Config& config, bool asJson) {
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

}  // namespace

void addConfigCommand(Program& program, CLI::App& root) {
  CLI::App* group = program.addCommand(root, "config", "Look at the configuration", {"sluice config show"});
  CLI::App* show = program.addCommand(*group, "show", "Print each option, its value and where it came from",
                                      {"sluice config show", "SLUICE_LOG=debug sluice config show --json"});
  auto asJson = std::make_shared<bool>(false);
  show->add_flag("--json", *asJson, "Print JSON instead of a table");
  program.onRun(show, [asJson](const Config& config) { return cli::show(config, *asJson); });
}

}  // namespace sluice::cli
