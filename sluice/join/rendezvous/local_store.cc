#include <sluice/join/rendezvous/local_store.h>

#include <sluice/join/rendezvous/message.h>

namespace sluice::rendezvous {
namespace {

ValueTable::Got copyTo(Store::Got got) {
  return [got = std::move(got)](const Result<std::shared_ptr<const std::string>>& value) {
    if (!value.isOk()) return got(value.status());
    got(**value);
  };
}

}  // namespace

void LocalStore::set(std::string key, std::string value, Done done) {
  // The table answers at once, but a Store never completes inside the call: a caller may hold a
  // lock, or may not be ready for its answer yet.
  loop_.post(
      [done = std::move(done), status = table_.set(key, std::move(value))] { done(status); });
}

void LocalStore::get(std::string key, Got got) {
  loop_.post([got = copyTo(std::move(got)), value = table_.get(key)] { got(value); });
}

void LocalStore::wait(std::string key, Duration timeout, Got got) {
  table_.wait(rank_, key, timeout, copyTo(std::move(got)));
}

void LocalStore::gather(std::string key, std::string value, Duration timeout, GotAll got) {
  table_.gather(rank_, /*id=*/0, key, std::move(value), timeout,
                [got = std::move(got)](const Result<std::shared_ptr<const std::string>>& all) {
                  if (!all.isOk()) return got(all.status());
                  got(decodeList(**all));
                });
}

}  // namespace sluice::rendezvous
