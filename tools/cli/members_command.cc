// sluice members: who belongs to a job, since when, and the history of its epochs.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sluice/base/net/epoll_loop.h>
#include <sluice/base/options.h>
#include <sluice/base/text.h>
#include <sluice/join/membership/etcd/etcd_membership.h>
#include <sluice/secret/key_file.h>
#include <tools/cli/commands.h>
#include <tools/cli/program.h>
#include <tools/cli/table.h>

namespace sluice::cli {
namespace {

using membership::EpochRecord;
using membership::Member;
using nlohmann::ordered_json;

constexpr Duration kPatienceForMembers = std::chrono::seconds(5);

struct MembersFlags {
  std::string job;
  size_t history = 20;
  bool asJson = false;
};

// A job as the store knows it.
struct JobMembers {
  EpochRecord epoch;
  std::vector<EpochRecord> history;
  std::vector<Member> announced;

  bool isAnnounced(const Member& member) const {
    return std::ranges::find(announced, member.id, &Member::id) != announced.end();
  }
};

std::string timeText(membership::WallTime time) {
  constexpr membership::WallTime kLatest = 253402300799000;  // the end of the year 9999
  if (time <= 0 || time > kLatest) return "?";
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC",
                     fmt::gmtime(static_cast<std::time_t>(time / 1000)));
}

std::string nameText(const Member& member) {
  return fmt::format("{} ({})", base::printable(member.host), base::printable(member.address));
}

// Asks one thing after another; the loop ends with the last answer or the first error.
class MembersQuery final {
 public:
  MembersQuery(net::EpollLoop& loop, std::unique_ptr<membership::Membership> membership,
               size_t history)
      : loop_(loop), membership_(std::move(membership)), most_(history) {}

  Result<JobMembers> ask() {
    loop_.post([this] { askLatest(); });
    loop_.run();
    if (!status_.isOk()) return status_;
    return seen_;
  }

 private:
  void askLatest() {
    membership_->latest(kPatienceForMembers, [this](const Result<membership::StoredEpoch>& stored) {
      if (!stored.isOk()) return end(stored.status());
      seen_.epoch = stored->record;
      askHistory();
    });
  }
  void askHistory() {
    membership_->history(most_, kPatienceForMembers,
                         [this](Result<std::vector<EpochRecord>> history) {
                           if (!history.isOk()) return end(history.status());
                           seen_.history = *std::move(history);
                           askAnnounced();
                         });
  }
  void askAnnounced() {
    membership_->announced(kPatienceForMembers, [this](Result<std::vector<Member>> announced) {
      if (!announced.isOk()) return end(announced.status());
      seen_.announced = *std::move(announced);
      end(base::ok());
    });
  }
  void end(const Status& status) {
    // The health names the servers and the reason, and is no timeout.
    const bool isFrozen = !status.isOk() && !membership_->health().isOk();
    status_ = isFrozen ? membership_->health() : status;
    loop_.post([this] {
      membership_.reset();
      loop_.stop();
    });
  }

