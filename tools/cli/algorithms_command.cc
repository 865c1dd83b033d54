// sluice algorithms: lists the values of `--algorithm`.
#include <memory>

#include <sluice/algorithms/catalogue/registry.h>
#include <tools/cli/commands.h>
#include <tools/cli/program.h>
#include <tools/cli/table.h>

namespace sluice::cli {

void addAlgorithmsCommand(Program& program, CLI::App& root) {
  CLI::App* command = program.addCommand(root, "algorithms", "List the training algorithms",
                                         {"sluice algorithms", "sluice algorithms --json"});
  auto asJson = std::make_shared<bool>(false);
  command->add_flag("--json", *asJson, "Print JSON instead of a table");
  program.onRun(command, [asJson](const base::Config&) -> Result<int> {
    Table table({"algorithm", "also", "option", "help"});
    for (const auto* algorithm : algorithms::algorithms()) {
      const bool hasOption = algorithm->argument != nullptr;
      table.addRow({std::string(algorithm->name), std::string(algorithm->alias),
                    hasOption ? std::string(algorithm->argument->name) : "",
                    std::string(algorithm->help)});
    }
    table.print(*asJson);
    return 0;
  });
}

}  // namespace sluice::cli
