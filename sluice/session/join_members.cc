#include <sluice/session/join_members.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include <sluice/base/clock.h>
#include <sluice/base/log.h>
#include <sluice/base/options.h>
#include <sluice/base/text.h>
#include <sluice/base/units.h>
#include <sluice/join/membership/etcd/etcd_membership.h>
#include <sluice/join/membership/job_space.h>
#include <sluice/transport/fabric/common.h>
#include <sluice/transport/fabric/tcp/tcp_fabric.h>
#include <sluice/transport/fabric/watch/watched_fabric.h>

namespace sluice::session {
namespace {

using membership::EpochRecord;
using membership::Member;
using membership::StoredEpoch;

constexpr auto kPatienceWithStore = std::chrono::seconds(15);
constexpr std::string_view kBegun = "begun";
// The leases of members that were killed have ended after this time: a lease is 10 s, and etcd may
// begin it anew when its leader changes. Those of a job that runs are renewed.
constexpr Duration kLongestDeadLease = std::chrono::seconds(25);
constexpr Duration kLookForLeases = std::chrono::milliseconds(500);

Status checkSettings(const JoiningMember& joining) {
  const base::Config& config = joining.config;
  if (config.text(option::kJob).empty()) {
    return {Code::kInvalidArgument,
            "a job with --members needs a name: say --job NAME, or set SLUICE_JOB"};
  }
  SLUICE_RETURN_IF_ERROR(membership::checkJobName(config.text(option::kJob)));
  if (!joining.storeKey.isSecret()) {
    return {Code::kInvalidArgument,
            "a job with --members needs a job key: make one with 'sluice key new -o FILE', and "
            "say --job-key-file FILE"};
  }
  if (config.text(option::kFabric) == "ucx") {
    return {Code::kInvalidArgument,
            "--fabric ucx cannot go on without a lost member; leave out --members, or use tcp"};
  }
  return base::ok();
}

// A rank's note to the others before the first epoch: the rank itself, and the name of its proposal.
std::string encodeNote(const Member& member, const membership::Nonce& nonce) {
  return nonce.toString() + membership::encode(member);
}

struct FirstMembers {
  std::vector<Member> members;
  membership::Nonce nonce;  // of rank 0
};

Result<FirstMembers> decodeNotes(const std::vector<std::string>& notes) {
  constexpr size_t kNonceDigits = 2 * membership::kIdBytes;
  FirstMembers everybody;
  for (const auto& note : notes) {
    if (note.size() < kNonceDigits)
      return Status(Code::kDataLoss, "a rank has told the others nothing of itself");
    SLUICE_ASSIGN_OR_RETURN(auto member,
                            membership::decodeMember(std::string_view(note).substr(kNonceDigits)));
    everybody.members.push_back(std::move(member));
  }
  SLUICE_ASSIGN_OR_RETURN(everybody.nonce,
                          membership::Nonce::parse(notes.front().substr(0, kNonceDigits)));
  return everybody;
}

// Asks the store on behalf of one rank. Not on the loop, which has to answer.
class Entrance final {
 public:
  Entrance(const JoiningMember& joining, membership::Membership& membership)
      : joining_(joining), membership_(membership) {}

  // Writes the first epoch of this job. An epoch of an earlier job of the same name is followed, as
  // soon as none of its members lives.
  Result<StoredEpoch> writeFirst(EpochRecord first) {
    SLUICE_ASSIGN_OR_RETURN(StoredEpoch stored, ask<StoredEpoch>([&](auto got) {
                              membership_.begin(first, kPatienceWithStore, std::move(got));
                            }));
    // Somebody else may write between the answer and the next attempt, so each turn asks
    // whether the job that stands there still lives.
    while (stored.record.nonce != first.nonce) {
      SLUICE_RETURN_IF_ERROR(waitUntilOver(stored.record));
      first.number = Epoch{index(stored.record.number) + 1};
      SLUICE_ASSIGN_OR_RETURN(stored, ask<StoredEpoch>([&](auto got) {
                                membership_.replace(stored, first, kPatienceWithStore,
                                                    std::move(got));
                              }));
    }
    return stored;
  }

