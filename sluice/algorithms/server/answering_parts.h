// What the worker's side, the server's side and the checkpoint of one answering engine
// (answering.h) have in common: its settings, its policy and its outbox.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include <sluice/algorithms/context.h>
#include <sluice/algorithms/outbox.h>
#include <sluice/algorithms/server/answer_policy.h>
#include <sluice/algorithms/server/server_options.h>

namespace sluice::algorithms {

struct AnsweringParts {
  AnsweringParts(const Context& all, std::unique_ptr<AnswerPolicy> its)
      : context(all),
        self(all.fabric.rank()),
        policy(std::move(its)),
        format(policy->format()),
        isOverlapping(overlaps(all.plan.spec())),
        sendsBeforeWord(all.updatesWaitForWord && algorithms::sendsBeforeWord(all.plan.spec())),
        outbox(context, byUrgency(all.config)) {}

  const plan::Plan& plan() const { return context.plan; }
  const plan::Roles& roles() const { return context.plan.roles(); }

  // A lost server cannot be replaced: nobody else holds its slices.
  bool goesOnWithout(Rank lost) const {
    return !roles().isServer(lost) && policy->traits().survivesLoss;
  }

  // Runs `then` if all is well with what `peer` and this rank send each other; else the step is
  // lost, unless the others go on without that peer.
  fabric::Done whenHere(Rank peer, std::function<void()> then) {
    return [this, peer, then = std::move(then)](const Status& status) {
      if (status.isOk()) return then();
      if (status.code() == Code::kPeerLost && goesOnWithout(peer)) return;
      context.gates.fail(status);
      onFailure(status);
    };
  }

  const Context context;
  const Rank self;
  const std::unique_ptr<AnswerPolicy> policy;
  PayloadFormat& format;  // the policy's
  const bool isOverlapping;
  const bool sendsBeforeWord;  // parts wait at their servers for the training thread's word
  Outbox outbox;
  std::function<void(const Status&)> onFailure;  // the engine's fail()
};

}  // namespace sluice::algorithms
