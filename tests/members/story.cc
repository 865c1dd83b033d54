// members_story ADDRESS JOB: begins a job of three members in etcd, loses the second one at step 120,
// and stays announced as the first one until its input ends. For tests of `sluice members`.
#include <cstdio>
#include <thread>

#include <sluice/join/membership/etcd/etcd_membership.h>

namespace sluice::membership {
namespace {

constexpr Duration kPatience = std::chrono::seconds(20);

Member memberOf(int number) {
  return {.id = MemberId::random(),
          .host = "host" + std::to_string(number),
          .address = "10.0.0." + std::to_string(number) + ":4000",
          .since = Step{0},
          .came = wallTimeNow()};
}

EpochRecord recordOf(uint32_t number, const std::vector<Member>& members) {
  EpochRecord record;
  record.number = Epoch{number};
  record.members = members;
  record.proposer = members.front().id;
  record.nonce = Nonce::random();
  record.run = record.nonce;
  record.proposed = wallTimeNow();
  return record;
}

int fail(const Status& status) {
  std::fprintf(stderr, "%s\n", status.toString().c_str());
  return 1;
}

int tell(const char* address, const char* job) {
  net::EpollLoop loop;
  auto made = makeEtcdMembership(loop, {.address = address}, {.job = job});
  if (!made.isOk()) return fail(made.status());
  const std::vector<Member> members{memberOf(0), memberOf(1), memberOf(2)};
  EpochRecord next = recordOf(1, {members[0], members[2]});
  next.firstStep = Step{120};
  next.lost = {members[1]};
  next.why = "rank 1 is lost: nothing heard for 2.1 s";
  Status status;
  const auto end = [&](const Status& why) {
    status = why;
    loop.post([&] {
      made->reset();
      loop.stop();
    });
  };
  std::thread input;
  loop.post([&] {
    Membership& membership = **made;
    membership.announce(members[0], kPatience, [&](const Status& announced) {
      if (!announced.isOk()) return end(announced);
      membership.begin(recordOf(0, members), kPatience, [&](const Result<StoredEpoch>& first) {
        if (!first.isOk()) return end(first.status());
        membership.replace(*first, next, kPatience, [&](const Result<StoredEpoch>& second) {
          if (!second.isOk()) return end(second.status());
          std::puts("told");
          std::fflush(stdout);
          input = std::thread([&] {
            while (std::getchar() != EOF) {
            }
            loop.post([&] { end(base::ok()); });
          });
        });
      });
    });
  });
  loop.run();
  if (input.joinable()) input.join();
  return status.isOk() ? 0 : fail(status);
}

}  // namespace
}  // namespace sluice::membership

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "members_story ADDRESS JOB\n");
    return 2;
  }
  return sluice::membership::tell(argv[1], argv[2]);
}
