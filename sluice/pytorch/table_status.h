// Errors and text in a table's structs (table.h), for both of its sides.
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>

#include <sluice/status.h>

#include <sluice/pytorch/table.h>

namespace sluice::pytorch::table {

inline Text textOf(std::string_view text) {
  return {text.data(), text.size()};
}
inline std::string_view viewOf(Text text) {
  return {text.data, text.size};
}

inline Status statusOf(int32_t code, std::string_view text) {
  return code == 0 ? Status() : Status(static_cast<Code>(code), std::string(text));
}
inline Status statusOf(const Error& error) {
  return statusOf(error.code, error.text);
}

inline void write(const Status& status, Error* error) {
  error->code = static_cast<int32_t>(status.code());
  const std::string& text = status.message();
  const size_t size = std::min(text.size(), sizeof(error->text) - 1);
  std::memcpy(error->text, text.data(), size);
  error->text[size] = '\0';
}

// Writes the error that `call` returns or throws: no exception may cross the table.
template <typename Call>
void guarded(Error* error, Call&& call) {
  try {
    write(call(), error);
  } catch (const std::exception& exception) {
    write({Code::kInternal, exception.what()}, error);
  } catch (...) {
    write({Code::kInternal, "an exception without a text"}, error);
  }
}

// Gives a function that receives a Status to the other side.
template <typename F>
Ended giveEnded(F function) {
  return Ended::of([function = std::move(function)](int32_t code, Text text) {
    function(statusOf(code, viewOf(text)));
  });
}
// Takes such a function from the other side.
inline std::function<void(const Status&)> takeEnded(const Ended& ended) {
  return [call = take(ended)](const Status& status) {
    call(static_cast<int32_t>(status.code()), textOf(status.message()));
  };
}

}  // namespace sluice::pytorch::table
