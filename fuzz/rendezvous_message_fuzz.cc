// Messages of a broken or hostile member of the job at the rendezvous: any bytes at all, since
// every holder of the job key can seal any bytes. An accepted message must come out the same when
// it is encoded again.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <sluice/join/rendezvous/agreement.h>
#include <sluice/join/rendezvous/message.h>

namespace sluice::rendezvous {
namespace {

void mustHold(std::string_view bytes) {
  if (const auto list = decodeList(bytes); list.isOk() && encodeList(*list) != bytes) std::abort();
  if (const auto agreement = Agreement::decode(bytes); agreement.isOk()) {
    const auto again = Agreement::decode(agreement->encode());
    if (!again.isOk() || again->hash() != agreement->hash()) std::abort();
  }
}

}  // namespace
}  // namespace sluice::rendezvous

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice::rendezvous;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  mustHold(bytes);
  if (const auto message = decode(bytes); message.isOk()) {
    if (message->key.size() > kLargestKeyBytes || encode(*message) != bytes) std::abort();
    mustHold(message->value);
  }
  return 0;
}
