#include <tools/bench/goodput.h>

#include <future>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace sluice::bench {
namespace {

constexpr auto kLimit = std::chrono::seconds(20);

Status failed(std::string_view why) {
  return {Code::kUnavailable, fmt::format("iperf3 could not measure the lab: {}", why)};
}

// Runs the command on one host; `onLine` gets what it prints to stdout.
Status runOn(const lab::Lab& lab, int host, std::vector<std::string> command,
             const std::function<void(std::string_view)>& onLine) {
  std::string lastError;
  lab::RunOptions options;
  options.command = std::move(command);
  options.hosts = {host};
  options.timeout = kLimit;
  options.onLine = [&](int, lab::Stream stream, std::string_view line) {
    if (stream == lab::Stream::kOut) return onLine(line);
    lastError = line;
  };
  SLUICE_ASSIGN_OR_RETURN(const int exitCode, lab.run(std::move(options)));
  return exitCode == 0 ? base::ok() : failed(fmt::format("exit code {} {}", exitCode, lastError));
}

}  // namespace

Result<Rate> measureGoodput(const lab::Lab& lab) {
  SLUICE_ASSIGN_OR_RETURN(const lab::State state, lab.state());
  std::promise<void> listening;
  auto isListening = listening.get_future();
  auto server = std::async(std::launch::async, [&lab, &listening] {
    bool told = false;
    return runOn(lab, 0, {"iperf3", "--server", "--one-off", "--forceflush"},
                 [&](std::string_view line) {
                   if (told || !line.starts_with("Server listening")) return;
                   told = true;
                   listening.set_value();
                 });
  });
  if (isListening.wait_for(kLimit) != std::future_status::ready) {
    const Status ended = server.get();
    return ended.isOk() ? failed("the server did not listen") : ended;
  }
  std::string json;
  const Status measured = runOn(lab, 1,
                                {"iperf3", "--client", lab::hostAddress(state.layout.subnet, 0),
                                 "--time", "2", "--omit", "1", "--json"},
                                [&](std::string_view line) { json += line; });
  const Status served = server.get();
  SLUICE_RETURN_IF_ERROR(measured);
  SLUICE_RETURN_IF_ERROR(served);
  return parseIperf(json);
}

Result<Rate> parseIperf(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const nlohmann::json::json_pointer where("/end/sum_received/bits_per_second");
  if (json.is_discarded() || !json.contains(where) || !json[where].is_number()) {
    return failed(json.is_object() && json.contains("error") ? json["error"].dump()
                                                             : "unknown output");
  }
  const double bits = json[where].get<double>();
  if (!(bits >= 1)) return failed("nothing has arrived");
  return Rate{static_cast<uint64_t>(bits)};
}

}  // namespace sluice::bench
