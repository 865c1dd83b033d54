// The lab that replays run in, and the rate that its links carry. The destructor removes the lab.
#pragma once

#include <map>
#include <memory>
#include <string>

#include <sluice/base/config.h>
#include <sluice/base/status.h>
#include <sluice/base/units.h>
#include <sluice/data/timing/bounds.h>
#include <sluice/data/timing/profile.h>
#include <tools/lab/lab.h>
#include <tools/lab/scripts.h>

namespace sluice::bench {

using HostRates = std::map<uint32_t, Rate>;  // of the hosts whose links are unlike the others

class Arena final {
 public:
  // Makes the lab and measures it, which takes some seconds. Its routes use --congestion-control
  // too, for programs that do not choose for themselves.
  static Result<std::unique_ptr<Arena>> up(uint32_t hosts, Rate rate, const HostRates& unlike,
                                           const base::Config& config);

  const lab::Lab& lab() const { return **lab_; }
  uint32_t hosts() const { return hosts_; }
  Rate rate() const { return rate_; }
  Rate goodput() const { return goodput_; }  // that iperf3 reached
  // Returns the rate at which a link carries payload, as follows from its shape.
  Rate payloadRate() const { return timing::payloadRate(rate_); }
  // Returns that for the slowest link.
  Rate slowestPayloadRate() const { return timing::payloadRate(slowest_); }
  // Returns the wire time of the bytes that a link lets pass at once after a rest.
  double burstSeconds() const;
  const std::string& congestionControl() const { return congestionControl_; }
  std::string toString() const;  // "4 hosts at 1.2gbit, bbr: ..."

 private:
  Arena(std::unique_ptr<lab::TemporaryLab> lab, uint32_t hosts, Rate rate,
        std::string congestionControl)
      : lab_(std::move(lab)),
        hosts_(hosts),
        rate_(rate),
        congestionControl_(std::move(congestionControl)) {}

  const std::unique_ptr<lab::TemporaryLab> lab_;
  const uint32_t hosts_;
  const Rate rate_;
  const std::string congestionControl_;
  Rate goodput_{};
  Rate slowest_ = rate_;
};

// Returns a speed at which two cores can carry all hosts of the lab and still compute: links are to
// be the limit, not the machine.
Rate defaultRate(const Profile& profile, uint32_t hosts);

}  // namespace sluice::bench
