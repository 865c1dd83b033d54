#include <tools/trace/torch_profile.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sluice/base/json.h>

namespace sluice::trace {
namespace {

using nlohmann::json;

// Viewers show about this much, and a file is read in parts, so only time limits it here.
constexpr uintmax_t kMostFileBytes = uintmax_t{1} << 30;
// 2096: sums and differences of earlier times fit into 64 bits.
constexpr double kLatestNanoseconds = 4e18;

// The file is no profile; the text says why.
class NoProfile final : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The file ends in the middle, or is not JSON; the text says where.
class BrokenText final : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

double numberAt(const json& event, const char* key, uint64_t number) {
  const auto found = event.find(key);
  if (found == event.end() || !found->is_number())
    throw NoProfile(fmt::format("its event {} has no number '{}'", number, key));
  const double value = found->get<double>();
  if (std::abs(value) > kLatestNanoseconds / 1000)
    throw NoProfile(fmt::format("the time '{}' of its event {} is not possible", key, number));
  return value;
}

const std::string& textAt(const json& event, const char* key, uint64_t number) {
  const auto found = event.find(key);
  if (found == event.end() || !found->is_string())
    throw NoProfile(fmt::format("its event {} has no text '{}'", number, key));
  return found->get_ref<const std::string&>();
}

// Finds the process and thread of an event: numbers for those of the machine and of its devices,
// texts for those of the profiler itself.
std::string threadOf(const json& event) {
  return event.value("pid", json()).dump() + " " + event.value("tid", json()).dump();
}

Duration microsecondsAt(const json& event, const char* key, uint64_t number) {
  return Duration(std::llround(numberAt(event, key, number) * 1000));
}

// Returns true for events with a time that belong to a thread: activities, moments, arrows, counters.
bool isShown(const json& event, uint64_t number) {
  const std::string& phase = textAt(event, "ph", number);
  return phase.size() == 1 &&
         std::string_view("XBEiIbnestfC").find(phase) != std::string_view::npos;
}

using TakeJson = std::function<void(json& event, uint64_t number)>;

// Reads a file event by event, so that a large one needs little memory: one event is held as a
// whole, and those of the profiler have some dozen values. Returns what stands beside the events.
// Throws NoProfile, or BrokenText.
json readProfile(std::istream& file, const TakeJson& take) {
  auto beside =
      base::readJsonParts(file, {.list = "traceEvents",
                                 .kept = {"baseTimeNanoseconds", "distributedInfo"},
                                 .take = [&](json& event, uint64_t number, const json&) -> Status {
                                   if (!event.is_object())
                                     throw NoProfile("one of its events is not a JSON object");
                                   take(event, number);
                                   return base::ok();
                                 }});
  if (beside.isOk()) return *std::move(beside);
  const std::string& why = beside.status().message();
  if (why.starts_with(base::kNotJson)) throw BrokenText(why);
  throw NoProfile(why);
}

// Returns true for a file of gzip, by its first bytes.
bool isCompressed(std::istream& file) {
  std::array<char, 2> start{};
  file.read(start.data(), start.size());
  file.clear();
  file.seekg(0);
  return start == std::array{'\x1f', '\x8b'};
}

// Runs work on a file; the error is one line without bytes of the file.
Status withFile(const std::string& path, const std::function<void(std::istream&)>& work) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (error) return base::fromErrno("cannot read " + path, error.value());
  if (!std::filesystem::is_regular_file(status))
    return {Code::kInvalidArgument, path + " is not a file; give the profile of one rank"};
  std::ifstream file(path, std::ios::binary);
  if (!file) return base::fromErrno("cannot read " + path);
  if (std::filesystem::file_size(path, error) > kMostFileBytes) {
    return {Code::kInvalidArgument,
            path + " has more than 1 GiB; profile fewer steps, by torch.profiler.schedule()"};
  }
  if (isCompressed(file)) {
    return {Code::kInvalidArgument,
            fmt::format("{0} is compressed; unpack it with 'gunzip {0}'", path)};
  }
  try {
    work(file);
    return base::ok();
  } catch (const BrokenText& broken) {
    if (file.eof())
      return {Code::kInvalidArgument, path + " ends in the middle; export the profile again"};
    return {Code::kInvalidArgument,
            fmt::format("{}: {}; if that is a name with quotes, choose another name and profile "
                        "again",
                        path, broken.what())};
  } catch (const NoProfile& other) {
    return {Code::kInvalidArgument,
            fmt::format("{} is not a trace of torch.profiler: {}; give a file that "
                        "prof.export_chrome_trace() wrote",
                        path, other.what())};
  } catch (const json::exception&) {  // as of the number 1e999
    return {Code::kInvalidArgument,
            path + " has a number that is not possible; export the profile again"};
  }
}

// Collects what must be known of all events before the first one can be written.
class Survey final {
 public:
  void take(const json& event, uint64_t number) {
    if (textAt(event, "ph", number) == "M") return takeMetadata(event);
    if (!isShown(event, number)) return;
    const Duration at = microsecondsAt(event, "ts", number);
    const bool lasts = event.contains("dur");
    const Duration length = lasts ? microsecondsAt(event, "dur", number) : Duration{};
    if (length < Duration{})
      throw NoProfile(fmt::format("its event {} ends before it begins", number));
    textAt(event, "name", number);
    const bool isFirst = profile_.events == 0;
    profile_.first = isFirst ? at : std::min(profile_.first, at);
    profile_.last = isFirst ? at + length : std::max(profile_.last, at + length);
    ++profile_.events;
    auto& thread = threadNamed(threadOf(event));
    if (thread.name.empty()) thread.name = nameWithoutMetadata(event.value("tid", json()));
  }