  net::EpollLoop& loop_;
  std::unique_ptr<membership::Membership> membership_;
  const size_t most_;
  JobMembers seen_;
  Status status_;
};

void printTables(const std::string& job, const JobMembers& seen) {
  const EpochRecord& epoch = seen.epoch;
  fmt::print("job {}: epoch {} of {} members, from step {} on, since {}\n\n", job, epoch.number,
             epoch.members.size(), epoch.firstStep, timeText(epoch.proposed));
  Table members({"rank", "host", "address", "since step", "since", "announced", "id"});
  for (size_t rank = 0; rank < epoch.members.size(); ++rank) {
    const Member& member = epoch.members[rank];
    members.addRow({std::to_string(rank), base::printable(member.host),
                    base::printable(member.address), fmt::format("{}", member.since),
                    timeText(member.came), seen.isAnnounced(member) ? "yes" : "no",
                    member.id.toString()});
  }
  members.print(/*asJson=*/false);
  Table history({"epoch", "time", "first step", "members", "lost", "why"});
  for (const EpochRecord& record : seen.history) {
    std::vector<std::string> lost;
    for (const Member& member : record.lost) lost.push_back(nameText(member));
    history.addRow({fmt::format("{}", record.number), timeText(record.proposed),
                    fmt::format("{}", record.firstStep), std::to_string(record.members.size()),
                    lost.empty() ? "-" : fmt::format("{}", fmt::join(lost, ", ")),
                    base::printable(record.why)});
  }
  fmt::print("\n");
  history.print(/*asJson=*/false);
}

ordered_json toJson(const Member& member) {
  return {{"id", member.id.toString()},
          {"host", base::printable(member.host)},
          {"address", base::printable(member.address)},
          {"since_step", index(member.since)},
          {"since", timeText(member.came)}};
}

ordered_json toJson(const EpochRecord& record) {
  auto lost = ordered_json::array();
  for (const Member& member : record.lost) lost.push_back(toJson(member));
  return {{"epoch", index(record.number)},
          {"time", timeText(record.proposed)},
          {"first_step", index(record.firstStep)},
          {"members", record.members.size()},
          {"lost", lost},
          {"why", base::printable(record.why)},
          {"proposer", record.proposer.toString()}};
}

ordered_json toJson(const std::string& job, const JobMembers& seen) {
  auto members = ordered_json::array();
  for (const Member& member : seen.epoch.members) {
    ordered_json each{{"rank", members.size()}};
    each.update(toJson(member));
    each["announced"] = seen.isAnnounced(member);
    members.push_back(std::move(each));
  }
  auto history = ordered_json::array();
  for (const EpochRecord& record : seen.history) history.push_back(toJson(record));
  return {{"job", job},
          {"epoch", index(seen.epoch.number)},
          {"first_step", index(seen.epoch.firstStep)},
          {"members", members},
          {"history", history}};
}

Result<int> showMembers(const base::Config& config, const MembersFlags& flags) {
  const std::string job = flags.job.empty() ? config.text(option::kJob) : flags.job;
  if (job.empty())
    return Status(Code::kInvalidArgument, "name a job: sluice members JOB, or set SLUICE_JOB");
  if (config.text(option::kMembers).empty())
    return Status(Code::kInvalidArgument,
                  "name the etcd servers: --members etcd://a,b,c, or set SLUICE_MEMBERS");
  SLUICE_ASSIGN_OR_RETURN(const auto key, secret::loadJobKey(config));
  net::EpollLoop loop;
  SLUICE_RETURN_IF_ERROR(loop.status());
  SLUICE_ASSIGN_OR_RETURN(auto membership,
                          membership::makeEtcdMembership(loop, membership::etcdSettings(config),
                                                         {.job = job, .key = key}));
  MembersQuery query(loop, std::move(membership), flags.history);
  SLUICE_ASSIGN_OR_RETURN(const JobMembers seen, query.ask());
  if (flags.asJson) {
    fmt::print("{}\n", toJson(job, seen).dump(2));
  } else {
    printTables(job, seen);
  }
  return 0;
}

}  // namespace

void addMembersCommand(Program& program, CLI::App& root) {
  CLI::App* command = program.addCommand(
      root, "members", "Show who belongs to a job, since when, and who was lost",
      {"sluice members training --members etcd://10.0.0.1,10.0.0.2,10.0.0.3",
       "SLUICE_MEMBERS=etcds://a,b,c SLUICE_MEMBERS_CA=ca.pem sluice members training --json",
       "sluice members training --members etcds://a,b,c --members-user sluice "
       "--members-password-file etcd.password",
       "SLUICE_JOB_KEY_FILE=job.key sluice members training --history 100"});
  auto flags = std::make_shared<MembersFlags>();
  command->add_option("JOB", flags->job, "The name of the job; default: SLUICE_JOB");
  addWithDefault(command, "--history", flags->history, "How many of the last epochs to show");
  command->add_flag("--json", flags->asJson, "Print JSON instead of tables");
  program.addOption(command, option::kMembers);
  program.addOption(command, option::kMembersCa);
  program.addOption(command, option::kMembersCertificate);
  program.addOption(command, option::kMembersKey);
  program.addOption(command, option::kMembersUser);
  program.addOption(command, option::kMembersPasswordFile);
  program.addOption(command, option::kJobKeyFile);
  program.onRun(command,
                [flags](const base::Config& config) { return showMembers(config, *flags); });
}

}  // namespace sluice::cli
