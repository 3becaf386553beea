// The calls of the gds route made to NVIDIA's own library, on a GPU without GPUDirect Storage, by the switch that
// forces cuFile's compatible mode. That is no GPUDirect Storage, and the report says so.
//
// cuFile asks udev for the drive's file system, so a container without udev needs a record of it: /run/udev/data/bM:N
// of the drive with the lines E:ID_FS_USAGE=filesystem and E:ID_FS_TYPE=ext4.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "cc/hydrate/hydrate.h"
#include "cc/testing/test_artifact.h"
#include "cc/testing/test_device.h"

namespace coldsnap {
namespace {

class GdsCompatTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!device_.IsCuda()) GTEST_SKIP() << "NVIDIA's library needs a GPU; the stand-in runs in gds_restore_test";
  }
  TestDevice device_;
};

// In one test: the process's driver is opened once, and a failure of it is final.
TEST_F(GdsCompatTest, RefusedAsGdsAndRightInCompatibleMode) {
  const TestArtifact files({9 * kMiB + 5, 100, 700, kLeafBytes, 64 * kMiB});
  const OpenArtifact artifact = files.Open();
  const auto destinations = files.Allocate(artifact, device_);
  HydrateOptions options{.backend = Backend::kGds, .verify = Verify::kNone};

  Result<SharedGdsDriver> compat = GdsDriver::Open({.allow_compat = true});
  ASSERT_TRUE(compat.ok()) << compat.status().message();
  options.gds_driver = *compat;
  const Result<HydrateReport> report = Hydrate(artifact, TargetsOf(destinations), device_.gpu(), options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  for (const auto& each : destinations) EXPECT_EQ(device_.Differences(each.target.range, each.seed), 0U) << each.name;
  ASSERT_TRUE(report->gds.has_value());
  EXPECT_EQ(GdsPathName(report->gds->path), "compat");
  EXPECT_THAT(report->gds->text, testing::HasSubstr("compatible mode forced by a test"));
  std::printf("evidence: %s\n", report->gds->text.c_str());

  options.gds_driver = nullptr;
  *compat = nullptr;
  const Status refused = Hydrate(artifact, TargetsOf(destinations), device_.gpu(), options).status();
  if (refused.ok()) GTEST_SKIP() << "this machine has GPUDirect Storage";
  EXPECT_EQ(refused.code(), Code::kRouteUnavailable);
  std::printf("without the switch: %s\n", refused.message().c_str());
}

}  // namespace
}  // namespace coldsnap
