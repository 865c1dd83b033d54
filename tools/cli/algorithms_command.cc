// sluice algorithms: lists the values of `--algorithm`, or describes one of them and its options.
#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sluice/algorithms/catalogue/registry.h>
#include <sluice/base/option.h>
#include <tools/cli/commands.h>
#include <tools/cli/program.h>
#include <tools/cli/table.h>

namespace sluice::cli {
namespace {

using algorithms::Algorithm;

std::string nameOf(const base::Option* option) {
  return option == nullptr ? "" : std::string(option->name);
}

Result<int> list(bool asJson) {
  Table table({"algorithm", "also", "option", "help"});
  for (const Algorithm* algorithm : algorithms::algorithms()) {
    table.addRow({std::string(algorithm->name), std::string(algorithm->alias),
                  nameOf(algorithm->argument), std::string(algorithm->help)});
  }
  table.print(asJson);
  return 0;
}

Table optionsOf(const Algorithm& algorithm) {
  Table table({"option", "values", "default", "help"});
  for (const base::Option* option : algorithm.options) {
    const auto values = option->choices.empty() ? base::kindName(option->kind) : option->choices;
    table.addRow({std::string(option->name), std::string(values), std::string(option->fallback),
                  std::string(option->help)});
  }
  return table;
}

Result<int> describe(std::string_view name, bool asJson) {
  SLUICE_ASSIGN_OR_RETURN(const Algorithm* algorithm, algorithms::findAlgorithm(name));
  const Table options = optionsOf(*algorithm);
  if (asJson) {
    const nlohmann::ordered_json described{
        {"algorithm", algorithm->name},
        {"also", algorithm->alias},
        {"option", nameOf(algorithm->argument)},
        {"help", algorithm->help},
        {"accuracy", algorithm->accuracy},
        {"options", nlohmann::ordered_json::parse(options.toJson())}};
    fmt::print("{}\n", described.dump(2));
    return 0;
  }
  fmt::print("{}: {}\n", algorithm->name, algorithm->help);
  if (!algorithm->alias.empty()) fmt::print("Another name: {}\n", algorithm->alias);
  if (!algorithm->accuracy.empty()) fmt::print("Accuracy: {}\n", algorithm->accuracy);
  if (algorithm->argument != nullptr)
    fmt::print("{}:VALUE sets {}\n", algorithm->name, algorithm->argument->name);
  fmt::print("\n{}", options.toText());
  return 0;
}

}  // namespace

void addAlgorithmFlags(Program& program, CLI::App* command) {
  for (const base::Option* option : algorithms::algorithmOptions()) {
    const bool isTaken = command->get_option_no_throw("--" + std::string(option->name)) != nullptr;
    if (!isTaken) program.addOption(command, *option)->group("");  // not listed
  }
  command->footer(command->get_footer() + "\n\nOptions of one algorithm: sluice algorithms NAME");
}

void addAlgorithmsCommand(Program& program, CLI::App& root) {
  CLI::App* command = program.addCommand(
      root, "algorithms", "List the training algorithms, or describe one and its options",
      {"sluice algorithms", "sluice algorithms ssp", "sluice algorithms --json"});
  auto name = std::make_shared<std::string>();
  auto asJson = std::make_shared<bool>(false);
  command->add_option("name", *name, "Describe this algorithm");
  command->add_flag("--json", *asJson, "Print JSON instead of a table");
  program.onRun(command, [name, asJson](const base::Config&) {
    return name->empty() ? list(*asJson) : describe(*name, *asJson);
  });
}

}  // namespace sluice::cli
