#include <tools/bench/rank_task.h>

#include <nlohmann/json.hpp>

#include <sluice/base/json.h>

namespace sluice::bench {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Unevenness, stragglers, stragglerFactor, jitterPeriod,
                                   jitterFactor)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankTask, profile, computeSeconds, warmUp, iterations, update,
                                   watchNetwork, compareWithReference, unevenness)

std::string RankTask::toText() const {
  return nlohmann::json(*this).dump();
}

Result<RankTask> parseRankTask(std::string_view text) {
  try {
    SLUICE_ASSIGN_OR_RETURN(const auto json, base::parseJson(text));
    auto task = json.get<RankTask>();
    if (task.computeSeconds > 0 && task.warmUp >= 0 && task.iterations >= 1) return task;
    return Status(Code::kInvalidArgument,
                  "a replay needs a compute time and at least one iteration");
  } catch (const nlohmann::json::exception& error) {
    return Status(
        Code::kInvalidArgument,
        std::string("this is not a task of 'sluice bench replay', which writes tasks itself: ") +
            error.what());
  }
}

}  // namespace sluice::bench
