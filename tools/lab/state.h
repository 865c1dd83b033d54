// The state of a lab between two commands: a JSON file per lab, written before anything is made, so
// that the remains of a killed `up` can be found and removed.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <sluice/base/status.h>
#include <tools/lab/layout.h>
#include <tools/lab/scripts.h>

namespace sluice::lab {

struct State {
  Layout layout;
  bool complete = false;    // false from the intent until everything is there
  std::vector<Rate> rates;  // by host
  Faults faults;
  friend bool operator==(const State&, const State&) = default;
};

std::string toJson(const State& state);
Result<State> stateFromJson(const std::string& text);

// The files of all labs, in one directory. Callers take turns by a lock (Lab holds it).
class StateStore final {
 public:
  explicit StateStore(std::filesystem::path directory) : directory_(std::move(directory)) {}

  const std::filesystem::path& directory() const { return directory_; }
  Result<State> read(const std::string& lab) const;  // kNotFound if there is no such lab
  Status write(const State& state) const;            // all or nothing
  // Removes all files of the lab: a lab's name holds no dot, and the names of its files go on with
  // one.
  Status remove(const std::string& lab) const;
  std::vector<std::string> labs() const;  // sorted

 private:
  std::filesystem::path fileOf(const std::string& lab) const {
    return directory_ / (lab + ".json");
  }
  std::filesystem::path draftOf(const std::string& lab) const {
    return directory_ / ("." + lab + ".draft");
  }

  std::filesystem::path directory_;
};

}  // namespace sluice::lab
