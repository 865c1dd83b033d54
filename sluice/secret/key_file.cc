#include <sluice/secret/key_file.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

#include <fmt/format.h>

#include <sluice/base/net/fd.h>
#include <sluice/base/options.h>
#include <sluice/secret/sodium.h>

namespace sluice::secret {

Result<JobKey> readKeyFile(const std::string& path) {
  // Without O_NONBLOCK a named pipe would wait for a writer. Symbolic links are followed, since
  // Kubernetes mounts secrets as links; all checks are of the file that was opened.
  const net::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.valid()) return base::fromErrno(fmt::format("cannot read the job key file {}", path));
  struct stat info{};
  if (::fstat(file.get(), &info) != 0)
    return base::fromErrno(fmt::format("cannot check who may open {}", path));
  if (!S_ISREG(info.st_mode)) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("{} is not a regular file; make a job key with: sluice key new -o job.key",
                    path));
  }
  if (info.st_uid != 0 && info.st_uid != ::geteuid()) {
    return Status(
        Code::kPermissionDenied,
        fmt::format(
            "{} belongs to user {}, who knows and can change the job key; make your own with: "
            "sluice key new -o job.key",
            path, info.st_uid));
  }
  if ((info.st_mode & 077) != 0) {
    return Status(
        Code::kPermissionDenied,
        fmt::format("{} holds a job key but others may open it (mode {:04o}); run: chmod 600 {}",
                    path, info.st_mode & 07777, path));
  }
  std::array<char, 256> text{};  // a key is 64 digits; more than this is another kind of file
  const ssize_t got = ::read(file.get(), text.data(), text.size());
  if (got < 0) return base::fromErrno(fmt::format("cannot read the job key file {}", path));
  auto key = JobKey::parse({text.data(), static_cast<size_t>(got)});
  sodium_memzero(text.data(), text.size());
  if (!key.isOk()) return key.status().withContext(path);
  return key;
}

Status writeKeyFile(const std::string& path, const JobKey& key) {
  // The mode is given to open() itself: a file that became private only afterwards could be
  // opened in between. O_EXCL leaves an existing key alone, as other hosts may have it already.
  const net::Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) {
    if (errno == EEXIST) {
      return {Code::kAlreadyExists,
              fmt::format("{} exists already; name another file or remove it", path)};
    }
    return base::fromErrno(fmt::format("cannot make {}", path));
  }
  std::string text = key.toHex() + "\n";
  const ssize_t wrote = ::write(file.get(), text.data(), text.size());
  sodium_memzero(text.data(), text.size());
  if (wrote != static_cast<ssize_t>(text.size()))
    return base::fromErrno(fmt::format("cannot write {}", path));
  return base::ok();
}

Result<JobKey> loadJobKey(const base::Config& config) {
  const std::string& path = config.text(option::kJobKeyFile);
  const std::string& text = config.text(option::kJobKey);
  if (!path.empty() && !text.empty()) {
    return Status(Code::kInvalidArgument,
                  "both SLUICE_JOB_KEY_FILE and SLUICE_JOB_KEY are set; unset one of them");
  }
  if (!path.empty()) return readKeyFile(path);
  if (text.empty()) return JobKey::none();
  auto key = JobKey::parse(text);
  if (!key.isOk()) return key.status().withContext("SLUICE_JOB_KEY");
  return key;
}

Status checkKeyFor(const JobKey& key, const base::Config& config, std::string_view address,
                   bool isLoopback) {
  if (key.isSecret() || isLoopback || config.isOn(option::kInsecure)) return base::ok();
  return {
      Code::kPermissionDenied,
      fmt::format(
          "{} is not a loopback address and there is no job key to tell members from strangers; "
          "type: 'sluice key new -o job.key' and 'export SLUICE_JOB_KEY_FILE=job.key' (the same "
          "file on every host), or say --insecure on (SLUICE_INSECURE=on) on a network you trust",
          address)};
}

}  // namespace sluice::secret
