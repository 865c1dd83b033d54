// Cuts a stream of bytes into whole lines. Pure.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace sluice::lab {

class LineSplitter final {
 public:
  using OnLine = std::function<void(std::string_view line)>;  // without its newline

  // A line longer than this is passed on in pieces, so that a program that never ends one cannot
  // fill memory.
  static constexpr size_t kMaxLineBytes = 1 << 20;

  explicit LineSplitter(OnLine onLine) : onLine_(std::move(onLine)) {}

  void add(std::string_view bytes);
  void finish();  // passes on what came after the last newline, if anything

 private:
  OnLine onLine_;
  std::string unfinished_;
};

}  // namespace sluice::lab
