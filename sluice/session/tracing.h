// The trace of a session, if one is wanted: recorded while it runs, written when it ends.
#pragma once

#include <memory>
#include <string>

#include <sluice/base/config.h>
#include <sluice/data/plan/model.h>
#include <sluice/observe/trace/recorder.h>
#include <sluice/transport/fabric/watch/watched_fabric.h>

namespace sluice::session {

class Tracing final {
 public:
  // Returns null if the configuration asks for no trace. Makes the directory, so that a wrong one
  // is known before training.
  static Result<std::unique_ptr<Tracing>> begin(const base::Config& config, const Model& model,
                                                const std::string& session, Rank rank);

  StageObserver& observer() { return recorder_; }

  // Remembers the offsets of the other ranks' clocks. Call it while the others are still there;
  // each further call adds what it learns. REQUIRES: not on the loop.
  void noteClocks(const fabric::PeerAwareFabric& fabric);

  // Writes the trace. Call it once, at the end. A trace that cannot be written is only logged:
  // training is done, and has not failed.
  void write();

 private:
  Tracing(std::string path, size_t capacity) : path_(std::move(path)), recorder_(capacity) {}

  const std::string path_;
  trace::Recorder recorder_;
  trace::RankTrace trace_;  // all but the events, until write(); its wall clock as at the beginning
};

}  // namespace sluice::session
