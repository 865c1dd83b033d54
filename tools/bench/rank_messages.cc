#include <tools/bench/rank_messages.h>

#include <sluice/base/options.h>

namespace sluice::bench {

std::map<std::string, std::string> variablesFor(const base::Config& config) {
  std::map<std::string, std::string> variables;
  for (const base::Option* option : base::allOptions()) {
    const auto& value = config.value(*option);
    if (option != &option::kConfig && value.source != base::Source::kDefault) {
      variables[base::environmentName(*option)] = value.text;
    }
  }
  variables.try_emplace(base::environmentName(option::kLog), "warn");
  return variables;
}

}  // namespace sluice::bench
