#include <sluice/join/rendezvous/agreement.h>

#include <algorithm>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/base/options.h>
#include <sluice/base/text.h>
#include <sluice/base/version.h>
#include <sluice/secret/digest.h>

namespace sluice::rendezvous {
namespace {

constexpr std::string_view kLaunchPrefix = "launch ";

std::string different(std::string_view what, std::string_view their, std::string_view theirName,
                      std::string_view our, std::string_view ourName) {
  return fmt::format("{} is {} on {} but {} on {}", base::printable(what), base::printable(their),
                     theirName, base::printable(our), ourName);
}

}  // namespace

Agreement::Agreement(const base::Config& config, uint32_t worldSize) {
  add("sluice version", std::string(base::version()));
  add("world size", std::to_string(worldSize));
  // An option's own declaration says whether ranks must agree on it, so a new option cannot be
  // forgotten here.
  for (const base::Option* option : base::allOptions()) {
    if (option->mustAgree) add(std::string(option->name), config.value(*option).text);
  }
}

void Agreement::add(std::string name, std::string value) {
  SLUICE_CHECK(name.find_first_of("=\n") == std::string::npos, name);
  // Lines and '=' are the list's own marks. A name is ours and may not hold them; a value may
  // come from the user, and loses its line breaks instead of breaking the list.
  std::ranges::replace(value, '\n', ' ');
  pairs_.insert_or_assign(std::move(name), std::move(value));
}

void Agreement::addLaunchId(const std::string& name, std::string value) {
  add(std::string(kLaunchPrefix) + name, std::move(value));
}

std::string Agreement::hash() const {
  return secret::digest(encode());
}

std::string Agreement::encode() const {
  std::string text;
  for (const auto& [name, value] : pairs_) text.append(name).append("=").append(value).append("\n");
  return text;
}

Result<Agreement> Agreement::decode(std::string_view text) {
  const Status refused(Code::kDataLoss, "a list of settings is malformed");
  Agreement agreement;
  if (text.empty()) return agreement;
  if (text.back() != '\n') return refused;
  for (const auto line : base::split(text.substr(0, text.size() - 1), '\n')) {
    const auto equals = line.find('=');
    if (equals == std::string_view::npos) return refused;
    agreement.add(std::string(line.substr(0, equals)), std::string(line.substr(equals + 1)));
  }
  return agreement;
}

std::string Agreement::describeOtherLaunch(const Agreement& theirs, std::string_view theirName,
                                           const Agreement& ours, std::string_view ourName) {
  for (const auto& [what, value] : theirs.pairs_) {
    if (!what.starts_with(kLaunchPrefix)) continue;
    const auto found = ours.pairs_.find(what);
    // Ids are compared only if both sides have them: a rank that was started by hand beside a
    // launcher's ranks lacks some. Only a different value says that there are two launches.
    if (found == ours.pairs_.end() || found->second == value) continue;
    return different(std::string_view(what).substr(kLaunchPrefix.size()), value, theirName,
                     found->second, ourName);
  }
  return {};
}

std::string Agreement::describeDifference(const Agreement& theirs, std::string_view theirName,
                                          const Agreement& ours, std::string_view ourName) {
  std::string text;
  const auto name = [&](std::string_view what, std::string_view their, std::string_view our) {
    if (what.starts_with(kLaunchPrefix)) return;
    if (!text.empty()) text += "; ";
    text += different(what, their, theirName, our, ourName);
  };
  for (const auto& [what, value] : theirs.pairs_) {
    const auto found = ours.pairs_.find(what);
    if (found == ours.pairs_.end()) {
      name(what, value, "unknown");
    } else if (found->second != value) {
      name(what, value, found->second);
    }
  }
  for (const auto& [what, value] : ours.pairs_) {
    if (!theirs.pairs_.contains(what)) name(what, "unknown", value);
  }
  return text;
}

}  // namespace sluice::rendezvous
