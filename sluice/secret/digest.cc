#include <sluice/secret/digest.h>

#include <sluice/secret/sodium.h>

namespace sluice::secret {

std::string digest(std::string_view text) {
  startSodium();
  std::string hash(kDigestBytes, '\0');
  crypto_generichash(reinterpret_cast<unsigned char*>(hash.data()), hash.size(),
                     reinterpret_cast<const unsigned char*>(text.data()), text.size(), nullptr, 0);
  return hash;
}

}  // namespace sluice::secret
