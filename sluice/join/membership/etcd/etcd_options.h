// How a member talks with etcd.
#pragma once

#include <sluice/base/clock.h>
#include <sluice/join/membership/etcd/http_client.h>
#include <sluice/join/membership/store_address.h>

namespace sluice::membership {

struct EtcdOptions {
  EtcdAddress address;
  TlsFiles files;
  // A server holds a request for 7 s if it loses its leader meanwhile, while the others serve again
  // after one. So a request goes to the next server after this time.
  Duration attempt = std::chrono::seconds(1);
  // The pause after all servers have failed; it doubles up to the second one.
  Duration leastPause = std::chrono::milliseconds(200);
  Duration mostPause = std::chrono::seconds(5);
  Duration lease = std::chrono::seconds(10);  // whole seconds
};

}  // namespace sluice::membership
