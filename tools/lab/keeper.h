// The process that holds the namespaces of an ordinary user's lab (realm.h). Only Realm uses this
// file.
#pragma once

#include <filesystem>
#include <string>

#include <sluice/base/status.h>

namespace sluice::lab {

struct KeeperOptions {
  std::filesystem::path file;  // the keeper locks it
  std::string names;           // the directory for names of network namespaces: /run/netns
  int lifeline = -1;           // the keeper ends at the end of this pipe, if not -1
};

// Returns when the namespaces are there and the lock is held.
Status startKeeper(const KeeperOptions& options);

}  // namespace sluice::lab
