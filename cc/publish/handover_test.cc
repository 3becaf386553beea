#include "cc/publish/handover.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "cc/testing/end_child.h"
#include "gtest/gtest.h"

namespace coldsnap {
namespace {

class HandoverTest : public testing::Test {
 protected:
  Result<Handover> Claim(std::vector<DeviceRange> ranges, const std::string& device = "host") {
    return Handover::Claim(device, std::move(ranges), [this](std::span<const DeviceRange> poisoned) {
      poisoned_ += poisoned.size();
      return poison_result_;
    });
  }
  size_t poisoned_ = 0;
  Status poison_result_;
};

TEST_F(HandoverTest, PublishedBytesAreLeftAlone) {
  {
    Handover handover = *Claim({{100, 10}});
    handover.Begin();
    std::move(handover).Publish();
  }
  EXPECT_EQ(poisoned_, 0U);
}

TEST_F(HandoverTest, BeforeTheFirstCopyNothingIsPoisoned) {
  EXPECT_EQ((*Claim({{100, 10}})).Abandon(Status(Code::kIo, "why")).message(), "why");
  EXPECT_EQ(poisoned_, 0U);
}

TEST_F(HandoverTest, AbandonedAndForgottenBytesArePoisonedOnce) {
  {
    Handover handover = *Claim({{100, 10}, {200, 10}});
    handover.Begin();
    EXPECT_EQ(std::move(handover).Abandon(Status(Code::kIo, "why")).code(), Code::kIo);
    EXPECT_EQ(poisoned_, 2U);
  }
  EXPECT_EQ(poisoned_, 2U);
  {
    Handover handover = *Claim({{100, 10}});
    handover.Begin();
  }
  EXPECT_EQ(poisoned_, 3U);
}

TEST_F(HandoverTest, AFailedPoisonIsDeviceLostAndKeepsTheReason) {
  poison_result_ = Status(Code::kDeviceLost, "fill failed");
  Handover handover = *Claim({{100, 10}});
  handover.Begin();
  const Status status = std::move(handover).Abandon(Status(Code::kDataLoss, "extent 3 differs"));
  EXPECT_EQ(status.code(), Code::kDeviceLost);
  EXPECT_EQ(status.message(), "extent 3 differs; then fill failed");
}

TEST_F(HandoverTest, BytesThatCanNotBePoisonedAreSaidWhereNobodyAsksAnyMore) {
  poison_result_ = Status(Code::kDeviceLost, "fill failed");
  testing::internal::CaptureStderr();
  {
    Handover handover = *Claim({{100, 10}});
    handover.Begin();
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "coldsnap: fill failed\n");
  EXPECT_EQ(poisoned_, 1U);
  EXPECT_TRUE(Claim({{100, 10}}).ok()) << "the claim stands";
}

TEST_F(HandoverTest, OverlapsAreRefused) {
  EXPECT_EQ(Claim({{100, 10}, {109, 1}}).status().code(), Code::kLayoutMismatch);
  const Handover running = *Claim({{100, 10}, {300, 50}});
  for (const DeviceRange& range : std::vector<DeviceRange>{{95, 6}, {109, 1}, {90, 500}, {320, 5}, {100, 10}}) {
    EXPECT_EQ(Claim({range}).status().code(), Code::kPolicyRefused) << range.address;
  }
  for (const DeviceRange& range : std::vector<DeviceRange>{{90, 10}, {110, 190}, {350, 1}, {105, 0}}) {
    EXPECT_TRUE(Claim({range}).ok()) << range.address;
  }
  EXPECT_TRUE(Claim({{100, 10}}, "cuda:0").ok());  // another address space
}

TEST_F(HandoverTest, TheClaimEndsWithTheRestore) {
  static_cast<void>((*Claim({{100, 10}})).Abandon(Status(Code::kIo, "why")));
  EXPECT_TRUE(Claim({{100, 10}}).ok());
  (*Claim({{100, 10}})).Publish();
  EXPECT_TRUE(Claim({{100, 10}}).ok());
}

TEST_F(HandoverTest, AForkedChildHasNoClaims) {
  const Handover running = *Claim({{100, 10}});
  const pid_t child = ::fork();
  if (child == 0) EndChild(Claim({{100, 10}}).ok() && !Claim({{100, 10}, {109, 1}}).ok() ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Claim({{100, 10}}).status().code(), Code::kPolicyRefused) << "the parent's claim stands";
}

// At most forks another thread is in the middle of a claim; a child that got its lock would wait for ever.
TEST_F(HandoverTest, AForkInTheMiddleOfAClaimLeavesTheChildNoLock) {
  std::atomic<bool> stop = false;
  std::thread claiming([&] {
    while (!stop) static_cast<void>(Claim({{100, 10}, {200, 10}, {300, 10}}));
  });
  for (int round = 0; round < 300 && !HasFailure(); ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);  // far longer than a claim takes: ends the child that waits
      ::_exit(Claim({{100, 10}}).ok() ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "round " << round << (WIFSIGNALED(status) ? ": the child waited for the lock" : "");
  }
  stop = true;
  claiming.join();
}

}  // namespace
}  // namespace coldsnap
