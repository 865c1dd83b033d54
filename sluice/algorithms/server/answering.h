// Training over sharded parameter servers that answer each worker by itself, and need not wait for
// all: the engine behind asp, ssp and easgd, and behind all that is compressed on its way to
// servers and back. An AnswerPolicy tells these apart; the engine moves what it says.
//
//   worker   contribute -> a part of each slice to its server, as the policy says
//   server   a part is here -> the policy takes it in -> answers to those who may go on
//   worker   the last slice of a tensor is through with its step -> open its gate
//
// The sides are answering_worker.h and answering_server.h.
//
// All of it belongs to the fabric's loop.
#pragma once

#include <memory>

#include <sluice/algorithms/context.h>
#include <sluice/algorithms/server/answer_policy.h>
#include <sluice/algorithms/strategy.h>
#include <sluice/base/option.h>

namespace sluice::base::option {
inline constexpr Option kSurviveLoss =
    sameOnAllRanks({"survive-loss", Kind::kSwitch, "off",
                    "ssp, easgd: go on without a worker that is lost, if it served nothing; off: "
                    "end with its name"});
}  // namespace sluice::base::option

namespace sluice::algorithms {

// Cuts and places slices as `sluice` does.
Status chooseAnswering(const base::Config& config, plan::PlanSpec& spec);

// Takes the option survive-loss, of policies that can do either. Refuses it where every worker
// serves.
Status chooseSurvival(const base::Config& config, plan::PlanSpec& spec);
bool survivesLoss(const plan::PlanSpec& spec);

// REQUIRES: checkUpdate(context) (slices.h)
std::unique_ptr<Strategy> makeAnswering(const Context& context,
                                        std::unique_ptr<AnswerPolicy> policy);

}  // namespace sluice::algorithms
