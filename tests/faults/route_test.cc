// What the choice of a route does when its evidence can't be had, or lies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "cc/hydrate/hydrate.h"
#include "cc/testing/fault.h"
#include "cc/testing/test_artifact.h"
#include "cc/testing/test_device.h"

namespace coldsnap {
namespace {

using testing::HasSubstr;

class RouteTest : public testing::Test {
 protected:
  RouteTest() : destinations_(files_.Allocate(artifact_, device_)) {}

  Result<HydrateReport> Restore(Backend backend) {
    return Hydrate(artifact_, TargetsOf(destinations_), device_.gpu(), {.backend = backend});
  }
  void ExpectRestored() {
    for (const auto& each : destinations_) EXPECT_EQ(device_.Differences(each.target.range, each.seed), 0U);
  }
  static std::vector<std::string> Codes(const HydrateReport& report) {
    std::vector<std::string> codes;
    for (const Reason& reason : report.reasons) codes.push_back(reason.code);
    return codes;
  }

  TestDevice device_;
  TestArtifact files_{{3 * kLeafBytes, 100}};
  OpenArtifact artifact_ = files_.Open();
  std::vector<TestArtifact::Destination> destinations_;
};

TEST_F(RouteTest, AnUnknownResidencyIsSaidAndStopsNothing) {
  const ScopedFault cachestat(FaultPoint::kCachestat, {.error = ENOSYS, .times = 0});
  const ScopedFault mincore(FaultPoint::kMincore, {.error = ENOMEM, .times = 0});
  for (const Backend backend : {Backend::kAuto, Backend::kBuffered}) {
    const Result<HydrateReport> report = Restore(backend);
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_FALSE(report->residency_before.has_value());
    EXPECT_FALSE(report->residency_after.has_value());
    if (backend == Backend::kAuto) {
      EXPECT_EQ(Codes(*report)[0], "residency_unknown");
    }
    ExpectRestored();
  }
  EXPECT_GT(cachestat.fired(), 0U);
  EXPECT_GT(mincore.fired(), 0U);
}

// The file opens with O_DIRECT and the read says EINVAL: overlays and some network file systems do that.
TEST_F(RouteTest, ARefusedTrialReadIsNoDirectRoute) {
  {
    const ScopedFault trial(FaultPoint::kPread, {.error = EINVAL});
    const Status status = Restore(Backend::kDirect).status();
    EXPECT_EQ(trial.fired(), 1U);
    EXPECT_EQ(status.code(), Code::kRouteUnavailable);
    EXPECT_THAT(status.message(), HasSubstr("the file opens, but a trial read fails"));
    EXPECT_THAT(status.message(), HasSubstr("Invalid argument"));
  }
  const ScopedFault cachestat(FaultPoint::kCachestat, {.error = ENOSYS, .times = 0});
  const ScopedFault mincore(FaultPoint::kMincore, {.error = ENOMEM, .times = 0});
  const ScopedFault trial(FaultPoint::kPread, {.error = EINVAL});
  const Result<HydrateReport> report = Restore(Backend::kAuto);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(trial.fired(), 1U);
  EXPECT_EQ(report->By(Route::kDirect).nbytes, 0U);
  EXPECT_EQ(Codes(*report), (std::vector<std::string>{"residency_unknown", "direct_refused_probe"}));
  ExpectRestored();
}

// A drive whose bytes differ from what everyone else reads of the file.
TEST_F(RouteTest, ATrialReadThatLiesIsNoReasonForAnotherRoute) {
  const Status refused = Restore(Backend::kDirect).status();
  if (refused.code() == Code::kRouteUnavailable) GTEST_SKIP() << "no direct I/O: " << refused.message();
  const ScopedFault trial(FaultPoint::kPread, {.kind = FaultKind::kFlipped});
  const Status status = Restore(Backend::kDirect).status();
  EXPECT_EQ(trial.fired(), 1U);
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_EQ(status.stage(), "file");
  EXPECT_THAT(status.message(), HasSubstr("differ from what the page cache has"));
}

// Where damage is, a second read says; that it fails must not hide the damage.
TEST_F(RouteTest, DamageThatCanNotBeLocatedIsStillDamage) {
  const ScopedFault wrong(FaultPoint::kPread, {.kind = FaultKind::kFlipped});
  const ScopedFault again(FaultPoint::kPread, {.error = EIO, .on_call = 2});
  const HydrateOptions options{.backend = Backend::kBuffered, .verify = Verify::kCrc32, .read_threads = 1};
  const Status status = Hydrate(artifact_, TargetsOf(destinations_), device_.gpu(), options).status();
  EXPECT_EQ(wrong.fired(), 1U);
  EXPECT_EQ(again.fired(), 1U);
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("its crc32 is"));
  EXPECT_THAT(status.message(), HasSubstr("reading it again to find the place fails"));
}

}  // namespace
}  // namespace coldsnap
