#include <tools/doctor/examine.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sluice/base/log.h>
#include <sluice/base/text.h>
#include <tools/doctor/plants.h>
#include <tools/doctor/reach.h>
#include <tools/doctor/refusal.h>
#include <tools/doctor/verdicts.h>
#include <tools/probe/json_fields.h>
#include <tools/probe/meeting.h>
#include <tools/probe/own_sockets.h>
#include <tools/probe/probe.h>

namespace sluice::doctor {
namespace {

using namespace std::chrono_literals;
using probe::ProbeMeeting;

constexpr auto kReachWithin = 3500ms;  // three tries of the kernel
constexpr auto kLinger = 6s;
constexpr auto kSoon = 5s;  // all ranks are here, and have nothing else to do

double wallSeconds(const Plants& plants) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count() + plants.clockSeconds;
}

std::vector<std::string> hostsOf(const std::vector<Address>& addresses) {
  std::vector<std::string> hosts;
  for (const Address& address : addresses) hosts.push_back(address.host());
  return hosts;
}

// All ranks have just met, so the second meeting takes a round trip: rank 0 reads its clock when it
// is complete, and the others know that this was between their question and the answer.
Result<std::vector<ClockReading>> compareClocks(ProbeMeeting& meeting, const Plants& plants) {
  SLUICE_RETURN_IF_ERROR(meeting.gather("doctor/before-clocks", "", kSoon).status());
  const double asked = wallSeconds(plants);
  SLUICE_RETURN_IF_ERROR(meeting.gather("doctor/clocks", "").status());
  const double answered = wallSeconds(plants);
  SLUICE_ASSIGN_OR_RETURN(
      const auto texts, meeting.gather("doctor/read-clocks",
                                       probe::dumped({{"asked", asked}, {"answered", answered}})));
  std::vector<ClockReading> readings;
  double reference = 0;
  for (const auto& text : texts) {
    const auto document = probe::noteFrom(text);
    const double from = probe::numberIn(document, "asked");
    const double to = probe::numberIn(document, "answered");
    if (readings.empty()) reference = to;
    readings.push_back({.offset = (from + to) / 2 - reference, .error = std::abs(to - from) / 2});
  }
  return readings;
}

Result<std::vector<std::map<uint32_t, std::string>>> tryPorts(ProbeMeeting& meeting) {
  const auto unreachable = findUnreachable(
      meeting.addresses(), ranksToTry(index(meeting.rank()), meeting.worldSize()), kReachWithin);
  SLUICE_ASSIGN_OR_RETURN(const auto texts,
                          meeting.gather("doctor/reach", encodeUnreachable(unreachable)));
  std::vector<std::map<uint32_t, std::string>> all;
  for (const auto& text : texts) {
    SLUICE_ASSIGN_OR_RETURN(auto each, decodeUnreachable(text, meeting.worldSize()));
    all.push_back(std::move(each));
  }
  return all;
}

Status shareStolenTime(ProbeMeeting& meeting, const CpuTicks& before, CaseFile& file) {
  const CpuTicks after = readCpuTicks();
  const auto all = static_cast<double>(after.all - std::min(before.all, after.all));
  const auto stolen = static_cast<double>(after.stolen - std::min(before.stolen, after.stolen));
  SLUICE_ASSIGN_OR_RETURN(
      const auto texts,
      meeting.gather("doctor/stolen", probe::dumped({{"share", all > 0 ? stolen / all : 0}})));
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const auto document = probe::noteFrom(texts[rank]);
    file.hosts[rank].cpu.stolenShare = probe::numberIn(document, "share");
  }
  return base::ok();
}

bool anyUnreachable(const CaseFile& file) {
  return std::ranges::any_of(file.unreachable, [](const auto& each) { return !each.empty(); });
}

Status examineJob(ProbeMeeting& meeting, const Plants& plants, CaseFile& file) {
  const CpuTicks ticks = readCpuTicks();
  if (meeting.worldSize() > 1) {
    SLUICE_ASSIGN_OR_RETURN(file.clocks, compareClocks(meeting, plants));
    SLUICE_ASSIGN_OR_RETURN(file.unreachable, tryPorts(meeting));
    if (anyUnreachable(file)) return base::ok();
  }
  SLUICE_ASSIGN_OR_RETURN(file.network,
                          probe::probeNetwork(meeting, {.computeFactor = plants.computeFactor}));
  return shareStolenTime(meeting, ticks, file);
}

// This rank cannot join, and knows why.
Result<Examination> explain(const Status& error, const HostReport& own, Examination examination) {
  std::vector<std::string> addresses;
  if (const auto interfaces = rendezvous::listInterfaces(); interfaces.isOk()) {
    for (const auto& each : *interfaces) addresses.push_back(each.address.host());
  }
  auto finding = explainRefusal(error, examination.rank, own, addresses);
  if (!finding) return error;
  examination.findings.push_back(*std::move(finding));
  return examination;
}

