// Traces of ranks: any bytes at all. The events of an accepted one name tensors that it has; an error
// is one line.
#include <tools/trace/trace_reader.h>

#include "file_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const auto traces = trace::readTraces(fuzz::fileWith(data, size));
  if (!traces.isOk()) {
    fuzz::mustBeOneLine(traces.status().message());
    return 0;
  }
  for (const auto& trace : *traces) {
    for (const auto& event : trace.events) {
      if (index(event.tensor) >= trace.tensors.size()) std::abort();
    }
    for (const auto& wait : trace.waits) {
      if (index(wait.tensor) >= trace.tensors.size()) std::abort();
    }
  }
  return 0;
}
