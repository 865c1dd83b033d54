// Every knob of sluice, declared once: its name, its possible values, its default and its help
// text.
//
// An option `stall-after` is the flag --stall-after, the variable SLUICE_STALL_AFTER and the key
// "stall-after" of a configuration file. config.h reads them; docs/configuration.md is generated
// from this list.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <sluice/base/option.h>
#include <sluice/base/status.h>

namespace sluice::base {

// The error of an address in `members` that has a user or a password in it. It does not repeat them.
inline constexpr std::string_view kNoUserInAddress =
    "an address of etcd servers has no '@': a user or password in it would be seen in logs; give "
    "members-user and members-password-file instead";

// Add an option here and in kAll in options.cc.
namespace option {
inline constexpr Option kAlgorithm =
    sameOnAllRanks({"algorithm", Kind::kText, "sluice",
                    "How ranks are kept in step ('sluice algorithms' lists them)"});
inline constexpr Option kBusyLimit = sameOnAllRanks(
    {"busy-limit", Kind::kDuration, "2min",
     "Give up on a rank that lives but whose loop has done one piece of work for this long"});
inline constexpr Option kCheckRanksEvery = sameOnAllRanks(
    {"check-ranks-every", Kind::kInteger, "0",
     "PyTorch: also compare all parameters and the optimizer's state after every so many steps; "
     "0: never"});
inline constexpr Option kCompareRanks = sameOnAllRanks(
    {"compare-ranks", Kind::kChoice, "error",
     "PyTorch: what happens when ranks take different steps or have different parameters, where "
     "the algorithm keeps them equal",
     "error|warn|off"});
inline constexpr Option kConfig{"config", Kind::kText, "", "Read options from this JSON file"};
inline constexpr Option kDebug{"debug", Kind::kText, "",
                               "What to watch over while training: gates (PyTorch parameters are "
                               "NaN while their gates are closed), "
                               "ranks (as check-ranks-every 100)"};
inline constexpr Option kEncrypt =
    sameOnAllRanks({"encrypt", Kind::kChoice, "auto",
                    "Encrypt what travels between ranks; auto: between hosts yes, on loopback "
                    "addresses no; integrity: "
                    "changed bytes are noticed, but others can read them (tcp)",
                    "auto|on|integrity|off"});
inline constexpr Option kFabric =
    sameOnAllRanks({"fabric", Kind::kChoice, "tcp",
                    "What moves the bytes: tcp, or ucx for RDMA and shared memory", "tcp|ucx"});
inline constexpr Option kFlightBytes{
    "flight-bytes", Kind::kBytes, "4194304",
    "Memory for the latest events of this rank, which are saved when the job goes wrong "
    "(docs/trace.md); 0: none"};
inline constexpr Option kFlightDir{
    "flight-dir", Kind::kText, "",
    "Keep the latest events in a file of this folder, which outlives a kill; empty: in memory"};
inline constexpr Option kFlightSignal{"flight-signal", Kind::kChoice, "none",
                                      "This signal saves the latest events, and training goes on; "
                                      "a handler of the program stays",
                                      "none|SIGUSR1|SIGUSR2|SIGQUIT"};
inline constexpr Option kIface{
    "iface", Kind::kText, "",
    "Use this network interface: a name (eth0) or a network (10.0.0.0/24) "
    "instead of the one that leads to rank 0"};
inline constexpr Option kCongestionControl{
    "congestion-control", Kind::kChoice, "cubic",
    "How TCP connections between ranks share a link: bbr is for long "
    "links that lose packets (where many send to one "
    "at once it is slower); machine: what the machine does by itself",
    "cubic|bbr|machine"};
inline constexpr Option kCredit{"credit", Kind::kBytes, "400000",
                                "Bytes that may be with the network: more keeps a long link busy, "
                                "less keeps urgency; sluice counts all destinations together, "
                                "other algorithms each on its own"};
// heartbeat-interval and silence-limit are the two halves of one promise: a rank that speaks more
// rarely than another rank expects is given up.
inline constexpr Option kHeartbeatInterval =
    sameOnAllRanks({"heartbeat-interval", Kind::kDuration, "250ms",
                    "How often a rank tells those it talks with that it lives"});
inline constexpr Option kInsecure{"insecure", Kind::kSwitch, "off",
                                  "Talk to other hosts without a job key: only on a network where "
                                  "nobody else can reach the ports"};
inline constexpr Option kJob = sameOnAllRanks(
    {"job", Kind::kText, "",
     "The name of this job among those whose members are agreed in the same etcd servers"});
inline constexpr Option kJobKey{"job-key",
                                Kind::kText,
                                "",
                                "The job key itself, 64 hexadecimal digits; prefer job-key-file",
                                /*choices=*/{},
                                /*secret=*/true};
inline constexpr Option kJobKeyFile{
    "job-key-file", Kind::kText, "",
    "Read the job key from this file of mode 0600 (sluice key new makes one)"};
inline constexpr Option kLeaveOnTerm{"leave-on-term", Kind::kSwitch, "off",
                                     "SIGTERM makes this rank leave at the end of its step, in "
                                     "good order; a handler of the program stays"};
inline constexpr Option kLog{
    "log", Kind::kText, "info",
    "Log level, also by layer: info, or warn,fabric=debug (trace, debug, info, warn, error, off)"};
inline constexpr Option kMembers{
    "members", Kind::kText, "",
    "The etcd servers in which the members of a job are agreed: etcd://a,b:2379,c, or "
    "etcds://a,b,c for TLS"};
inline constexpr Option kMembersCa{
    "members-ca", Kind::kText, "",
    "etcds: the file of the authorities that etcd's certificates are checked by; empty: the "
    "system's"};
inline constexpr Option kMembersCertificate{
    "members-certificate", Kind::kText, "",
    "etcds: the file of the certificate that this process shows to etcd"};
inline constexpr Option kMembersKey{"members-key", Kind::kText, "",
                                    "etcds: the file of that certificate's private key"};
inline constexpr Option kMembersPasswordFile{
    "members-password-file", Kind::kText, "",
    "Read the password of members-user from this file of mode 0600"};
inline constexpr Option kMembersUser{"members-user", Kind::kText, "",
                                     "The user as whom this process logs in to etcd"};
inline constexpr Option kMetricsAddress{
    "metrics-address", Kind::kText, "127.0.0.1",
    "Where metrics are served: who can reach it can read layer names"};
inline constexpr Option kMetricsPort{"metrics-port", Kind::kText, "off",
                                     "Serve metrics for Prometheus on this port plus the local "
                                     "rank (docs/metrics.md); 0: any free one"};
inline constexpr Option kMinMembers = sameOnAllRanks(
    {"min-members", Kind::kInteger, "1",
     "With --members: a job that has lost so many members that fewer are left ends"});
inline constexpr Option kPayloadCheck = sameOnAllRanks(
    {"payload-check", Kind::kChoice, "crc32c",
     "Checksum of payloads that are neither encrypted nor under --encrypt integrity, against "
     "bytes that change "
     "by accident",
     "crc32c|off"});
// The default is long, since the hosts of a cluster pull images and start minutes apart. The log
// names the missing ranks every few seconds meanwhile.
inline constexpr Option kRendezvousTimeout{
    "rendezvous-timeout", Kind::kDuration, "5min",
    "How long to wait at the start until every rank is here"};
inline constexpr Option kServers =
    sameOnAllRanks({"servers", Kind::kText, "all",
                    "Where parameters are summed and updated: all, K (the first K ranks) or "
                    "dedicated:K (the last K do nothing else)"});
inline constexpr Option kShrink =
    sameOnAllRanks({"shrink", Kind::kInteger, "1",
                    "For measurements: 'sluice bench' divides every tensor, slice, credit and rate "
                    "by this, so that "
                    "many workers of a large model fit on one machine"});
inline constexpr Option kSilenceLimit =
    sameOnAllRanks({"silence-limit", Kind::kDuration, "1900ms",
                    "Give up on a rank that has not been heard for this long: longer than any "
                    "pause that a rank survives"});
inline constexpr Option kSliceElements = sameOnAllRanks(
    {"slice-elements", Kind::kInteger, "0",
     "Largest number of parameters in one message; 0: what suits the algorithm (12500 for "
     "sluice, else 50000)"});
inline constexpr Option kStagingBytes{
    "staging-bytes", Kind::kBytes, "8388608",
    "Pinned host memory for copies from and to an accelerator, both directions together"};
inline constexpr Option kStallAfter{
    .name = "stall-after",
    .kind = Kind::kDuration,
    .fallback = "10s",
    .help = "Report a wait of this length: which tensor, which step, which ranks are missing",
    .formerName = "stall-s"};
inline constexpr Option kTrace{"trace", Kind::kText, "",
                               "Write what each rank saw of the path of slices into this "
                               "directory, at the end (docs/trace.md)"};
inline constexpr Option kTraceEvents{
    "trace-events", Kind::kInteger, "1000000",
    "How many events a trace keeps at most, the latest ones; 40 bytes of memory each"};
inline constexpr Option kTrustedNetwork{"trusted-network", Kind::kSwitch, "off",
                                        "Only this job's hosts can reach each other, so that the "
                                        "UCX engine may start (docs/fabric.md says why)"};
inline constexpr Option kUcxTransports = sameOnAllRanks(
    {"ucx-transports", Kind::kText, "tcp",
     "What the UCX engine may use, as UCX_TLS takes it: tcp, or rc,ud,tcp, or sm,tcp"});
inline constexpr Option kWaitTimeout{"wait-timeout", Kind::kDuration, "10min",
                                     "Give up a step that has not ended by then"};
}  // namespace option

// Returns all options, sorted by name.
std::span<const Option* const> allOptions();

// Adds options of a part of the program that is linked in. For initialisers of static variables
// only: a Config that was made before does not know them. Options that are known already stay.
void addOptions(std::span<const Option* const> options);

const Option* findOption(std::string_view name);
Result<const Option*> knownOption(std::string_view name);  // an error suggests the nearest name

// "unknown variable 'SLUICE_LGO'; did you mean 'SLUICE_LOG'?"
std::string unknownName(std::string_view what, std::string_view written,
                        std::span<const std::string_view> known);

}  // namespace sluice::base

namespace sluice {
namespace option = base::option;
}  // namespace sluice
