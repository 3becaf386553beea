// The trace of a restore by GPUDirect Storage, whose windows pass no slot and are sent by nobody. The library is a
// stand-in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cc/hydrate/hydrate.h"
#include "cc/hydrate/trace.h"
#include "cc/testing/test_artifact.h"
#include "cc/testing/test_device.h"
#include "tests/contract/fake_gds.h"

namespace coldsnap {
namespace {

TEST(GdsTraceTest, HasTheReadsOfEveryByteAndNothingElse) {
  TestDevice device;
  const FakeGds gds;
  const TestArtifact files({4 * kMiB + 5, 100, 700, 3 * kLeafBytes});
  const OpenArtifact artifact = files.Open();
  const auto destinations = files.Allocate(artifact, device);
  Trace trace;
  const HydrateOptions options{.backend = Backend::kGds,
                               .verify = Verify::kNone,
                               .chunk_bytes = 128 * kKiB,
                               .gds_driver = gds.driver(),
                               .trace = &trace};
  const Result<HydrateReport> report = Hydrate(artifact, TargetsOf(destinations), device.gpu(), options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  uint64_t bytes = 0;
  for (const Trace::Thread& thread : trace.Threads()) {
    if (thread.name == "caller") continue;
    for (const Trace::Span& span : thread.spans) {
      EXPECT_STREQ(span.name, "read");
      bytes += span.nbytes;
    }
  }
  EXPECT_EQ(bytes, report->payload_bytes);
}

}  // namespace
}  // namespace coldsnap
