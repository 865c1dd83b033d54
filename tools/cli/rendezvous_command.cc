// sluice rendezvous check: checks that all ranks find each other. A launcher starts it on every
// rank, as it would start training.
#include <unistd.h>

#include <chrono>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include <sluice/base/log.h>
#include <sluice/base/net/address.h>
#include <sluice/base/net/epoll_loop.h>
#include <sluice/base/options.h>
#include <sluice/base/text.h>
#include <sluice/join/rendezvous/rendezvous.h>
#include <tools/cli/commands.h>
#include <tools/cli/program.h>
#include <tools/cli/table.h>

namespace sluice::cli {
namespace {

using rendezvous::Agreement;
using rendezvous::Rendezvous;
using Notes = std::vector<std::string>;

// Prints the notes, "HOST PID ADDRESS" of each rank, in rank order.
void printRanks(const Notes& notes, bool asJson) {
  Table table({"rank", "host", "pid", "address"});
  for (size_t rank = 0; rank < notes.size(); ++rank) {
    const auto first = notes[rank].find(' ');
    const auto second = notes[rank].find(' ', first + 1);
    table.addRow({std::to_string(rank), base::printable(notes[rank].substr(0, first)),
                  base::printable(notes[rank].substr(first + 1, second - first - 1)),
                  base::printable(notes[rank].substr(second + 1))});
  }
  table.print(asJson);
}

Result<int> check(const base::Config& config, bool asJson) {
  SLUICE_ASSIGN_OR_RETURN(const auto launch, rendezvous::readLaunch(base::processEnvironment()));
  base::setLogPrefix(fmt::format("rank {}", index(launch.rank)));
  net::EpollLoop loop;
  const TimePoint begun = loop.now();
  SLUICE_RETURN_IF_ERROR(loop.status());
  SLUICE_ASSIGN_OR_RETURN(
      const auto master,
      rendezvous::findMaster(launch, loop.clock(), config.duration(option::kRendezvousTimeout)));
  SLUICE_ASSIGN_OR_RETURN(auto meeting, Rendezvous::start(loop, config, launch, master,
                                                          Agreement(config, launch.worldSize)));
  std::optional<Result<Notes>> everyone;
  Duration took{};
  const std::string note =
      fmt::format("{} {} {}", net::hostName(), ::getpid(), meeting->interface().address.host());
  loop.post([&] {
    meeting->join(note, [&](Result<Notes> notes) {
      took = loop.now() - begun;
      everyone = std::move(notes);
      meeting->leave(std::chrono::seconds(10), [&] { loop.stop(); });
    });
  });
  loop.run();
  meeting.reset();
  if (!everyone->isOk()) return everyone->status();
  if (launch.rank == Rank{0}) {
    printRanks(**everyone, asJson);
    fmt::print(stderr, "all {} ranks met in {:.2f} s\n", launch.worldSize, base::seconds(took));
  }
  return 0;
}

}  // namespace

void addRendezvousCommand(Program& program, CLI::App& root) {
  CLI::App* group =
      program.addCommand(root, "rendezvous", "How the ranks of a job find each other",
                         {"torchrun --nproc-per-node 4 --no-python sluice rendezvous check"});
  CLI::App* check = program.addCommand(
      *group, "check",
      "Meet as a training job would and print who is here: does the cluster see itself?",
      {"torchrun --nnodes 2 --nproc-per-node 4 ... --no-python sluice rendezvous check",
       "MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 RANK=0 WORLD_SIZE=2 sluice rendezvous check"});
  auto asJson = std::make_shared<bool>(false);
  check->add_flag("--json", *asJson, "Rank 0 prints JSON instead of a table");
  program.addOption(check, option::kIface);
  program.addOption(check, option::kInsecure);
  program.addOption(check, option::kJobKeyFile);
  program.addOption(check, option::kRendezvousTimeout);
  program.onRun(check,
                [asJson](const base::Config& config) { return cli::check(config, *asJson); });
}

}  // namespace sluice::cli
