// Counts the files and the objects on two ways through the engine: that of a gradient, from Python's
// session to the socket, and that of a lost rank, from its closed connection to the next epoch.
//
// The count is by stacks: at every post to a loop, at every write to a socket and where a connection
// is found closed, the test notes which functions of ours are being called.
// docs/follow-a-slice.md names the files of the first way.
#include <dlfcn.h>
#include <link.h>
#include <pybind11/embed.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unwind.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <future>
#include <map>
#include <regex>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include <sluice/base/mutex.h>
#include <sluice/base/net/epoll_loop.h>
#include <sluice/base/options.h>
#include <sluice/base/testing/free_port.h>
#include <sluice/join/membership/etcd/testing/etcd_servers.h>
#include <sluice/pytorch/module/training.h>

namespace sluice::pytorch {
namespace {

// The calls from one post to the next, or to the write.
struct Leg {
  std::shared_ptr<const Leg> before;  // null: the way begins
  std::vector<void*> calls;
};
using Way = std::shared_ptr<const Leg>;

// The way that led to what this thread does; null: no way that the test follows.
thread_local Way way;
std::promise<Way> written;  // the first write at the end of a way
std::atomic<bool> isWritten{false};

std::vector<void*> callsHere() {
  std::vector<void*> calls;
  const auto add = [](_Unwind_Context* call, void* all) {
    if (const auto address = ::_Unwind_GetIP(call); address != 0)
      static_cast<std::vector<void*>*>(all)->push_back(reinterpret_cast<void*>(address));
    return _URC_NO_REASON;
  };
  ::_Unwind_Backtrace(add, &calls);
  return calls;
}

void noteIfLost();

Task follow(Task task) {
  noteIfLost();
  if (way == nullptr) return task;
  return [leg = std::make_shared<const Leg>(way, callsHere()), task = std::move(task)] {
    const Way former = std::exchange(way, leg);
    task();
    way = former;
  };
}

void noteWrite() {
  noteIfLost();
  if (way == nullptr || isWritten.exchange(true)) return;
  written.set_value(std::make_shared<const Leg>(way, callsHere()));
}

// Of the loop that a lost rank's way is followed on, between the loss and the next result.
std::atomic<Loop*> watched{nullptr};
std::atomic<bool> isLost{false};
base::Guarded<std::set<std::vector<void*>>> afterLoss;

void noteIfLost() {
  Loop* const loop = watched;
  if (loop == nullptr || !isLost || !loop->inLoop()) return;
  afterLoss.with([](auto& stacks) { stacks.insert(callsHere()); });
}

// A connection of the watched loop is found closed.
void noteClosed() {
  Loop* const loop = watched;
  if (loop == nullptr || !loop->inLoop()) return;
  isLost = true;
  noteIfLost();
}

struct Call {
  std::string function;
  std::string file;  // "sluice/session/trainer.cc"; empty: not of sluice's engine
};

std::string engineFile(const std::string& place) {
  static const std::regex kRooms(
      ".*/(sluice/(base|secret|transport|join|observe|data|algorithms|session|pytorch)/[^:]*).*");
  std::smatch found;
  if (!std::regex_match(place, found, kRooms) || place.ends_with("_test.cc")) return "";
  return found[1].str().find("/testing/") == std::string::npos ? found[1].str() : "";
}

// "sluice::session::Trainer" of one of its functions, or of a lambda in one; empty for a function
// without an object.
std::string objectOf(std::string function) {
  static const std::regex kUnnamed("\\(anonymous namespace\\)::");
  static const std::regex kTemplate("<[^<>()]*>");
  static const std::regex kResult("^[^(]* ");  // "auto " before the name of a lambda
  function = std::regex_replace(function, kUnnamed, "");
  for (size_t before = 0; before != function.size();) {
    before = function.size();
    function = std::regex_replace(function, kTemplate, "");
  }
  function = std::regex_replace(function.substr(0, function.find('(')), kResult, "");
  const size_t name = function.rfind("::");
  if (name == std::string::npos) return "";
  const size_t type = function.rfind("::", name - 1);
  if (type == std::string::npos || std::isupper(function[type + 2]) == 0) return "";
  return function.substr(0, name);
}

// The calls that stand at each address, inlined ones too, innermost first.
std::map<void*, std::vector<Call>> describe(const std::set<std::vector<void*>>& stacks) {
  uintptr_t base = 0;  // of this program
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* found) {
        *static_cast<uintptr_t*>(found) = info->dlpi_addr;
        return 1;  // the first is the program itself
      },
      &base);
  std::set<void*> all;
  for (const auto& stack : stacks) all.insert(stack.begin(), stack.end());
  std::string command = fmt::format("{} -a -f -C -i -e /proc/{}/exe", SLUICE_ADDR2LINE, ::getpid());
  // A return address may already belong to the next line.
  for (void* call : all)
    command += fmt::format(" {:#x}", reinterpret_cast<uintptr_t>(call) - base - 1);
  std::map<void*, std::vector<Call>> described;
  auto next = all.begin();
  std::vector<Call>* calls = nullptr;
  bool isFunction = true;
  FILE* output = ::popen(command.c_str(), "r");
  std::vector<char> line(1 << 16);
  while (std::fgets(line.data(), static_cast<int>(line.size()), output) != nullptr) {
    std::string text(line.data());
    text.pop_back();
    if (text.starts_with("0x")) {
      calls = &described[*next++];
      isFunction = true;
    } else if (std::exchange(isFunction, !isFunction)) {
      calls->push_back({.function = text, .file = ""});
    } else {
      calls->back().file = engineFile(text);
    }
  }
  EXPECT_EQ(::pclose(output), 0) << "addr2line comes with the compiler";
  return described;
}

