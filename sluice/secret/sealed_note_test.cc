#include <sluice/secret/sealed_note.h>

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace sluice::secret {
namespace {

TEST(SealedNote, IsOpenedByEveryHolderOfTheKeyInAnyOrder) {
  EXPECT_TRUE(rc::check([](const std::string& note, const std::string& label) {
    const Key key = Key::random();
    const std::string once = sealNote(key, note, label);
    const std::string twice = sealNote(key, note, label);
    RC_ASSERT(once.size() == note.size() + kSealedNoteOverheadBytes);
    RC_ASSERT(once != twice);
    RC_ASSERT(*openNote(key, twice, label) == note);
    RC_ASSERT(*openNote(key, once, label) == note);
  }));
}

TEST(SealedNote, AnyChangeIsNoticed) {
  const Key key = Key::random();
  const std::string sealed = sealNote(key, "epoch 3", "job/epoch/3");
  for (size_t bit = 0; bit < 8 * sealed.size(); ++bit) {
    std::string changed = sealed;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_EQ(openNote(key, changed, "job/epoch/3").status().code(), Code::kDataLoss);
  }
  for (size_t length = 0; length < sealed.size(); ++length)
    EXPECT_FALSE(openNote(key, sealed.substr(0, length), "job/epoch/3").isOk());
  EXPECT_FALSE(openNote(key, sealed, "job/epoch/4").isOk());
  EXPECT_FALSE(openNote(Key::random(), sealed, "job/epoch/3").isOk());
  EXPECT_TRUE(openNote(key, sealed, "job/epoch/3").isOk());
}

}  // namespace
}  // namespace sluice::secret