  // Returns the profile, given what stands beside the events.
  TorchProfile finish(const json& document) {
    const auto base = document.find("baseTimeNanoseconds");
    if (base == document.end() || !base->is_number_unsigned() ||
        base->get<double>() > kLatestNanoseconds)
      throw NoProfile("it has no time 'baseTimeNanoseconds', from which its events count");
    if (profile_.events == 0) throw NoProfile("it has no events");
    profile_.base = Duration(base->get<int64_t>());
    if (!isPossible(profile_.last) || !isPossible(profile_.last + profile_.base) ||
        profile_.first + profile_.base < Duration{})
      throw NoProfile("its events are of a year that is not possible");
    profile_.first += profile_.base;
    profile_.last += profile_.base;
    profile_.rank = rankIn(document);
    return std::move(profile_);
  }

 private:
  void takeMetadata(const json& event) {
    if (event.value("name", json()) != "thread_name") return;
    const auto args = event.find("args");
    if (args == event.end() || !args->is_object()) return;
    const auto name = args->find("name");
    if (name == args->end() || !name->is_string()) return;
    threadNamed(threadOf(event)).name = name->get<std::string>();
  }

  static std::string nameWithoutMetadata(const json& tid) {
    if (tid.is_number_integer()) return "thread " + tid.dump();
    const bool isNamed = tid.is_string() && tid != "";
    return isNamed ? tid.get<std::string>() : "torch.profiler";
  }

  static bool isPossible(Duration since) {
    return static_cast<double>(since.count()) <= kLatestNanoseconds;
  }

  TorchProfile::Thread& threadNamed(const std::string& key) {
    return profile_.threads.try_emplace(key, TorchProfile::Thread{profile_.threads.size()})
        .first->second;
  }

  static std::optional<Rank> rankIn(const json& document) {
    const auto job = document.find("distributedInfo");
    if (job == document.end() || !job->is_object()) return std::nullopt;
    const auto rank = job->find("rank");
    if (rank == job->end() || !rank->is_number_unsigned()) return std::nullopt;
    const auto number = rank->get<uint64_t>();
    if (number > UINT32_MAX) return std::nullopt;
    return Rank{static_cast<uint32_t>(number)};
  }

  TorchProfile profile_;
};

TorchEvent torchEventOf(json& event, const TorchProfile& profile, uint64_t number) {
  TorchEvent made;
  const auto thread = profile.threads.find(threadOf(event));
  if (thread == profile.threads.end()) throw NoProfile("it has changed since it was read first");
  made.track = thread->second.track;
  made.at = profile.base + microsecondsAt(event, "ts", number);
  if (const auto id = event.find("id"); id != event.end())
    made.id = event.value("cat", json()).dump() + " " + id->dump();
  // A moment of the whole file would be drawn over all ranks.
  if (event.contains("s")) event["s"] = "t";
  if (!event.contains("cat")) event["cat"] = "torch.profiler";
  for (const char* ours : {"pid", "tid", "ts", "id"}) event.erase(ours);
  const std::string text = event.dump(-1, ' ', false, json::error_handler_t::replace);
  made.members = text.substr(1, text.size() - 2);
  return made;
}

}  // namespace

Result<TorchProfile> readTorchProfile(const std::string& path) {
  TorchProfile profile;
  SLUICE_RETURN_IF_ERROR(withFile(path, [&](std::istream& file) {
    Survey survey;
    const json document =
        readProfile(file, [&](json& event, uint64_t number) { survey.take(event, number); });
    profile = survey.finish(document);
  }));
  profile.path = path;
  return profile;
}

Status forEachEvent(const TorchProfile& profile,
                    const std::function<void(const TorchEvent&)>& take) {
  return withFile(profile.path, [&](std::istream& file) {
    readProfile(file, [&](json& event, uint64_t number) {
      if (isShown(event, number)) take(torchEventOf(event, profile, number));
    });
  });
}

}  // namespace sluice::trace