struct Count {
  std::set<std::string> files;
  std::set<std::string> objects;
};

using Described = std::map<void*, std::vector<Call>>;

Count count(const Described& described) {
  Count count;
  for (const auto& [address, calls] : described) {
    for (const Call& call : calls) {
      if (call.file.empty()) continue;
      count.files.insert(call.file);
      if (const auto object = objectOf(call.function); !object.empty())
        count.objects.insert(object);
    }
  }
  std::printf("%zu files, %zu objects\n", count.files.size(), count.objects.size());
  for (const auto& file : count.files) std::printf("  %s\n", file.c_str());
  for (const auto& object : count.objects) std::printf("  %s\n", object.c_str());
  return count;
}

// Outermost call first.
void print(const std::vector<void*>& stack, const Described& described) {
  for (auto address = stack.rbegin(); address != stack.rend(); ++address) {
    const auto& calls = described.at(*address);
    for (auto call = calls.rbegin(); call != calls.rend(); ++call) {
      if (!call->file.empty())
        std::printf("    %-50s %.90s\n", call->file.c_str(), call->function.c_str());
    }
  }
}

constexpr size_t kElements = 100'000;
const std::vector<TensorDescription> kModel{{"w", kElements, "f32"}};

base::Config::Values rankOf(uint32_t rank, uint32_t world, const std::string& port) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(world)},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", port}};
}

// One rank trains as Python does. `before` is called before each step.
using Before = std::function<void(const PythonJob&, uint64_t step)>;
void train(const base::Config::Values& options, const base::Config::Values& environment,
           uint64_t steps, const Before& before) {
  const py::gil_scoped_acquire gil;
  const auto member = join(options, environment, py::none());
  std::vector<float> gradient(kElements);
  const auto address = reinterpret_cast<uintptr_t>(gradient.data());
  Training training(*member, "model", kModel, "mean-gradient", {}, 0, "sluice", 0);
  for (uint64_t step = 0; step < steps; ++step) {
    before(*member, step);
    training.gradientReady(0, address, address, kElements * sizeof(float));
    way = nullptr;
    EXPECT_TRUE(training.wait(0));
  }
  watched = nullptr;
  training.leave();
}

// The page may leave out the first folders: `net/epoll_loop.cc`.
bool isNamedOn(const std::string& page, const std::string& file) {
  const size_t name = file.rfind('/');
  return page.find(file.substr(file.rfind('/', name - 1) + 1) + "`") != std::string::npos;
}

TEST(Way, OfAGradientToTheSocket) {
  net::taskHook = &follow;
  const std::string port = base::freePort();
  {
    const py::gil_scoped_release release;
    // The other rank's part comes after the write, or else this rank's would complete a sum, and the
    // first write would be of a result.
    std::thread other([&] {
      train({}, rankOf(1, 2, port), 2, [](const PythonJob&, uint64_t step) {
        const py::gil_scoped_release waiting;
        for (int turn = 0; step == 1 && !isWritten && turn < 2000; ++turn)
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
      });
    });
    // The first step makes the connection.
    train({}, rankOf(0, 2, port), 2, [](const PythonJob&, uint64_t step) {
      if (step == 1) way = std::make_shared<const Leg>();
    });
    other.join();
  }
  net::taskHook = nullptr;
  ASSERT_TRUE(isWritten);
  std::vector<std::vector<void*>> stacks;
  const Way end = written.get_future().get();
  for (const Leg* leg = end.get(); leg->before != nullptr; leg = leg->before.get())
    stacks.insert(stacks.begin(), leg->calls);
  const size_t posts = stacks.size() - 1;
  const Described described = describe({stacks.begin(), stacks.end()});
  for (size_t i = 0; i < stacks.size(); ++i) {
    std::printf("%s\n", i < posts ? "to a post" : "to the write");
    print(stacks[i], described);
  }
  const Count found = count(described);
  EXPECT_EQ(posts, 2);
  EXPECT_LE(found.files.size(), 9);
  EXPECT_LE(found.objects.size(), 10);
  std::ifstream file(SLUICE_PAGE_OF_THE_WAY);
  const std::string page(std::istreambuf_iterator<char>(file), {});
  for (const auto& name : found.files)
    EXPECT_TRUE(isNamedOn(page, name)) << "docs/follow-a-slice.md does not name " << name;
}

