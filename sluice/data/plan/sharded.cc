// The placement `sharded`.
//
// A tensor is cut into as few equal *chunks* as make every message at most one slice. A chunk of
// enough elements has one slice on every server; a smaller one is spread over as many servers as
// get at least the smallest message each. Elements that cannot be split evenly go to the servers
// that hold least so far. That keeps the totals within one such piece of each other: a server gets
// more than others only while it holds no more than they do.
#include <algorithm>
#include <functional>

#include <sluice/data/plan/cutter.h>

namespace sluice::plan {
namespace {

// The servers by load, least first, lower positions first among equals. Elements that all servers
// hold alike are left out: they do not change the order.
class Loads final {
 public:
  explicit Loads(uint32_t servers) {
    heap_.reserve(servers);
    for (uint32_t s = 0; s < servers; ++s) heap_.push_back({0, s});
  }

  // Gives part i of `sizes(i)`, for i < parts, to the server that holds the (i+1)-th least; calls
  // give(i, server).
  template <typename Sizes, typename Give>
  void spread(uint32_t parts, Sizes sizes, Give give) {
    // The heap's back end collects the servers that have got a part already, so that no server is
    // taken twice.
    auto end = heap_.end();
    for (uint32_t i = 0; i < parts; ++i) {
      std::pop_heap(heap_.begin(), end, std::greater<>());
      --end;
      end->elements += sizes(i);
      give(i, end->server);
    }
    for (; end != heap_.end(); ++end) std::push_heap(heap_.begin(), end + 1, std::greater<>());
  }

 private:
  struct Load {
    uint64_t elements;
    uint32_t server;
    auto operator<=>(const Load&) const = default;
  };
  std::vector<Load> heap_;
};

}  // namespace

Status cutSharded(const Model& model, const Slicing& slicing, Cutter& cutter) {
  const uint32_t servers = cutter.servers();
  const uint64_t smallest =
      std::clamp<uint64_t>(slicing.minMessageElements, 1, slicing.sliceElements);
  const auto partsOf = [&](uint64_t elements) {
    const uint64_t fewest = ceilDivide(elements, slicing.sliceElements);
    // As many servers share a tensor as get at least the smallest message each; but never so
    // few that a part would exceed a slice.
    return static_cast<uint32_t>(std::clamp<uint64_t>(elements / smallest, fewest, servers));
  };

  Loads loads(servers);
  std::vector<uint64_t> extra(servers);
  for (uint32_t t = 0; t < model.tensors.size(); ++t) {
    const uint64_t elements = model.tensors[t].elements;
    const uint64_t chunks = ceilDivide(elements, slicing.sliceElements * servers);
    SLUICE_RETURN_IF_ERROR(
        cutter.begin(TensorId{t}, chunks * partsOf(evenPart(elements, chunks, 0))));
    for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
      const uint64_t size = evenPart(elements, chunks, chunk);
      const uint32_t parts = partsOf(size);
      // A chunk that is too small for all servers goes to those that hold least. One that
      // reaches all of them leaves a remainder of less than one element for each, which also
      // goes to those that hold least.
      if (parts < servers) {
        loads.spread(
            parts, [&](uint32_t i) { return evenPart(size, parts, i); },
            [&](uint32_t i, uint32_t server) {
              cutter.add(evenPart(size, parts, i), server, chunk);
            });
        continue;
      }
      std::ranges::fill(extra, 0);
      loads.spread(
          static_cast<uint32_t>(size % servers), [](uint32_t) { return 1; },
          [&](uint32_t, uint32_t server) { extra[server] = 1; });
      for (uint32_t s = 0; s < servers; ++s) cutter.add(size / servers + extra[s], s, chunk);
    }
  }
  return base::ok();
}

}  // namespace sluice::plan
