#include <sluice/join/membership/epoch_record.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace sluice::membership {
namespace {

rc::Gen<std::string> anyText(size_t most) {
  return rc::gen::scale(1.0,
                        rc::gen::map(rc::gen::arbitrary<std::string>(),
                                     [most](std::string text) { return text.substr(0, most); }));
}

rc::Gen<Member> anyMember() {
  return rc::gen::exec([] {
    Member member;
    member.id = MemberId::random();
    member.host = *anyText(kLongestHostBytes);
    member.address = *anyText(kLongestAddressBytes);
    member.since = Step{*rc::gen::arbitrary<uint64_t>()};
    member.came = *rc::gen::arbitrary<int64_t>();
    return member;
  });
}

rc::Gen<EpochRecord> anyRecord() {
  return rc::gen::exec([] {
    EpochRecord record;
    record.number = Epoch{*rc::gen::arbitrary<uint32_t>()};
    record.members = *rc::gen::nonEmpty(rc::gen::container<std::vector<Member>>(anyMember()));
    record.firstStep = Step{*rc::gen::arbitrary<uint64_t>()};
    record.lost = *rc::gen::container<std::vector<Member>>(anyMember());
    record.why = *anyText(kLongestReasonBytes);
    record.proposer = record.members.front().id;
    record.nonce = Nonce::random();
    record.run = Nonce::random();
    record.proposed = *rc::gen::arbitrary<int64_t>();
    return record;
  });
}

EpochRecord smallRecord() {
  EpochRecord record;
  record.number = Epoch{3};
  record.members = {{.id = MemberId::random(), .host = "a", .address = "10.0.0.1:4000"},
                    {.id = MemberId::random(), .host = "b", .address = "10.0.0.2:4000"}};
  record.lost = {{.id = MemberId::random(), .host = "c", .address = "10.0.0.3:4000"}};
  record.why = "rank 2 is lost";
  record.proposer = record.members.front().id;
  record.nonce = Nonce::random();
  record.run = Nonce::random();
  return record;
}

TEST(EpochRecord, ComesBackFromItsBytes) {
  EXPECT_TRUE(rc::check([] {
    const EpochRecord record = *anyRecord();
    RC_ASSERT(check(record).isOk());
    const auto read = decodeEpoch(encode(record));
    RC_ASSERT(read.isOk());
    RC_ASSERT(*read == record);
  }));
}

TEST(EpochRecord, APartOfItsBytesIsRefused) {
  const std::string bytes = encode(smallRecord());
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_EQ(decodeEpoch(bytes.substr(0, length)).status().code(), Code::kDataLoss) << length;
  EXPECT_FALSE(decodeEpoch(bytes + '\0').isOk());
  EXPECT_TRUE(decodeEpoch(bytes).isOk());
}

TEST(EpochRecord, ChangedBytesDoNoHarm) {
  const std::string bytes = encode(smallRecord());
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const int value : {0, 1, 0x7f, 0xff}) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(value);
      if (const auto read = decodeEpoch(changed); read.isOk()) {
        EXPECT_EQ(encode(*read), changed);
      }
    }
  }
}

TEST(EpochRecord, ARankIsThePlaceOfAMember) {
  const EpochRecord record = smallRecord();
  EXPECT_EQ(record.rankOf(record.members[1].id), Rank{1});
  EXPECT_EQ(record.rankOf(record.lost[0].id), std::nullopt);
}

TEST(EpochRecord, WhatCannotBeRightIsNamed) {
  const auto faultOf = [](auto change) {
    EpochRecord record = smallRecord();
    change(record);
    const Status status = check(record);
    EXPECT_FALSE(decodeEpoch(encode(record)).isOk());
    return status.message();
  };
  using testing::HasSubstr;
  EXPECT_THAT(faultOf([](EpochRecord& r) { r.members.clear(); }), HasSubstr("no members"));
  EXPECT_THAT(faultOf([](EpochRecord& r) { r.lost.push_back(r.members[0]); }), HasSubstr("twice"));
  EXPECT_THAT(faultOf([](EpochRecord& r) { r.nonce = {}; }), HasSubstr("no nonce"));
  EXPECT_THAT(faultOf([](EpochRecord& r) { r.run = {}; }), HasSubstr("no run"));
  EXPECT_THAT(faultOf([](EpochRecord& r) { r.why.assign(5000, 'x'); }), HasSubstr("reason"));
  EXPECT_THAT(faultOf([](EpochRecord& r) { r.members[0].id = {}; }), HasSubstr("no id"));
  EXPECT_THAT(faultOf([](EpochRecord& r) { r.members[0].host.assign(256, 'x'); }),
              HasSubstr("host name of 256 bytes"));
  EXPECT_THAT(faultOf([](EpochRecord& r) {
                r.members.assign(kMostMembers + 1, r.members[0]);
                for (Member& member : r.members) member.id = MemberId::random();
              }),
              HasSubstr("too many"));
  EXPECT_THAT(faultOf([](EpochRecord& r) {
                r.members.assign(kMostMembers, r.members[0]);
                for (Member& member : r.members) {
                  member.id = MemberId::random();
                  member.address.assign(kLongestAddressBytes, 'x');
                }
              }),
              HasSubstr("too long together"));
}

TEST(Member, ComesBackFromItsBytes) {
  EXPECT_TRUE(rc::check([] {
    const Member member = *anyMember();
    RC_ASSERT(*decodeMember(encode(member)) == member);
    RC_ASSERT(!decodeMember(encode(member) + "x").isOk());
    RC_ASSERT(!decodeMember(encode(member).substr(1)).isOk());
  }));
}

TEST(RandomId, IsWrittenAsHexadecimalDigits) {
  const RandomId id = RandomId::random();
  EXPECT_EQ(id.toString().size(), 32U);
  EXPECT_EQ(*RandomId::parse(id.toString()), id);
  EXPECT_NE(RandomId::random(), id);
  for (const std::string wrong :
       {"", "00", "0123456789abcdef0123456789abcdeg", "0123456789ABCDEF0123456789ABCDEF",
        "0123456789abcdef0123456789abcdef0"})
    EXPECT_FALSE(RandomId::parse(wrong).isOk()) << wrong;
}

}  // namespace
}  // namespace sluice::membership
