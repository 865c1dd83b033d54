#include <tools/bench/yardstick.h>

#include <functional>
#include <future>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sluice/base/json.h>
#include <sluice/base/text.h>

namespace sluice::bench {
namespace {

constexpr auto kLimit = std::chrono::seconds(60);

struct Program {
  std::vector<std::string> command;
  std::vector<int> hosts;
  std::map<std::string, std::string> environment{};
};

Status iperfFailed(std::string_view why) {
  return {Code::kUnavailable, fmt::format("iperf3 could not measure the lab: {}", why)};
}

using OnLine = std::function<void(int rank, std::string_view line)>;

Status run(const lab::Lab& lab, const Program& program, const OnLine& onLine) {
  std::string lastError;
  lab::RunOptions options;
  options.command = program.command;
  options.hosts = program.hosts;
  options.environment = program.environment;
  options.timeout = kLimit;
  options.onLine = [&](int rank, lab::Stream stream, std::string_view line) {
    if (stream == lab::Stream::kError) lastError = line;
    onLine(rank, line);
  };
  SLUICE_ASSIGN_OR_RETURN(const int exitCode, lab.run(std::move(options)));
  if (exitCode == 0) return base::ok();
  return {Code::kUnavailable, fmt::format("{} ended with exit code {} {}", program.command.front(),
                                          exitCode, lastError)};
}

// Starts servers, waits until each has printed a line with `listening` in it, runs the clients to
// their end and the servers to theirs. Returns what each client has printed.
Result<std::vector<std::string>> serve(const lab::Lab& lab, const Program& servers,
                                       std::string_view listening, const Program& clients) {
  std::promise<void> ready;
  auto isReady = ready.get_future();
  size_t listeners = 0;
  auto serving = std::async(std::launch::async, [&] {
    return run(lab, servers, [&](int, std::string_view line) {
      if (line.find(listening) != std::string_view::npos && ++listeners == servers.hosts.size()) {
        ready.set_value();
      }
    });
  });
  if (isReady.wait_for(kLimit) != std::future_status::ready) {
    const Status ended = serving.get();
    return ended.isOk()
               ? Status(Code::kUnavailable, servers.command.front() + " did not begin to listen")
               : ended;
  }
  std::vector<std::string> printed(clients.hosts.size());
  const Status ran = run(lab, clients, [&](int rank, std::string_view line) {
    printed[static_cast<size_t>(rank)].append(line).append("\n");
  });
  const Status served = serving.get();
  SLUICE_RETURN_IF_ERROR(ran);
  SLUICE_RETURN_IF_ERROR(served);
  return printed;
}

}  // namespace

Result<Rate> measureGoodput(const lab::Lab& lab, const std::vector<Flow>& flows, Duration time) {
  SLUICE_ASSIGN_OR_RETURN(const lab::State state, lab.state());
  Program servers{.command = {"iperf3", "--server", "--one-off", "--forceflush"}, .hosts = {}};
  // Every client runs the same command: the one for rank r takes the r-th address.
  Program clients{
      .command = {"sh", "-c",
                  fmt::format("shift $RANK; exec iperf3 --client \"$1\" --time {} --omit 1 --json",
                              base::seconds(time)),
                  "sh"},
      .hosts = {}};
  for (const auto& [from, to] : flows) {
    servers.hosts.push_back(to);
    clients.hosts.push_back(from);
    clients.command.push_back(lab::hostAddress(state.layout.subnet, to));
  }
  const auto printed = serve(lab, servers, "Server listening", clients);
  if (!printed.isOk()) return iperfFailed(printed.status().message());
  Rate total{};
  for (const std::string& json : *printed) {
    SLUICE_ASSIGN_OR_RETURN(const Rate rate, parseIperf(json));
    total.bitsPerSecond += rate.bitsPerSecond;
  }
  return total;
}

Result<Rate> parseIperf(std::string_view text) {
  const auto parsed = base::parseJson(text);
  if (!parsed.isOk()) return iperfFailed("unknown output");
  const nlohmann::json& json = *parsed;
  const nlohmann::json::json_pointer where("/end/sum_received/bits_per_second");
  if (!json.contains(where) || !json[where].is_number()) {
    return iperfFailed(json.is_object() && json.contains("error") ? json["error"].dump()
                                                                  : "unknown output");
  }
  const double bits = json[where].get<double>();
  if (!(bits >= 1)) return iperfFailed("nothing has arrived");
  return Rate{static_cast<uint64_t>(bits)};
}

Result<double> ucxGbit(const lab::Lab& lab, Flow flow, size_t messageBytes, size_t messages) {
  SLUICE_ASSIGN_OR_RETURN(const lab::State state, lab.state());
  // Use stdbuf: the server's first words must come while it waits, not when it ends.
  const Program server{.command = {"stdbuf", "-oL", "ucx_perftest"},
                       .hosts = {flow.second},
                       .environment = {{"UCX_TLS", "tcp"}}};
  const Program client{
      .command = {"ucx_perftest", lab::hostAddress(state.layout.subnet, flow.second), "-t",
                  "ucp_am_bw", "-s", std::to_string(messageBytes), "-n", std::to_string(messages),
                  "-w", std::to_string(messages / 10), "-f"},
      .hosts = {flow.first},
      .environment = {{"UCX_TLS", "tcp"}}};
  SLUICE_ASSIGN_OR_RETURN(const auto printed, serve(lab, server, "Waiting for connection", client));
  return parseUcxPerftest(printed.front());
}

Result<double> parseUcxPerftest(std::string_view text) {
  // The last line: messages, three times in us, then MiB/s of the last interval and overall, then
  // messages/s.
  constexpr size_t kFields = 8;
  constexpr size_t kOverall = 5;
  constexpr double kGbitPerMebibyte = 8.0 * (1 << 20) * 1e-9;
  std::vector<std::string_view> last;
  for (const auto line : base::split(text, '\n')) {
    std::vector<std::string_view> fields;
    for (const auto field : base::split(line, ' ')) {
      if (!base::trim(field).empty()) fields.push_back(base::trim(field));
    }
    if (fields.size() == kFields && base::parseNumber(fields[kOverall]).isOk()) last = fields;
  }
  if (last.empty())
    return Status(Code::kUnavailable,
                  fmt::format("ucx_perftest printed '{}' instead of its figures", text));
  SLUICE_ASSIGN_OR_RETURN(const double mebibytes, base::parseNumber(last[kOverall]));
  return mebibytes * kGbitPerMebibyte;
}

}  // namespace sluice::bench