// A rank of its own process, which is killed after two steps.
pid_t startMortal(const base::Config::Values& options, const base::Config::Values& environment) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  auto config = base::Config::read(options, environment).value();
  (void)config.set(option::kSliceElements, kSliceElements);
  auto job = session::JobParts::join(std::move(config), environment, {}, {}).value();
  SessionOptions session;
  session.name = "model";
  session.algorithm = "sluice";
  session.update = "mean-gradient";
  session.model = modelOf(kModel);
  auto parts = session::SessionParts::open(*job, std::move(session)).value();
  std::vector<float> gradient(kElements);
  const auto memory = std::as_writable_bytes(std::span(gradient));
  for (int step = 0; step < 2; ++step) {
    (void)parts->trainer().gradientReady(TensorId{0}, {memory, memory});
    (void)parts->trainer().wait(TensorId{0});
  }
  ::kill(::getpid(), SIGKILL);
  ::_exit(1);
}

// Trains with three ranks of which one is killed. Returns what stood on the loop's stacks from then
// to the next result.
Count lose(const std::string& store, const std::string& job) {
  const base::Config::Values options{
      {"members", "etcd://" + store}, {"job", job}, {"job-key", std::string(64, '7')}};
  const std::string port = base::freePort();
  isLost = false;
  afterLoss.with([](auto& all) { all.clear(); });
  const pid_t mortal = startMortal(options, rankOf(2, 3, port));
  net::taskHook = &follow;
  {
    const py::gil_scoped_release release;
    std::thread other([&] { train(options, rankOf(1, 3, port), 4, [](auto&, auto) {}); });
    train(options, rankOf(0, 3, port), 4, [&](const PythonJob& member, uint64_t step) {
      // All connections are made.
      if (step == 1) watched = &member.parts().loop();
      if (step == 3) watched = nullptr;
    });
    other.join();
  }
  net::taskHook = nullptr;
  int status = 0;
  ::waitpid(mortal, &status, 0);
  EXPECT_TRUE(isLost);
  return count(describe(afterLoss.with([](const auto& all) { return all; })));
}

// Other work of the loop stands on its stacks, too, if it happens to come meanwhile. The fewest files
// of three losses have the least of it.
TEST(Way, OfALostRankToTheNextEpoch) {
  const auto servers = membership::EtcdServers::start(3);
  if (servers == nullptr) GTEST_SKIP() << "etcd is not installed; run scripts/install_deps.sh";
  std::string addresses;
  for (size_t i = 0; i < servers->count(); ++i)
    addresses += fmt::format("{}127.0.0.1:{}", i == 0 ? "" : ",", servers->port(i));
  size_t fewest = SIZE_MAX;
  for (int turn = 0; turn < 3; ++turn) {
    const Count found = lose(addresses, fmt::format("way-{}-{}", ::getpid(), turn));
    EXPECT_GT(found.files.size(), 0);
    fewest = std::min(fewest, found.files.size());
  }
  EXPECT_LE(fewest, 32);
}

}  // namespace
}  // namespace sluice::pytorch

// The ways in which a connection writes to its socket, and reads from it.
template <typename... Args>
using Call = ssize_t (*)(int, Args...);

extern "C" ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  static const auto kNext =
      reinterpret_cast<Call<const msghdr*, int>>(::dlsym(RTLD_NEXT, "sendmsg"));
  sluice::pytorch::noteWrite();
  return kNext(socket, message, flags);
}

extern "C" ssize_t send(int socket, const void* data, size_t bytes, int flags) {
  static const auto kNext =
      reinterpret_cast<Call<const void*, size_t, int>>(::dlsym(RTLD_NEXT, "send"));
  sluice::pytorch::noteWrite();
  return kNext(socket, data, bytes, flags);
}

extern "C" ssize_t readv(int socket, const iovec* into, int count) {
  static const auto kNext = reinterpret_cast<Call<const iovec*, int>>(::dlsym(RTLD_NEXT, "readv"));
  const ssize_t got = kNext(socket, into, count);
  const int error = errno;
  if (got == 0 || (got < 0 && error == ECONNRESET)) sluice::pytorch::noteClosed();
  errno = error;
  return got;
}

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const pybind11::scoped_interpreter python;
  return RUN_ALL_TESTS();
}
