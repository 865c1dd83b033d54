#include <sluice/data/optimizer/optimizer_spec.h>

#include <charconv>
#include <optional>
#include <set>

#include <sluice/base/text.h>
#include <sluice/data/optimizer/optimizers.h>

namespace sluice::optimizer {
namespace {

std::optional<double> parseNumber(std::string_view text) {
  // Switches such as nesterov are numbers on servers, so that all hyperparameters travel alike.
  if (text == "true") return 1;
  if (text == "false") return 0;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Status assign(OptimizerSpec& spec, std::string_view key, std::string_view text) {
  const auto known = spec.optimizer->hyperparameters();
  std::string names;
  for (size_t i = 0; i < known.size(); ++i) {
    if (known[i].name == key) {
      const auto value = parseNumber(text);
      if (!value) {
        return {Code::kInvalidArgument,
                fmt::format("{} {}: '{}' is not a number", spec.optimizer->name(), key, text)};
      }
      spec.values[i] = *value + 0.0;  // -0 and 0 mean the same and must read the same
      return base::ok();
    }
    names += names.empty() ? "" : ", ";
    names += known[i].name;
  }
  return {Code::kInvalidArgument,
          fmt::format("{} has no '{}' on the server; it takes {}", spec.optimizer->name(), key,
                      names.empty() ? "no hyperparameters" : names)};
}

}  // namespace

Result<OptimizerSpec> parseOptimizerSpec(std::string_view text) {
  text = base::trim(text);
  const size_t colon = text.find(':');
  SLUICE_ASSIGN_OR_RETURN(const Optimizer* optimizer,
                          findOptimizer(base::trim(text.substr(0, colon))));
  OptimizerSpec spec{optimizer, {}};
  for (const Hyperparameter& known : optimizer->hyperparameters())
    spec.values.push_back(known.initial);
  if (colon != std::string_view::npos) {
    std::set<std::string_view> seen;
    for (const std::string_view piece : base::split(text.substr(colon + 1), ',')) {
      const size_t equals = piece.find('=');
      if (equals == std::string_view::npos) {
        return Status(Code::kInvalidArgument, fmt::format("{}: '{}' should read KEY=VALUE",
                                                          optimizer->name(), base::trim(piece)));
      }
      const auto key = base::trim(piece.substr(0, equals));
      SLUICE_RETURN_IF_ERROR(assign(spec, key, base::trim(piece.substr(equals + 1))));
      if (!seen.insert(key).second) {
        return Status(Code::kInvalidArgument,
                      fmt::format("{}: '{}' is given twice", optimizer->name(), key));
      }
    }
  }
  // The values are judged together at the end, since some exclude each other: nesterov needs
  // momentum, in whatever order they were given.
  SLUICE_RETURN_IF_ERROR(checkValues(*optimizer, spec.values));
  return spec;
}

std::string canonicalText(const OptimizerSpec& spec) {
  // The text becomes a part of the plan, which ranks compare. Every value is written out, in
  // the optimizer's order, so that two spellings of the same settings are equal.
  std::string text(spec.optimizer->name());
  const auto known = spec.optimizer->hyperparameters();
  SLUICE_CHECK(known.size() == spec.values.size(), known.size(), spec.values.size());
  for (size_t i = 0; i < known.size(); ++i) {
    text += fmt::format("{}{}={}", i == 0 ? ':' : ',', known[i].name, spec.values[i]);
  }
  return text;
}

}  // namespace sluice::optimizer