  Result<StoredEpoch> readFirst(const membership::Nonce& nonce) {
    SLUICE_ASSIGN_OR_RETURN(StoredEpoch stored, ask<StoredEpoch>([&](auto got) {
                              membership_.latest(kPatienceWithStore, std::move(got));
                            }));
    if (stored.record.nonce == nonce) return stored;
    return Status(Code::kRefused, "another job of the same name has begun meanwhile");
  }

 private:
  // A job that was killed and is started again at once finds its former members announced, until
  // their leases end.
  Status waitUntilOver(const EpochRecord& record) {
    // The other ranks wait for the answer no longer than rendezvous-timeout.
    const Duration patience =
        std::min(kLongestDeadLease, joining_.config.duration(option::kRendezvousTimeout) / 5 * 4);
    const TimePoint end = base::RealClock().now() + patience;
    for (bool isFirst = true;; isFirst = false) {
      SLUICE_ASSIGN_OR_RETURN(const auto announced, ask<std::vector<Member>>([&](auto got) {
                                membership_.announced(kPatienceWithStore, std::move(got));
                              }));
      const auto living = std::ranges::find_if(
          announced, [&](const Member& member) { return record.rankOf(member.id).has_value(); });
      if (living == announced.end()) return base::ok();
      const std::string& job = joining_.config.text(option::kJob);
      const std::string host = base::printable(living->host);
      if (base::RealClock().now() >= end) {
        return {Code::kRefused,
                fmt::format("a job named '{}' is running, with a member on {}; choose another "
                            "--job, or end that one first",
                            job, host)};
      }
      if (isFirst) {
        log("session").warn(
            "a job named '{}' is in the store, with a member on {}: waiting up to {} for the end "
            "of its lease",
            job, host, base::formatDuration(patience));
      }
      SLUICE_RETURN_IF_ERROR(rest(kLookForLeases));
    }
  }

  Status rest(Duration time) {
    return base::awaitStatus(
        joining_.loop,
        [&](auto got) {
          (void)joining_.loop.after(time, [got = std::move(got)] { got(base::ok()); });
        },
        joining_.interruption);
  }

  template <typename T, typename Start>
  Result<T> ask(Start&& start) {
    auto answer = base::await<T>(joining_.loop, std::forward<Start>(start), joining_.interruption);
    if (answer.isOk()) return answer;
    Status health;
    SLUICE_RETURN_IF_ERROR(
        fabric::runAndWait(joining_.loop, [&] { health = membership_.health(); }));
    return health.isOk() ? answer.status() : health;  // it names the servers and the reason
  }

