// Records of members and epochs that a broken member of the job has sealed, and addresses of etcd
// servers: any bytes at all. An accepted record must come out the same when it is encoded again.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <sluice/join/membership/epoch_record.h>
#include <sluice/join/membership/store_address.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice::membership;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto record = decodeEpoch(bytes); record.isOk() && encode(*record) != bytes)
    std::abort();
  if (const auto member = decodeMember(bytes); member.isOk() && encode(*member) != bytes)
    std::abort();
  if (const auto address = parseEtcdAddress(bytes);
      address.isOk() && *parseEtcdAddress(address->toString()) != *address)
    std::abort();
  return 0;
}
