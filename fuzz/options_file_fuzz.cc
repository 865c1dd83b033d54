// Files of options: any bytes at all. Every value of an accepted one can be read; an error is one line.
#include <sluice/base/config.h>
#include <sluice/base/options.h>

#include "file_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const auto config = base::Config::read({{"config", fuzz::fileWith(data, size)}}, {});
  if (!config.isOk()) {
    fuzz::mustBeOneLine(config.status().message());
    return 0;
  }
  for (const auto& warning : config->warnings()) fuzz::mustBeOneLine(warning);
  for (const base::Option* option : base::allOptions()) {
    switch (option->kind) {
      case base::Kind::kText:
      case base::Kind::kChoice: (void)config->text(*option); break;
      case base::Kind::kInteger: (void)config->integer(*option); break;
      case base::Kind::kNumber: (void)config->number(*option); break;
      case base::Kind::kSwitch: (void)config->isOn(*option); break;
      case base::Kind::kDuration: (void)config->duration(*option); break;
      case base::Kind::kBytes: (void)config->bytes(*option); break;
      case base::Kind::kRate: (void)config->rate(*option); break;
    }
  }
  return 0;
}
