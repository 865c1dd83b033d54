#include <fmt/format.h>

#include <sluice/base/config.h>
#include <sluice/base/options.h>
#include <sluice/plan/ids.h>

int main() {
  const auto config = sluice::Config::read({{"log", "debug"}}, {});
  fmt::print("rank {} logs at {}\n", sluice::Rank{3}, config.value().text(sluice::option::kLog));
}
