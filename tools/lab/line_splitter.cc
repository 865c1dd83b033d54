#include <tools/lab/line_splitter.h>

#include <utility>

namespace sluice::lab {

void LineSplitter::add(std::string_view bytes) {
  for (size_t end = bytes.find('\n'); end != std::string_view::npos; end = bytes.find('\n')) {
    unfinished_ += bytes.substr(0, end);
    onLine_(std::exchange(unfinished_, {}));
    bytes.remove_prefix(end + 1);
  }
  unfinished_ += bytes;
  if (unfinished_.size() >= kMaxLineBytes) finish();
}

void LineSplitter::finish() {
  if (!unfinished_.empty()) onLine_(std::exchange(unfinished_, {}));
}

}  // namespace sluice::lab
