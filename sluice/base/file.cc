#include <sluice/base/file.h>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include <fmt/format.h>

namespace sluice::base {
namespace {

// A descriptor that is closed at the end. net::Fd stands above this folder.
class OpenFile final {
 public:
  OpenFile(const std::string& path, int flags) : fd_(::open(path.c_str(), O_RDONLY | flags)) {}
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

Status cannotRead(std::string_view what, const std::string& path) {
  return fromErrno(fmt::format("cannot read the {} {}", what, path));
}

Result<std::string> readAll(int fd, std::string_view what, const std::string& path, size_t most) {
  // Piece by piece: a pipe or a device has no size, and may never end.
  std::string text;
  std::array<char, size_t{64} << 10> piece{};
  while (true) {
    const ssize_t got = ::read(fd, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return cannotRead(what, path);
    if (got == 0) return text;
    text.append(piece.data(), static_cast<size_t>(got));
    if (text.size() <= most) continue;
    return Status(Code::kInvalidArgument,
                  fmt::format("the {} {} has more than {} bytes", what, path, most));
  }
}

}  // namespace

Result<std::string> readFile(std::string_view what, const std::string& path, size_t most,
                             struct stat* info) {
  const OpenFile file(path, O_CLOEXEC | O_NOCTTY);
  if (file.get() < 0) return cannotRead(what, path);
  if (info != nullptr && ::fstat(file.get(), info) != 0) return cannotRead(what, path);
  return readAll(file.get(), what, path, most);
}

Status checkPrivate(const struct stat& info, const std::string& path, std::string_view secret) {
  if (info.st_uid != ::geteuid() && info.st_uid != 0) {
    return {Code::kPermissionDenied,
            fmt::format("{} holds {} but belongs to user {}, who can read and change it; make a "
                        "file of your own",
                        path, secret, info.st_uid)};
  }
  if ((info.st_mode & 077) == 0) return ok();
  return {Code::kPermissionDenied,
          fmt::format("{} holds {} but others may open it (mode {:04o}); run: chmod 600 {}", path,
                      secret, info.st_mode & 07777, path)};
}

Result<std::string> readPrivateFile(std::string_view what, const std::string& path, size_t most,
                                    std::string_view secret) {
  // Without O_NONBLOCK a named pipe would wait for a writer. Symbolic links are followed, since
  // Kubernetes mounts secrets as links; all checks are of the file that was opened.
  const OpenFile file(path, O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file.get() < 0) return cannotRead(what, path);
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) return cannotRead(what, path);
  if (!S_ISREG(info.st_mode))
    return Status(Code::kInvalidArgument, fmt::format("{} is not a regular file", path));
  SLUICE_RETURN_IF_ERROR(checkPrivate(info, path, secret));
  return readAll(file.get(), what, path, most);
}

}  // namespace sluice::base
