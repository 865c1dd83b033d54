// Notes that any holder of a key seals and any other opens, in any order and at any time, such as
// values in somebody else's store. XChaCha20-Poly1305 with a random nonce of 24 bytes before the
// note, which is safe for any number of writers with one key. A note that is repeated under the same
// label is not noticed: the label must hold what makes it unique. Any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <sluice/base/status.h>
#include <sluice/secret/key.h>

namespace sluice::secret {

inline constexpr size_t kSealedNoteOverheadBytes = 24 + 16;  // a sealed note is longer by this

// Seals `note`. `label` is known to the reader from elsewhere, and is protected with the note.
std::string sealNote(const Key& key, std::string_view note, std::string_view label);

// Opens a note that was sealed with the same key under the same label.
Result<std::string> openNote(const Key& key, std::string_view sealed, std::string_view label);

}  // namespace sluice::secret
