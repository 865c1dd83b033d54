// Shared by the worker's side and the server's side of one collecting engine (collecting.h).
#pragma once

#include <functional>
#include <utility>

#include <sluice/algorithms/context.h>
#include <sluice/algorithms/outbox.h>
#include <sluice/algorithms/server/collecting.h>
#include <sluice/algorithms/server/server_options.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::algorithms {

struct CollectingParts {
  CollectingParts(const Context& all, const ServerStyle& its)
      : context(all),
        self(all.fabric.rank()),
        style(its),
        isOverlapping(overlaps(all.plan.spec())),
        outbox(context, its.egress) {}

  const plan::Plan& plan() const { return context.plan; }
  const plan::Roles& roles() const { return context.plan.roles(); }
  DType dtypeOf(const plan::Slice& slice) const { return context.plan.model()[slice.tensor].dtype; }

  // Runs `then` once the payload is there; a payload that never comes fails the step.
  fabric::Done whenHere(std::function<void()> then) const {
    return [this, then = std::move(then)](const Status& status) {
      if (!status.isOk()) return context.gates.fail(status);
      then();
    };
  }

  // Sends a message without payload, which does not wait behind slices.
  void sendWord(const plan::Slice& slice, Stage stage, Step step, Rank to, wire::Flags word) const {
    const fabric::Message message{.step = step,
                                  .tensor = slice.tensor,
                                  .slice = slice.id,
                                  .stage = stage,
                                  .flags = word,
                                  .dtype = dtypeOf(slice)};
    context.fabric.send(to, fabric::Lane::kControl, message, {}, whenHere([] {}));
  }

  static Status expectNoPayload(const wire::Header& header) {
    return header.length == 0 ? base::ok()
                              : fabric::refusedStatus(header, "such a message has no payload");
  }

  const Context context;
  const Rank self;
  const ServerStyle style;
  const bool isOverlapping;
  Outbox outbox;
};

}  // namespace sluice::algorithms
