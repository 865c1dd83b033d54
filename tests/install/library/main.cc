// Two processes that train ten steps together, with the installed headers and library alone.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <sluice/sluice.h>

namespace {

constexpr int kSteps = 10;

template <typename T>
T valueOrExit(sluice::Result<T> result) {
  if (result.isOk()) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.status().toString().c_str());
  std::_Exit(1);
}

void exitOnError(const sluice::Status& status) {
  if (status.isOk()) return;
  std::fprintf(stderr, "%s\n", status.toString().c_str());
  std::_Exit(1);
}

// Rank 0 listens on a free port and tells it to rank 1 through the pipe.
std::unique_ptr<sluice::Job> join(int rank, const int pipe[2]) {
  uint16_t port = 0;
  if (rank == 1 && ::read(pipe[0], &port, sizeof(port)) != sizeof(port)) std::_Exit(1);
  const sluice::Config config = valueOrExit(sluice::Config::read({{"log", "warn"}}, {}));
  return valueOrExit(sluice::Job::join(
      config, {.environment = {{"RANK", std::to_string(rank)},
                               {"WORLD_SIZE", "2"},
                               {"MASTER_ADDR", "127.0.0.1"},
                               {"MASTER_PORT", std::to_string(port)}},
               .published = [&](uint16_t taken) {
                 const bool isTold = ::write(pipe[1], &taken, sizeof(taken)) == sizeof(taken);
                 return isTold ? sluice::Status() : sluice::Status(sluice::Code::kInternal, "pipe");
               }}));
}

int train(int rank, const int pipe[2]) {
  const auto job = join(rank, pipe);
  std::vector<float> gradient(1000);
  std::vector<float> parameters(1000, 1.0F);
  const auto session = valueOrExit(sluice::Session::open(
      *job, {.model = {{{"weight", parameters.size(), sluice::DType::kF32}}},
             .memory = {{.gradient = std::as_bytes(std::span(gradient)),
                         .result = std::as_writable_bytes(std::span(parameters))}},
             .update = "sgd:lr=0.5"}));
  constexpr sluice::TensorId kWeight{0};
  for (int step = 0; step < kSteps; ++step) {
    exitOnError(session->wait(kWeight));
    for (float& value : gradient) value = rank == 0 ? 1.0F : 3.0F;  // the mean is 2
    exitOnError(session->gradientReady(kWeight));
  }
  exitOnError(session->waitAll());
  exitOnError(session->leave());
  for (const float value : parameters) {
    if (value != 1.0F - kSteps) {
      std::fprintf(stderr, "rank %d has %g in the place of %g\n", rank, value, 1.0 - kSteps);
      return 1;
    }
  }
  std::printf("rank %d of %u has trained %d steps\n", rank, job->worldSize(), kSteps);
  return 0;
}

}  // namespace

int main() {
  int pipe[2];
  if (::pipe(pipe) != 0) return 1;
  const pid_t other = ::fork();
  if (other == 0) return train(1, pipe);
  const int own = train(0, pipe);
  int status = 0;
  ::waitpid(other, &status, 0);
  return own == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
}
