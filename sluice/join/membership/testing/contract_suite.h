// The contract of membership.h as a suite. Its cases are in contract_suite.cc, compiled once as
// sluice_membership_contract. Each store's test links that, includes this and instantiates it:
//
//   INSTANTIATE_TEST_SUITE_P(Memory, MembershipContract,
//                            testing::Values(StoreCase{"plain", makeMemoryStore}), caseName);
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/join/membership/testing/member_seat.h>
#include <sluice/join/membership/testing/store_under_test.h>

namespace sluice::membership::contract {

class MembershipContract : public testing::TestWithParam<StoreCase> {
 protected:
  void SetUp() override {
    store_ = GetParam().make();
    if (!store_) GTEST_SKIP() << "etcd is not installed; run scripts/install_deps.sh";
    // A store may be shared by the cases, so each has a job of its own.
    options_ = {.job = "job-" + RandomId::random().toString().substr(0, 8),
                .key = secret::JobKey::random(),
                .pollEvery = 2s};
  }

  StoreUnderTest& store() { return *store_; }
  JobSpace space() const { return {options_.job, options_.key}; }
  std::unique_ptr<MemberSeat> seat(const std::string& host = "host") {
    return std::make_unique<MemberSeat>(*store_, options_, host);
  }
  std::vector<std::unique_ptr<MemberSeat>> seats(size_t count) {
    std::vector<std::unique_ptr<MemberSeat>> all;
    for (size_t i = 0; i < count; ++i) all.push_back(seat("host" + std::to_string(i)));
    return all;
  }
  // The job's first epoch, begun by `seat`.
  static StoredEpoch begun(MemberSeat& seat) {
    auto stored = seat.begin(epochOf(0, {seat.self()}, "the job begins"));
    EXPECT_TRUE(stored.isOk()) << stored.status().toString();
    return *stored;
  }
  static EpochRecord following(const StoredEpoch& before, const MemberSeat& seat, uint32_t by = 1) {
    return epochOf(index(before.record.number) + by, {seat.self()}, "a change");
  }

  std::unique_ptr<StoreUnderTest> store_;
  StoreOptions options_;
};

}  // namespace sluice::membership::contract
