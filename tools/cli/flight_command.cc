// sluice trace flight: reads what the flight recorders of a job's ranks have left, and says who
// waited for whom, and which rank was lost or late first.
#include <chrono>
#include <memory>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <sluice/join/rendezvous/rank_list.h>
#include <tools/cli/commands.h>
#include <tools/cli/program.h>
#include <tools/cli/table.h>
#include <tools/trace/flight_report.h>

namespace sluice::cli {
namespace {

using flight::FirstFault;
using flight::FlightReport;
using flight::SavedRank;
using flight::SavedWait;
using flight::WaitKind;
using flight::WallTime;
using nlohmann::ordered_json;

struct FlightFlags {
  std::vector<std::string> files;
  size_t events = 0;
  bool asJson = false;
};

// "12:00:03.120", in local time, as logs have it.
std::string clockText(WallTime time) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  const std::time_t whole = static_cast<std::time_t>(ms / 1000);
  std::tm local{};
  if (::localtime_r(&whole, &local) == nullptr) return "-";
  return fmt::format("{:02}:{:02}:{:02}.{:03}", local.tm_hour, local.tm_min, local.tm_sec,
                     std::abs(ms % 1000));
}

std::string ranksText(const std::set<uint32_t>& ranks) {
  return ranks.empty() ? "-" : fmt::to_string(fmt::join(ranks, ", "));
}

std::string waitText(const SavedWait& wait) {
  switch (wait.kind) {
    case WaitKind::kLayer: return fmt::format("'{}' of step {}", wait.what, wait.step);
    case WaitKind::kMeeting:
      return fmt::format("the meeting '{}{}'", wait.what,
                         wait.step == 0 ? "" : fmt::to_string(wait.step));
    case WaitKind::kBroadcast: return "a broadcast " + wait.what;
  }
  return "?";
}

std::string stateText(const SavedRank& rank) {
  if (rank.file == nullptr) return "no file";
  switch (rank.file->state) {
    case flight::RunState::kEnded: return "ended well";
    case flight::RunState::kFailed: return "failed";
    case flight::RunState::kRunning: break;
  }
  return rank.file->isMapped ? "running or killed" : "running";
}

Table ranksTable(const FlightReport& report) {
  Table table({"rank", "state", "step", "waited for", "of rank", "since", "last event", "why"});
  for (const SavedRank& rank : report.ranks) {
    if (rank.file == nullptr) {
      table.addRow({fmt::to_string(rank.rank), stateText(rank), "-", "-", "-", "-", "-", "-"});
      continue;
    }
    const auto& wait = rank.wait;
    std::string why = wait && !wait->why.empty() ? wait->why : rank.failure;
    if (why.empty()) why = wait ? "it had not ended" : "-";
    table.addRow({fmt::to_string(rank.rank), stateText(rank),
                  rank.step ? fmt::to_string(*rank.step) : "-", wait ? waitText(*wait) : "-",
                  wait ? ranksText(wait->forRanks) : "-", wait ? clockText(wait->since) : "-",
                  clockText(rank.last), std::move(why)});
  }
  return table;
}

std::string verdict(const FlightReport& report) {
  if (!report.fault) return "the files name no rank that was lost or late";
  const FirstFault& fault = *report.fault;
  std::string text = fmt::format("rank {} ", fault.rank);
  switch (fault.fate) {
    case flight::Fate::kLost: text += "was lost at "; break;
    case flight::Fate::kLate: text += "was late from "; break;
    case flight::Fate::kEnded: text += "ended at "; break;
    case flight::Fate::kAborted: text += "aborted at "; break;
  }
  text += clockText(fault.since);
  if (!fault.waiting.empty()) {
    std::vector<Rank> ranks;
    for (const uint32_t rank : fault.waiting) ranks.push_back(Rank{rank});
    text += fmt::format("; {} waited for ", rendezvous::describeRanks(ranks));
    if (!fault.layer.empty()) {
      text += fmt::format("'{}' of step {} (session '{}')", fault.layer, fault.step, fault.session);
    } else {
      text += fault.during.empty() ? "no layer" : fault.during;
    }
  }
  return fault.why.empty() ? text : text + ": " + fault.why;
}

ordered_json toJson(const SavedWait& wait) {
  constexpr std::array kKinds{"layer", "meeting", "broadcast"};
  ordered_json object{{"kind", kKinds.at(static_cast<size_t>(wait.kind))},
                      {"session", wait.session},
                      {"what", wait.what},
                      {"step", wait.step},
                      {"since_s", base::seconds(wait.since)}};
  object["failed_s"] = wait.failed ? ordered_json(base::seconds(*wait.failed)) : ordered_json();
  object["why"] = wait.why;
  object["for_ranks"] = wait.forRanks;
  return object;
}

ordered_json toJson(const SavedRank& rank) {
  ordered_json object{{"rank", rank.rank}, {"state", stateText(rank)}};
  if (rank.file == nullptr) return object;
  object["file"] = rank.file->path;
  object["host"] = rank.file->host;
  object["pid"] = rank.file->pid;
  object["events"] = rank.file->events.size();
  object["lost_events"] = rank.file->lost;
  object["damaged_events"] = rank.file->damaged;
  object["last_event_s"] = base::seconds(rank.last);
  object["step"] = rank.step ? ordered_json(*rank.step) : ordered_json();
  object["wait"] = rank.wait ? toJson(*rank.wait) : ordered_json();
  auto losses = ordered_json::array();
  for (const auto& loss : rank.losses)
    losses.push_back({{"rank", loss.rank}, {"at_s", base::seconds(loss.at)}, {"why", loss.why}});
  object["losses"] = std::move(losses);
  object["failure"] = rank.failure;
  return object;
}

ordered_json toJson(const FlightReport& report) {
  ordered_json document{{"job", report.job}, {"world_size", report.worldSize}};
  document["fault"] = nullptr;
  if (report.fault) {
    const FirstFault& fault = *report.fault;
    document["fault"] = {{"rank", fault.rank},
                         {"fate", flight::name(fault.fate)},
                         {"since_s", base::seconds(fault.since)},
                         {"why", fault.why},
                         {"waiting", fault.waiting},
                         {"session", fault.session},
                         {"layer", fault.layer},
                         {"step", fault.step},
                         {"during", fault.during}};
  }
  auto ranks = ordered_json::array();
  for (const SavedRank& rank : report.ranks) ranks.push_back(toJson(rank));
  document["ranks"] = std::move(ranks);
  document["left_out"] = report.leftOut;
  return document;
}

// The latest events of a file, for a person who looks closer.
void printEvents(const SavedRank& rank, size_t most) {
  const auto& file = *rank.file;
  Table table({"at", "event", "step", "name", "slice", "peer", "bytes", "text"});
  const size_t first = file.events.size() > most ? file.events.size() - most : 0;
  for (size_t i = first; i < file.events.size(); ++i) {
    const auto& event = file.events[i];
    const bool isOfSlice = event.kind == flight::EventKind::kSent ||
                           event.kind == flight::EventKind::kReceived ||
                           event.kind == flight::EventKind::kResult;
    table.addRow({clockText(event.at.time_since_epoch() + file.wallAhead),
                  std::string(flight::name(event.kind)), fmt::to_string(event.step),
                  file.nameOf(event).empty() ? "-" : file.nameOf(event),
                  isOfSlice ? fmt::to_string(event.slice) : "-",
                  event.peer == flight::kNobody ? "-" : fmt::to_string(event.peer),
                  isOfSlice ? fmt::to_string(event.bytes) : "-",
                  event.text == 0 ? "-" : file.textOf(event)});
  }
  fmt::print("\nThe last events of rank {} ({}):\n{}", rank.rank, file.path, table.toText());
}

Result<int> showFlight(const FlightFlags& flags) {
  std::vector<flight::SavedFlight> files;
  for (const std::string& path : flags.files) {
    SLUICE_ASSIGN_OR_RETURN(auto file, flight::readFlight(path));
    files.push_back(std::move(file));
  }
  const FlightReport report = flight::reportOf(files);
  if (flags.asJson) {
    fmt::print("{}\n", toJson(report).dump(1, ' ', false, ordered_json::error_handler_t::replace));
    return 0;
  }
  fmt::print("Job {}, {} ranks.\n\n{}\n{}\n", report.job, report.worldSize,
             ranksTable(report).toText(), verdict(report));
  for (const std::string& path : report.leftOut)
    fmt::print("left out, since it is of another run: {}\n", path);
  for (const SavedRank& rank : report.ranks) {
    if (flags.events > 0 && rank.file != nullptr) printEvents(rank, flags.events);
  }
  return 0;
}

}  // namespace

void addFlightCommand(Program& program, CLI::App& trace) {
  CLI::App* command = program.addCommand(
      trace, "flight",
      "Read what flight recorders have left: which rank was lost or late, and who "
      "waited for it",
      {"sluice trace flight /tmp/sluice-flight-port29500-*",
       "SLUICE_FLIGHT_DIR=flights torchrun ... train.py; sluice trace flight flights/*",
       "sluice trace flight flights/* --events 20", "sluice trace flight flights/* --json"});
  auto flags = std::make_shared<FlightFlags>();
  command
      ->add_option("files", flags->files, "The files of a job's ranks; of several runs, the latest")
      ->required();
  command->add_option("--events", flags->events,
                      "Also print so many of the last events of each file");
  command->add_flag("--json", flags->asJson, "Print JSON instead of a table");
  program.onRun(command, [flags](const base::Config&) { return showFlight(*flags); });
}

}  // namespace sluice::cli
