// sluice key new: makes the job key that tells the members of a job from strangers.
#include <memory>

#include <fmt/format.h>

#include <sluice/secret/key_file.h>
#include <tools/cli/commands.h>
#include <tools/cli/program.h>

namespace sluice::cli {
namespace {

Result<int> makeKey(const std::string& path) {
  const auto key = secret::JobKey::random();
  if (path.empty()) {
    fmt::print("{}\n", key.toHex());
    return 0;
  }
  SLUICE_RETURN_IF_ERROR(secret::writeKeyFile(path, key));
  fmt::print("{} holds a new job key. Copy it to every host and: export SLUICE_JOB_KEY_FILE={}\n",
             path, path);
  return 0;
}

}  // namespace

void addKeyCommand(Program& program, CLI::App& root) {
  CLI::App* group = program.addCommand(
      root, "key", "Keys that tell members of a job from strangers", {"sluice key new -o job.key"});
  CLI::App* make =
      program.addCommand(*group, "new", "Make a job key",
                         {"sluice key new -o job.key && export SLUICE_JOB_KEY_FILE=job.key",
                          "SLUICE_JOB_KEY_FILE=job.key torchrun train.py"});
  auto path = std::make_shared<std::string>();
  make->add_option("-o,--output", *path,
                   "Write it to this new file of mode 0600 instead of printing it");
  program.onRun(make, [path](const base::Config&) { return makeKey(*path); });
}

}  // namespace sluice::cli
