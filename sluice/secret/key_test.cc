#include <sluice/secret/key.h>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/base/net/fd.h>
#include <sluice/secret/key_file.h>

namespace sluice::secret {
namespace {

struct Mapping {
  uintptr_t from = 0;
  uintptr_t to = 0;
  bool isReadable = false;
  bool isDumped = true;
};

// Returns all mappings of this process.
std::vector<Mapping> mappings() {
  std::vector<Mapping> all;
  std::ifstream file("/proc/self/smaps");
  std::string line;
  while (std::getline(file, line)) {
    uintptr_t from = 0;
    uintptr_t to = 0;
    char readable = '-';
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %c", &from, &to, &readable) == 3)
      all.push_back({from, to, readable == 'r'});
    if (line.starts_with("VmFlags:") && line.find(" dd") != std::string::npos)
      all.back().isDumped = false;
  }
  return all;
}

bool isDumped(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (const Mapping& mapping : mappings()) {
    if (at >= mapping.from && at < mapping.to) return mapping.isDumped;
  }
  ADD_FAILURE() << "no mapping has the address";
  return true;
}

TEST(Key, IsInNoCoreDump) {
  const Key key = Key::random();
  const Key copy = key;  // NOLINT: the copy is what is looked at
  EXPECT_FALSE(isDumped(key.bytes().data()));
  EXPECT_FALSE(isDumped(copy.bytes().data()));
  EXPECT_TRUE(isDumped(&key));
}

TEST(Key, HasAPlaceOfItsOwnThatIsWipedAtItsEnd) {
  const std::byte* place = nullptr;
  {
    Key first = Key::random();
    place = first.bytes().data();
    const Key second = first;
    EXPECT_NE(second.bytes().data(), place);
    EXPECT_EQ(second, first);
    first = Key::random();
    EXPECT_EQ(first.bytes().data(), place);
    EXPECT_NE(second, first);
  }
  EXPECT_TRUE(std::all_of(place, place + kKeyBytes, [](std::byte b) { return b == std::byte{}; }));
  const Key next;
  EXPECT_EQ(next.bytes().data(), place);  // places are used again
  EXPECT_EQ(next, Key());
}

TEST(Key, ThousandsOfKeysInSeveralThreadsKeepTheirBytes) {
  constexpr int kThreads = 4;
  std::vector<std::vector<Key>> keys(kThreads);
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&mine = keys[static_cast<size_t>(thread)]] {
        for (int i = 0; i < 1500; ++i) {
          mine.push_back(Key::random());
          if (i % 3 == 0) mine.pop_back();
        }
      });
    }
  }
  std::set<const std::byte*> places;
  std::set<std::string> contents;
  size_t count = 0;
  for (const auto& some : keys) {
    for (const Key& key : some) {
      ++count;
      places.insert(key.bytes().data());
      contents.emplace(reinterpret_cast<const char*>(key.bytes().data()), kKeyBytes);
    }
  }
  EXPECT_EQ(count, 4000U);
  EXPECT_EQ(places.size(), count);
  EXPECT_EQ(contents.size(), count);
}

constexpr unsigned char kMask = 0xa5;

// Counts the places in memory that a core dump would have at which the bytes stand. `masked` has
// them changed by kMask, so the test itself holds no copy.
int copiesInADump(const std::string& masked) {
  int copies = 0;
  const net::Fd memory(::open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
  std::string block;
  for (const Mapping& mapping : mappings()) {
    // A sanitizer maps terabytes for its own use.
    if (!mapping.isReadable || !mapping.isDumped || mapping.to - mapping.from > 1U << 30) continue;
    block.resize(mapping.to - mapping.from);
    const ssize_t got =
        ::pread(memory.get(), block.data(), block.size(), static_cast<off_t>(mapping.from));
    for (ssize_t at = 0; at + static_cast<ssize_t>(masked.size()) <= got; ++at) {
      size_t same = 0;
      while (same < masked.size() &&
             (static_cast<unsigned char>(block[static_cast<size_t>(at) + same]) ^ kMask) ==
                 static_cast<unsigned char>(masked[same]))
        ++same;
      if (same == masked.size()) ++copies;
    }
  }
  ::explicit_bzero(block.data(), block.size());
  return copies;
}

TEST(JobKey, FromAFileIsNowhereElseInMemory) {
  const std::string path = fmt::format("{}dumped.key.{}", testing::TempDir(), ::getpid());
  std::string masked;
  std::string maskedHex;
  {
    const JobKey made = JobKey::random();
    std::string hex = made.toHex();
    for (const char c : hex) maskedHex += static_cast<char>(c ^ kMask);
    for (size_t i = 0; i < hex.size(); i += 2)
      masked += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16) ^ kMask);
    ASSERT_TRUE(writeKeyFile(path, made).isOk());
    ::explicit_bzero(hex.data(), hex.size());
  }
  const auto key = readKeyFile(path);
  ASSERT_TRUE(key.isOk());
  [[maybe_unused]] const Key derived = key->derive(Purpose::kFabric);
  [[maybe_unused]] const JobKey ofJob = key->forJob(randomNonce());
  EXPECT_EQ(copiesInADump(masked), 0);
  EXPECT_EQ(copiesInADump(maskedHex), 0);
  ::unlink(path.c_str());
}

}  // namespace
}  // namespace sluice::secret
