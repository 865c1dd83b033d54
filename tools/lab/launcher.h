// Starts the ranks of a job in a lab and stays with them to the end.
//
// All ranks live in one PID namespace. Its first process only waits for the launcher: when the
// launcher ends, in whatever way, that process ends too, and the kernel then ends everything in the
// namespace, children of children included. Process ids inside therefore differ from those seen
// outside; `sluice lab status` shows the outside ones.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/base/clock.h>
#include <sluice/base/status.h>
#include <tools/lab/realm.h>

namespace sluice::lab {

enum class Stream { kOut, kError };

struct RunOptions {
  std::vector<std::string> command;
  std::vector<int> hosts;  // empty: all without etcd; ranks are numbered in this order
  int perHost = 1;         // processes on each host
  Duration timeout{0};     // 0: no limit
  Duration grace = std::chrono::seconds(5);  // between being told to end and being killed
  uint16_t masterPort = 29500;
  std::map<std::string, std::string> environment;  // added to ours and to that of this process
  // Passes INT, TERM, HUP, QUIT, USR1 and USR2 on to the ranks; a second INT or TERM kills them.
  bool forwardSignals = false;
  // Receives whole lines of the ranks' output, in the order they come. REQUIRES: it is set.
  std::function<void(int rank, Stream stream, std::string_view line)> onLine;
  // Receives messages of the launcher itself; may be empty.
  std::function<void(std::string_view message)> onEvent;
};

// One process to start: its network, and the variables added to its environment.
struct Seat {
  int networkNamespace = -1;
  std::map<std::string, std::string> environment;
};

inline constexpr int kTimeoutExitCode = 124;

// Runs the command once per seat (rank = index). Returns 0 if all ranks end well, else the exit
// code of the first that does not (128 + n for one ended by signal n), and kTimeoutExitCode after
// the time limit; the others are then told to end, and killed after the grace time. The calling
// thread waits.
Result<int> launch(const Realm& realm, const std::vector<Seat>& seats, const RunOptions& options);

}  // namespace sluice::lab
