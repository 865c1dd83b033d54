#include <tools/sim/simgrid_network.h>

#include <dlfcn.h>

#include <filesystem>

#include <fmt/format.h>

namespace sluice::sim {
namespace {

using MakeNetwork = Network*(EventQueue& events, const NetworkOptions& options);

}  // namespace

Result<std::unique_ptr<Network>> makeSimgridNetwork(EventQueue& events,
                                                    const NetworkOptions& options) {
  if (!options.topology.isStar() || !options.topology.isEven() || options.loss > 0 ||
      options.jitter > 0) {
    return Status(Code::kInvalidArgument,
                  "--network simgrid knows one switch without losses only: leave out --topology, "
                  "--loss and --latency-jitter");
  }
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto path = program.parent_path() / "libsluice_simgrid.so";
  void* module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // stays for the whole process
  if (module == nullptr) {
    const char* why = ::dlerror();
    return Status(Code::kUnavailable,
                  fmt::format("--network simgrid: {}; install SimGrid (Debian: libsimgrid-dev) and "
                              "build sluice again",
                              why != nullptr ? why : "?"));
  }
  auto* make = reinterpret_cast<MakeNetwork*>(::dlsym(module, "sluiceMakeSimgridNetwork"));
  if (make == nullptr) {
    return Status(Code::kUnavailable,
                  fmt::format("--network simgrid: {} is of another build; build sluice again",
                              path.string()));
  }
  return std::unique_ptr<Network>(make(events, options));
}

}  // namespace sluice::sim
