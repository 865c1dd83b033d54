// firstDifference() names the first difference between two plans, for the error that ranks print
// when the hashes of their plans differ.
#include <algorithm>

#include <fmt/format.h>

#include <sluice/data/plan/plan.h>

namespace sluice::plan {
namespace {

// Collects the first difference; later ones are not even formatted.
class Difference final {
 public:
  explicit Difference(Rank other) : other_(other) {}

  template <typename T>
  Difference& compare(std::string_view what, const T& ours, const T& theirs) {
    if (text_.empty() && ours != theirs) {
      text_ = fmt::format("{} {} here, {} on rank {}", what, ours, theirs, index(other_));
    }
    return *this;
  }
  bool found() const { return !text_.empty(); }
  std::string take() && { return std::move(text_); }

 private:
  Rank other_;
  std::string text_;
};

void compareTensors(Difference& difference, const Model& ours, const Model& theirs) {
  const size_t both = std::min(ours.tensors.size(), theirs.tensors.size());
  for (size_t i = 0; i < both && !difference.found(); ++i) {
    const Tensor& a = ours.tensors[i];
    const Tensor& b = theirs.tensors[i];
    if (a == b) continue;
    const auto what = fmt::format("tensor {} '{}'", i, a.name);
    difference.compare(fmt::format("tensor {} is", i), "'" + a.name + "'", "'" + b.name + "'")
        .compare(what + " is", name(a.dtype), name(b.dtype));
    // The number of elements is compared only between tensors of one name and type. If those
    // differ, another tensor stands at this place, and its size explains nothing.
    if (!difference.found()) {
      difference.compare(what + " has", fmt::format("{} elements", a.elements),
                         fmt::to_string(b.elements));
    }
  }
  difference.compare("the number of tensors is", ours.tensors.size(), theirs.tensors.size());
}

void compareSettings(Difference& difference, const std::map<std::string, std::string>& ours,
                     const std::map<std::string, std::string>& theirs) {
  const auto show = [](const auto& settings, const std::string& key) -> std::string {
    const auto found = settings.find(key);
    return found == settings.end() ? "not set" : "'" + found->second + "'";
  };
  auto all = ours;
  all.insert(theirs.begin(), theirs.end());
  for (const auto& [key, value] : all) {
    difference.compare(fmt::format("setting {} is", key), show(ours, key), show(theirs, key));
  }
}

}  // namespace

std::string firstDifference(const PlanSpec& ours, const PlanSpec& theirs, Rank other) {
  Difference difference(other);
  // Only the first difference is shown, so the order goes from causes to consequences: with
  // another model or other roles nearly everything below differs too.
  difference.compare("the membership epoch is", index(ours.epoch), index(theirs.epoch));
  compareTensors(difference, ours.model, theirs.model);
  difference.compare("the job has", fmt::format("{} ranks", ours.roles.world),
                     fmt::format("{} ranks", theirs.roles.world));
  difference.compare("the roles are", ours.roles.toString(), theirs.roles.toString())
      .compare("the placement is", name(ours.slicing.placement), name(theirs.slicing.placement))
      .compare("the slice size is", ours.slicing.sliceElements, theirs.slicing.sliceElements)
      .compare("the smallest message is", ours.slicing.minMessageElements,
               theirs.slicing.minMessageElements)
      .compare("the placement's seed is", ours.slicing.seed, theirs.slicing.seed)
      .compare("the number of hosts per rack is", ours.slicing.hostsPerRack,
               theirs.slicing.hostsPerRack)
      .compare("the algorithm is", "'" + ours.strategy + "'", "'" + theirs.strategy + "'");
  compareSettings(difference, ours.settings, theirs.settings);
  return std::move(difference).take();
}

std::string firstDifference(const Plan& ours, const Plan& theirs, Rank other) {
  // Equal specs with different slices come from two versions of sluice that cut differently;
  // then the first slice that differs is shown.
  if (auto text = firstDifference(ours.spec(), theirs.spec(), other); !text.empty()) return text;
  Difference difference(other);
  difference.compare("the number of slices is", ours.slices().size(), theirs.slices().size());
  const auto [a, b] = std::ranges::mismatch(ours.slices(), theirs.slices());
  if (a != ours.slices().end() && b != theirs.slices().end()) {
    difference.compare("a slice differs:", a->toString(), b->toString());
  }
  return std::move(difference).take();
}

}  // namespace sluice::plan