// Returns a finding for each rank to which packets of full size do not pass, though a connection can
// be made: a rank that is cut off or dead could not be connected to.
std::vector<Finding> findHoles(const std::map<uint32_t, Address>& ranks) {
  const std::set<std::string> stuck = probe::hostsWithStuckConnections();
  std::vector<Finding> findings;
  for (const auto& [rank, address] : ranks) {
    if (!stuck.contains(address.host())) continue;
    if (!findUnreachable({address}, {0}, kReachWithin).empty()) continue;
    findings.push_back(
        {Fault::kMtuHole,
         {rank},
         fmt::format("a connection to rank {} at {} can be made, but a message of full-sized "
                     "packets has not arrived there, however often it was sent again",
                     rank, address.host()),
         std::string(kMtuRemedy)});
  }
  return findings;
}

// The ranks have met, and then some did not come to a later meeting. The others wait until rank 0
// has said why, or the rank that cannot speak to rank 0.
Result<Examination> explainSilence(const Status& error, ProbeMeeting& meeting,
                                   Examination examination) {
  if (meeting.rank() != Rank{0}) {
    examination.findings = findHoles({{0, meeting.addresses().front()}});
    if (examination.findings.empty()) meeting.lingerUntilRank0Leaves(kLinger);
    return examination;
  }
  const bool isMissing = error.code() == Code::kTimeout || error.code() == Code::kPeerLost;
  if (!isMissing) return error;
  std::map<uint32_t, Address> ranks;
  for (uint32_t rank = 1; rank < meeting.worldSize(); ++rank)
    ranks.emplace(rank, meeting.addresses()[rank]);
  examination.findings = findHoles(ranks);
  if (examination.findings.empty()) examination.missing = error.message();
  return examination;
}

// The ranks have not met. Rank 0 and those that reached it only know who is missing; a rank that
// did not reach rank 0 says why itself.
Result<Examination> explainAbsence(const Status& error, ProbeMeeting& meeting,
                                   const HostReport& own, Examination examination) {
  const bool isMissing = error.code() == Code::kTimeout || error.code() == Code::kPeerLost;
  if (!isMissing || !meeting.hasReachedRank0()) return explain(error, own, std::move(examination));
  examination.missing = error.message();
  meeting.lingerUntilRank0Leaves(kLinger);
  return examination;
}

void plantReport(const Plants& plants, HostReport& report) {
  if (!plants.version.empty()) report.version = plants.version;
  if (!plants.torch.empty()) report.torch = plants.torch;
}

}  // namespace

Result<Examination> examine(const base::Config& config, const base::Config::Values& environment,
                            const std::vector<std::string>& plantTexts) {
  const base::RealClock clock;
  const TimePoint begun = clock.now();
  SLUICE_ASSIGN_OR_RETURN(const auto meeting,
                          ProbeMeeting::prepare(config, environment, {.command = "doctor"}));
  Examination examination;
  examination.rank = index(meeting->rank());
  examination.worldSize = meeting->worldSize();
  base::setLogPrefix(fmt::format("rank {}", examination.rank));
  SLUICE_ASSIGN_OR_RETURN(const Plants plants, parsePlants(plantTexts, examination.rank));
  HostReport own = readHostReport(config);
  plantReport(plants, own);
  own.localRank = meeting->launch().localRank;
  own.masterName = meeting->launch().masterHost;
  const Status opened = meeting->open();
  own.master = hostsOf(meeting->master());
  if (!opened.isOk()) return explain(opened, own, std::move(examination));
  own.interface = meeting->interface().name;
  own.address = own.routedAddress = meeting->interface().address.host();
  if (!meeting->master().empty()) {
    const auto routed = rendezvous::chooseInterface({}, meeting->master().front(), "");
    if (routed.isOk()) own.routedAddress = routed->address.host();
  }
  if (const auto met = meeting->join(""); !met.isOk())
    return explainAbsence(met.status(), *meeting, own, std::move(examination));
  const auto notes = meeting->gather("doctor/hosts", encode(own), kSoon);
  if (!notes.isOk()) return explainSilence(notes.status(), *meeting, std::move(examination));
  examination.hasMet = true;
  for (const auto& note : *notes) {
    SLUICE_ASSIGN_OR_RETURN(auto host, decodeHostReport(note));
    examination.file.hosts.push_back(std::move(host));
  }
  const Status examined = examineJob(*meeting, plants, examination.file);
  if (!examined.isOk()) return explainSilence(examined, *meeting, std::move(examination));
  if (examination.rank == 0) examination.findings = judge(examination.file);
  examination.seconds = base::seconds(clock.now() - begun);
  return examination;
}

}  // namespace sluice::doctor