  const JoiningMember& joining_;
  membership::Membership& membership_;
};

// Tells the other ranks how this one has fared, and returns the error of any rank.
Status hearOutcomes(const JoiningMember& joining, const std::string& key, const Status& own) {
  SLUICE_ASSIGN_OR_RETURN(const auto outcomes,
                          joining.gather(key, own.isOk() ? std::string(kBegun) : own.message()));
  for (const auto& outcome : outcomes) {
    if (outcome == kBegun) continue;
    return {Code::kUnavailable,
            fmt::format("the members of the job cannot be agreed: {}", outcome)};
  }
  return base::ok();
}

Result<std::unique_ptr<fabric::Fabric>> makeMembersFabric(const JoiningMember& joining,
                                                          const std::vector<Member>& members,
                                                          fabric::TcpListener listener,
                                                          fabric::Receiver& receiver) {
  SLUICE_ASSIGN_OR_RETURN(const auto liveness, fabric::readLivenessOptions(joining.config));
  fabric::TcpMembership ranks{.rank = joining.rank,
                              .epoch = Epoch{0},
                              .addresses = {},
                              .key = joining.fabricKey,
                              .door = joining.door};
  std::vector<std::string> addresses;
  for (const Member& member : members) addresses.push_back(member.address);
  SLUICE_ASSIGN_OR_RETURN(ranks.addresses, net::parseAddresses(addresses));
  SLUICE_ASSIGN_OR_RETURN(auto watched, fabric::WatchedFabric::make(
                                            joining.loop, liveness, receiver,
                                            [&](fabric::Receiver& watchman) {
                                              return fabric::makeTcpFabric(
                                                  joining.loop, std::move(listener),
                                                  std::move(ranks),
                                                  fabric::readTcpOptions(joining.config), watchman);
                                            },
                                            joining.pulse));
  return std::unique_ptr<fabric::Fabric>(std::move(watched));
}

Result<membership::EpochProposerOptions> proposerOptions(const base::Config& config) {
  SLUICE_ASSIGN_OR_RETURN(const auto liveness, fabric::readLivenessOptions(config));
  membership::EpochProposerOptions options;
  // Within this time others that lost the member at the same moment have noticed it.
  options.aloneAfter = liveness.silenceLimit + 2 * liveness.interval;
  const int64_t fewest = config.integer(option::kMinMembers);
  if (fewest < 1) return Status(Code::kInvalidArgument, "min-members must be at least 1");
  options.fewestMembers = static_cast<size_t>(fewest);
  return options;
}

}  // namespace

bool wantsMembers(const base::Config& config) {
  return !config.text(option::kMembers).empty();
}

Result<std::unique_ptr<membership::MemberChannel>> joinMembers(const JoiningMember& joining) {
  SLUICE_RETURN_IF_ERROR(checkSettings(joining));
  SLUICE_ASSIGN_OR_RETURN(const auto proposer, proposerOptions(joining.config));
  SLUICE_ASSIGN_OR_RETURN(auto listener, fabric::TcpListener::open(joining.address));
  const Member self{.id = membership::MemberId::random(),
                    .host = fmt::format("{} (rank {} at the start)", net::hostName(), joining.rank),
                    .address = listener.address().toString(),
                    .since = Step{0},
                    .came = membership::wallTimeNow()};
  SLUICE_ASSIGN_OR_RETURN(
      const auto notes,
      joining.gather("members/notes", encodeNote(self, membership::Nonce::random())));
  SLUICE_ASSIGN_OR_RETURN(const FirstMembers everybody, decodeNotes(notes));

  std::unique_ptr<membership::Membership> membership;
  Status made;
  SLUICE_RETURN_IF_ERROR(fabric::runAndWait(joining.loop, [&] {
    auto store = membership::makeEtcdMembership(
        joining.loop, membership::etcdSettings(joining.config),
        {.job = joining.config.text(option::kJob), .key = joining.storeKey});
    made = store.status();
    if (store.isOk()) membership = *std::move(store);
  }));
  // Whatever happens, the membership is destroyed on the loop.
  const auto endOnLoop = [&](const Status& why) {
    fabric::runBeforeFreeing(joining.loop, [&] { membership.reset(); });
    return why;
  };

  Result<StoredEpoch> first = Status(Code::kCancelled, "rank 0 has not written it");
  if (made.isOk() && joining.rank == Rank{0}) {
    EpochRecord record{.number = Epoch{0},
                       .members = everybody.members,
                       .firstStep = Step{0},
                       .lost = {},
                       .why = "the job begins",
                       .proposer = self.id,
                       .nonce = everybody.nonce,
                       .run = everybody.nonce,
                       .proposed = membership::wallTimeNow()};
    first = Entrance(joining, *membership).writeFirst(std::move(record));
  }
  // Everybody hears of an error of any rank. Rank 0 has written when it answers here.
  Status own = made;
  if (own.isOk() && joining.rank == Rank{0}) own = first.status();
  if (const Status agreed = hearOutcomes(joining, "members/begun", own); !agreed.isOk())
    return endOnLoop(agreed);
  if (joining.rank != Rank{0}) first = Entrance(joining, *membership).readFirst(everybody.nonce);
  // The first word of a member makes the others watch it and be watched. A member that still waits
  // for the store would be silent, and lost.
  if (const Status agreed = hearOutcomes(joining, "members/read", first.status()); !agreed.isOk())
    return endOnLoop(agreed);

  Result<std::unique_ptr<membership::MemberChannel>> started = Status(Code::kCancelled, "");
  SLUICE_RETURN_IF_ERROR(fabric::runAndWait(joining.loop, [&] {
    // The announcement is for people who look at the store, so a failure is not an error of the
    // job.
    membership->announce(self, kPatienceWithStore, [](const Status& status) {
      if (!status.isOk())
        log("session").warn("'sluice members' does not show this rank: {}", status.message());
    });
    started = membership::MemberChannel::start(
        joining.loop, std::move(membership), *first, joining.rank, proposer,
        [&](fabric::Receiver& receiver) {
          return makeMembersFabric(joining, everybody.members, std::move(listener), receiver);
        });
  }));
  return started;
}

}  // namespace sluice::session
