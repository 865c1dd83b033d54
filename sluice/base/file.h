// Reads files. Any thread.
#pragma once

#include <sys/stat.h>

#include <string>
#include <string_view>

#include <sluice/base/status.h>

namespace sluice::base {

inline constexpr size_t kMostFileBytes = size_t{64} << 20;

// Returns the whole text of a file. An error says what it is: "cannot read the network NET.json: No
// such file or directory". A file with more than `most` bytes is an error, whatever its size says.
// `info`, if given, becomes the file's that was read: its path may name another one meanwhile.
Result<std::string> readFile(std::string_view what, const std::string& path,
                             size_t most = kMostFileBytes, struct stat* info = nullptr);

// Fails unless a file with a secret belongs to this user or root, and nobody else may open it.
// `secret` says what is in it: "a password".
Status checkPrivate(const struct stat& info, const std::string& path, std::string_view secret);

// Returns the text of a regular file that checkPrivate() accepts. Never waits.
Result<std::string> readPrivateFile(std::string_view what, const std::string& path, size_t most,
                                    std::string_view secret);

}  // namespace sluice::base
