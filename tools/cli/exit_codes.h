// The exit codes of `sluice`. docs/command-line.md repeats this table; cli_test checks that it
// does.
#pragma once

#include <sluice/base/status.h>

namespace sluice::cli {

enum class ExitCode : int {
  kOk = 0,
  kFailed = 1,         // the command failed
  kUsage = 2,          // the command line or a configuration value is wrong
  kPermission = 3,     // needs root or user namespaces, or a key
  kUnavailable = 4,    // something outside is missing: a tool, a kernel module, a peer
  kFindings = 5,       // an examination has found a fault (sluice doctor)
  kTimeout = 124,      // a time limit was reached, as with timeout(1)
  kNoCommand = 127,    // neither a subcommand nor a program sluice-NAME
  kInterrupted = 130,  // ended by Ctrl-C
};

constexpr ExitCode exitCodeFor(Code code) {
  switch (code) {
    case Code::kOk: return ExitCode::kOk;
    case Code::kInvalidArgument: return ExitCode::kUsage;
    case Code::kPermissionDenied: return ExitCode::kPermission;
    case Code::kUnavailable: return ExitCode::kUnavailable;
    case Code::kTimeout: return ExitCode::kTimeout;
    case Code::kCancelled: return ExitCode::kInterrupted;
    case Code::kNotFound:
    case Code::kAlreadyExists:
    case Code::kPeerLost:
    case Code::kRefused:
    case Code::kDataLoss:
    case Code::kInternal: return ExitCode::kFailed;
  }
  return ExitCode::kFailed;
}

}  // namespace sluice::cli
