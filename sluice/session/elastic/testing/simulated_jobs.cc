// Runs simulated jobs by seed, and prints the seeds of those that go wrong. --help says more.
#include <charconv>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <sluice/base/log.h>
#include <sluice/session/elastic/testing/simulated_job.h>

namespace {

constexpr std::string_view kHelp =
    R"(Runs whole jobs on a simulated clock, each from a seed: members join, train, are lost, and leave.

  sluice_simulated_jobs --seeds FROM TO    runs these seeds
      --first                              ends with the first job that goes wrong
      --verbose                            prints every job, with its hash

A job goes wrong if two sides go on, if a step is lost, made twice or has other bits than in one
process, if members that have made all steps differ, or if a minute after the last fault a member
has neither left nor ended by name. Its seed repeats it. The exit code is 0 iff no job goes wrong.

Simulated is all from the fabric upwards. Left out: the rendezvous, doors, sockets and TLS, etcd and
its client (the store is in memory), Trainer and Session, the pulse, devices, and Python.
)";

struct Arguments {
  uint64_t from = 0;
  uint64_t to = 0;
  bool isFirstOnly = false;
  bool isVerbose = false;
};

std::optional<uint64_t> numberIn(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<Arguments> parse(const std::vector<std::string_view>& words) {
  Arguments arguments;
  bool hasSeeds = false;
  for (size_t w = 1; w < words.size(); ++w) {
    if (words[w] == "--first") {
      arguments.isFirstOnly = true;
    } else if (words[w] == "--verbose") {
      arguments.isVerbose = true;
    } else if (words[w] == "--seeds" && w + 2 < words.size()) {
      const auto from = numberIn(words[w + 1]);
      const auto to = numberIn(words[w + 2]);
      if (!from || !to || *from > *to) return std::nullopt;
      arguments.from = *from;
      arguments.to = *to;
      hasSeeds = true;
      w += 2;
    } else {
      return std::nullopt;
    }
  }
  return hasSeeds ? std::optional(arguments) : std::nullopt;
}

int run(const Arguments& arguments) {
  uint64_t wrong = 0;
  uint64_t jobs = 0;
  uint64_t epochs = 0;
  uint64_t messages = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (uint64_t seed = arguments.from; seed <= arguments.to; ++seed) {
    sluice::session::SimulatedJob job(seed);
    const sluice::Status status = job.run();
    ++jobs;
    epochs += job.epochs();
    messages += job.messages();
    if (arguments.isVerbose)
      fmt::print("{:016x} {} events, {}\n", job.hash(), job.events(), job.describe());
    if (status.isOk()) continue;
    ++wrong;
    fmt::print("seed {} went wrong: {}\n", seed, status.message());
    std::fflush(stdout);
    if (arguments.isFirstOnly) break;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  fmt::print("{} jobs, {} epochs after the first, {} messages, {} wrong, {:.1f} s\n", jobs, epochs,
             messages, wrong, took.count());
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  const auto arguments = parse(std::vector<std::string_view>(words, words + count));
  if (!arguments) {
    fmt::print("{}", kHelp);
    return count == 2 && std::string_view(words[1]) == "--help" ? 0 : 2;
  }
  if (!sluice::base::setLogLevels("off").isOk()) return 2;
  return run(*arguments);
}
