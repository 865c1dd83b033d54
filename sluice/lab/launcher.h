// Starts the ranks of a job in a lab and stays with them to the end.
//
// All of them live in one PID namespace whose first process does nothing but wait for us: when we
// end, in whatever way, it ends too, and the kernel ends everything inside with it, children of
// children included. Inside, process ids therefore differ from those seen outside; `sluice lab
// status` shows the outside ones.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/base/clock.h>
#include <sluice/base/status.h>

namespace sluice::lab {

enum class Stream { kOut, kError };

struct RunOptions {
  std::vector<std::string> command;
  std::vector<int> hosts;                    // empty: all; ranks are numbered in this order
  int perHost = 1;                           // processes on each
  Duration timeout{0};                       // 0: none
  Duration grace = std::chrono::seconds(5);  // between being told to end and being killed
  uint16_t masterPort = 29500;
  std::map<std::string, std::string> environment;  // besides ours and what this process has
  bool forwardSignals =
      false;  // INT, TERM, HUP, QUIT, USR1, USR2 go to the ranks; a second INT or TERM kills
  // Whole lines of the ranks' output, in the order they come. REQUIRES: set.
  std::function<void(int rank, Stream stream, std::string_view line)> onLine;
  std::function<void(std::string_view message)>
      onEvent;  // what run itself has to say; may be empty
};

// One process to be: its network and what its environment adds.
struct Seat {
  int networkNamespace = -1;
  std::map<std::string, std::string> environment;
};

inline constexpr int kTimeoutExitCode = 124;

// Runs the command once per seat (rank = index). Returns 0 if all ranks end well, else the exit
// code of the first that does not (128 + n for one ended by signal n), and kTimeoutExitCode after
// the time limit; the others are then told to end, and killed after the grace time. The calling
// thread waits.
Result<int> launch(const std::vector<Seat>& seats, const RunOptions& options);

}  // namespace sluice::lab
