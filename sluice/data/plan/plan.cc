#include <sluice/data/plan/plan.h>

#include <map>

#include <sodium.h>

#include <fmt/format.h>

#include <sluice/base/byte_io.h>

namespace sluice::plan {
namespace {

static_assert(sizeof(Hash) == crypto_generichash_BYTES);

// The slices are hashed too, although they follow from the spec: two versions of sluice may cut
// differently.
Hash hashOf(const PlanSpec& spec, std::span<const Slice> slices) {
  base::ByteWriter writer;
  for (const Slice& slice : slices) {
    writer.number(index(slice.tensor));
    writer.number(slice.chunk);
    writer.number(slice.priority);
    writer.number(slice.offset);
    writer.number(slice.count);
    writer.number(index(slice.server));
  }
  const auto specBytes = serialise(spec);
  const auto bytesOf = [](const std::byte* b) { return reinterpret_cast<const unsigned char*>(b); };
  SLUICE_CHECK(sodium_init() >= 0);  // cheap after the first time
  Hash hash{};
  crypto_generichash_state state;
  crypto_generichash_init(&state, nullptr, 0, hash.size());
  crypto_generichash_update(&state, bytesOf(specBytes.data()), specBytes.size());
  crypto_generichash_update(&state, bytesOf(writer.bytes().data()), writer.bytes().size());
  crypto_generichash_final(&state, reinterpret_cast<unsigned char*>(hash.data()), hash.size());
  return hash;
}

}  // namespace

std::string toHex(const Hash& hash) {
  std::string text;
  for (const std::byte b : hash) text += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  return text;
}

Result<Plan> Plan::make(PlanSpec spec) {
  SLUICE_ASSIGN_OR_RETURN(auto slices, cut(spec.model, spec.roles, spec.slicing));
  return Plan(std::move(spec), std::move(slices));
}

Plan Plan::continued(const Plan& first, Epoch epoch, std::span<const Rank> members) {
  // The order of members gives the new ranks, so all of them come to the same numbers without a
  // word. Slices keep their cut and their numbers: gradients, gates and saved results of the
  // old epoch still fit.
  std::map<Rank, Rank> newRanks;
  for (const Rank member : members) {
    const Rank rank{static_cast<uint32_t>(newRanks.size())};
    newRanks.emplace(member, rank);
  }
  PlanSpec spec = first.spec();
  spec.epoch = epoch;
  spec.roles = {.world = static_cast<uint32_t>(members.size())};
  for (const auto& [before, rank] : newRanks) {
    spec.roles.workers.push_back(rank);
    if (first.roles().isServer(before)) spec.roles.servers.push_back(rank);
  }
  // If all servers were lost, every worker becomes one: somebody has to sum.
  if (spec.roles.servers.empty()) spec.roles.servers = spec.roles.workers;
  std::vector<Slice> slices(first.slices().begin(), first.slices().end());
  // Slices whose server is still there stay with it, and so does their state. Only those of
  // lost servers are dealt out, in turn.
  size_t dealt = 0;
  for (Slice& slice : slices) {
    const auto found = newRanks.find(slice.server);
    slice.server = found != newRanks.end()
                       ? found->second
                       : spec.roles.servers[dealt++ % spec.roles.servers.size()];
  }
  return {std::move(spec), std::move(slices)};
}

Plan::Plan(PlanSpec spec, std::vector<Slice> slices)
    : spec_(std::move(spec)), slices_(std::move(slices)), hash_(hashOf(spec_, slices_)) {
  // Slices lie in the order of tensors, so the one at offset 0 begins the next tensor. The
  // entry at the end gives the last tensor an end like the others.
  firstSlice_.reserve(spec_.model.tensors.size() + 1);
  for (const Slice& slice : slices_) {
    if (slice.offset == 0) firstSlice_.push_back(index(slice.id));
  }
  firstSlice_.push_back(static_cast<uint32_t>(slices_.size()));
}

std::span<const Slice> Plan::slicesOf(TensorId tensor) const {
  const uint32_t first = firstSlice_[index(tensor)];
  return slices().subspan(first, firstSlice_[index(tensor) + 1] - first);
}

std::vector<SliceId> Plan::slicesOn(Rank server) const {
  std::vector<SliceId> found;
  for (const Slice& slice : slices_) {
    if (slice.server == server) found.push_back(slice.id);
  }
  return found;
}

std::string Plan::toString() const {
  return fmt::format("plan {}: algorithm {}, {}, {} slices {} over {} servers, {}, epoch {}",
                     toHex(hash_).substr(0, 8), spec_.strategy, model().toString(), slices_.size(),
                     name(spec_.slicing.placement), roles().servers.size(), roles().toString(),
                     index(epoch()));
}

}  // namespace sluice::plan
