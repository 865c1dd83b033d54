// The namespaces around a lab, in which the names of its network namespaces are known.
//
// For root the realm is the machine itself. A lab of an ordinary user has a realm of its own: a user
// namespace, in which the user has all rights, and a mount namespace with a /run/netns of its own. A
// small process, the keeper, holds them, and the whole lab vanishes with it. The keeper holds a lock
// on a file as long as it lives. The kernel names the holder of a lock, so that no process that was
// given the same id later can be taken for the keeper.
//
// Any thread may call.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>

#include <sluice/base/net/fd.h>
#include <sluice/base/status.h>

namespace sluice::lab {

class Realm final {
 public:
  static Realm ofMachine();

  // Starts a keeper that locks `file`. It ends by itself when the other end of the pipe `lifeline`
  // is closed; -1: it stays until end(). Returns kPermissionDenied if the machine does not let users
  // make namespaces.
  static Result<Realm> make(const std::filesystem::path& file, int lifeline);

  // Returns the realm whose keeper holds `file`; empty if there is none.
  static Result<std::optional<Realm>> find(const std::filesystem::path& file);

  // The directory that holds the network namespaces by name, as seen from here.
  const std::filesystem::path& names() const { return names_; }

  // Moves the calling process into the user namespace, for good; the programs that it becomes keep
  // all rights there. Async-signal-safe; returns false and leaves errno on failure. REQUIRES: no
  // threads.
  bool enter() const;

  // As enter(), and to where `ip` knows the names and may make networks.
  bool enterWithMounts() const;

  // Ends the keeper. REQUIRES: !isMachine().
  Status end() const;

  bool isMachine() const { return !keeper_.valid(); }

 private:
  Realm() = default;

  std::filesystem::path names_;
  pid_t pid_ = -1;
  net::Fd keeper_;         // its process; invalid: this is the machine's own realm
  bool isInside_ = false;  // this process runs in the lab, and nobody can enter twice
};

}  // namespace sluice::lab
