#include <sluice/observe/flight/flight_recorder.h>

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include <sluice/base/log.h>
#include <sluice/base/options.h>
#include <sluice/base/text.h>
#include <sluice/base/thread.h>

namespace sluice::flight {
namespace {

// A failure is often followed by others. The first ones are saved at once: a launcher may kill this
// process soon. Of many, only some write the file again.
constexpr int kSavedAtOnce = 4;
constexpr Duration kBetweenSaves = std::chrono::seconds(1);

constexpr uint64_t kMostBytes = uint64_t{1} << 30;  // what a reader takes

TimePoint now() {
  return base::RealClock().now();
}

// Returns the words that every text about a file ends with.
std::string readWith(const std::string& path) {
  // All ranks of a host have the same path up to the rank.
  const size_t pid = path.rfind('-');
  const size_t rank = pid == std::string::npos ? pid : path.rfind('-', pid - 1);
  return fmt::format("sluice trace flight {}-*", path.substr(0, rank));
}

int signalNamed(std::string_view name) {
  if (name == "SIGUSR1") return SIGUSR1;
  if (name == "SIGUSR2") return SIGUSR2;
  if (name == "SIGQUIT") return SIGQUIT;
  return 0;
}

}  // namespace

std::string flightFileName(const About& about, int pid) {
  constexpr size_t kMostOfJob = 40;  // the user chose the name; it must not lead to another folder
  std::string job = about.job.substr(0, kMostOfJob);
  std::ranges::replace_if(
      job, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.'; },
      '_');
  return fmt::format("sluice-flight-{}-{}-{}", job.empty() ? "job" : job, about.rank, pid);
}

Result<std::unique_ptr<FlightRecorder>> FlightRecorder::begin(const base::Config& config,
                                                              const About& about) {
  const uint64_t wanted = config.bytes(option::kFlightBytes);
  if (wanted == 0) return std::unique_ptr<FlightRecorder>();
  const size_t bytes = std::clamp<uint64_t>(wanted, Ring::kLeastBytes, kMostBytes);
  // A process may have several jobs, one after another or beside each other.
  static std::atomic<uint32_t> begun{0};
  const uint32_t number = ++begun;
  std::string name = flightFileName(about, ::getpid());
  if (number > 1) name += fmt::format(".{}", number);
  SLUICE_ASSIGN_OR_RETURN(auto recorder, make(config.text(option::kFlightDir), name, about, bytes));
  const std::string& signal = config.text(option::kFlightSignal);
  if (const int named = signalNamed(signal); named != 0 && !CrashDump::saveOn(named))
    log("flight").warn("flight-signal does nothing: {} has a handler already, which stays", signal);
  return recorder;
}

Result<std::unique_ptr<FlightRecorder>> FlightRecorder::make(const std::string& folder,
                                                             const std::string& name,
                                                             const About& about, size_t bytes) {
  std::error_code error;
  if (!folder.empty()) {
    std::filesystem::create_directories(folder, error);  // a mistake shows when the file is made
    const std::string path = (std::filesystem::path(folder) / name).string();
    auto mapped = Ring::inFile(about, bytes, path);
    if (mapped.isOk()) {
      return std::unique_ptr<FlightRecorder>(
          new FlightRecorder(*std::move(mapped), path, /*isMapped=*/true));
    }
    log("flight").warn("flight-dir: {}; the recorder works without a mapped file",
                       mapped.status().message());
  }
  const auto temporary = std::filesystem::temp_directory_path(error);
  const std::string path = ((error ? std::filesystem::path("/tmp") : temporary) / name).string();
  SLUICE_ASSIGN_OR_RETURN(auto ring, Ring::inMemory(about, bytes));
  return std::unique_ptr<FlightRecorder>(
      new FlightRecorder(std::move(ring), path, /*isMapped=*/false));
}

FlightRecorder::FlightRecorder(std::unique_ptr<Ring> ring, std::string path, bool isMapped)
    : ring_(std::move(ring)), path_(std::move(path)), isMapped_(isMapped) {
  onCrash_.emplace(
      CrashTarget{.ring = ring_.get(),
                  .path = isMapped_ ? std::string() : path_,
                  .words = fmt::format("sluice: the last events of this rank are in {}; read them "
                                       "with: {}\n",
                                       path_, readWith(path_))});
}

FlightRecorder::~FlightRecorder() {
  saver_.with([](std::thread& saver) {
    if (saver.joinable()) saver.join();
  });
  if (hasFailed_) {
    save(/*isLast=*/true);
  } else {
    ring_->setState(RunState::kEnded);
    if (isMapped_) ::unlink(path_.c_str());
  }
  onCrash_.reset();
}

void FlightRecorder::note(std::string_view why, uint16_t session) {
  ring_->add({.kind = EventKind::kFailed,
              .session = session,
              .at = now(),
              .bytes = ring_->addText(base::printable(why))});
  ring_->setState(RunState::kFailed);
  hasFailed_ = true;
}

void FlightRecorder::failed(std::string_view why, uint16_t session) {
  note(why, session);
  save(/*isLast=*/false);
}

void FlightRecorder::failedSoon(std::string_view why, uint16_t session) {
  note(why, session);
  if (isSaverAtWork_.exchange(true)) return;  // what it does not write, the end does
  saver_.with([this](std::thread& saver) {
    if (saver.joinable()) saver.join();  // it has ended, or is about to
    saver = base::startThread("sluice-flight", [this] {
      save(/*isLast=*/false);
      isSaverAtWork_ = false;
    });
  });
}

void FlightRecorder::save(bool isLast) {
  saved_.with([this, isLast](Saved& saved) {
    const TimePoint at = now();
    const bool isOneOfMany = saved.count >= kSavedAtOnce && at - saved.last < kBetweenSaves;
    if (isOneOfMany && !isLast) return;
    saved.last = at;
    ++saved.count;
    if (!isMapped_) {
      ring_->setSaved(at);
      if (const int error = writeWords(path_.c_str(), ring_->words()); error != 0) {
        if (std::exchange(saved.isTold, true)) return;
        return log("flight").warn(
            "{}",
            base::fromErrno("the last events could not be saved in " + path_, error).message());
      }
    }
    if (std::exchange(saved.isTold, true)) return;
    log("flight").info("the last events of this rank are in {}; read them with: {}", path_,
                       readWith(path_));
  });
}

FlightRecorder::Meeting FlightRecorder::meetingBegins(std::string_view key) {
  const auto isDigit = [](char c) { return c >= '0' && c <= '9'; };
  size_t stem = key.size();
  constexpr size_t kMostDigits = 18;  // more would not fit the number
  while (stem > 0 && key.size() - stem < kMostDigits && isDigit(key[stem - 1])) --stem;
  Meeting meeting{.name = ring_->nameOf(base::printable(key.substr(0, stem)))};
  (void)std::from_chars(key.data() + stem, key.data() + key.size(), meeting.number);
  ring_->add({.kind = EventKind::kMeetingBegins,
              .at = now(),
              .step = meeting.number,
              .name = meeting.name,
              .slice = stem == key.size() ? 0U : 1U});
  return meeting;
}

void FlightRecorder::meetingEnds(const Meeting& meeting, const Status& status) {
  const uint32_t text = status.isOk() ? 0 : ring_->addText(base::printable(status.message()));
  ring_->add({.kind = status.isOk() ? EventKind::kMeetingEnds : EventKind::kMeetingFails,
              .at = now(),
              .step = meeting.number,
              .name = meeting.name,
              .bytes = text});
  if (status.code() == Code::kTimeout || status.code() == Code::kPeerLost) failed(status.message());
}

}  // namespace sluice::flight
