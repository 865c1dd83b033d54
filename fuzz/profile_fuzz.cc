// Profiles of models, and traces of torch.profiler: any bytes at all. An accepted one can be used; an
// error is one line.
#include <sluice/data/timing/profile.h>
#include <tools/trace/torch_profile.h>

#include "file_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const auto profile = timing::parseProfile({reinterpret_cast<const char*>(data), size}, "model");
  if (profile.isOk()) {
    if (profile->tensors.empty() || profile->parameters() == 0) std::abort();
    if (profile->shrunk(8).tensors.size() != profile->tensors.size()) std::abort();
  } else {
    fuzz::mustBeOneLine(profile.status().message());
  }
  const auto torch = trace::readTorchProfile(fuzz::fileWith(data, size));
  if (!torch.isOk()) {
    fuzz::mustBeOneLine(torch.status().message());
    return 0;
  }
  uint64_t events = 0;
  if (!trace::forEachEvent(*torch, [&](const trace::TorchEvent&) { ++events; }).isOk())
    std::abort();
  if (events != torch->events) std::abort();
  return 0;
}
