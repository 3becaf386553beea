// Captures on file systems that refuse direct I/O: which route is taken in its place, and what is said.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "cc/base/units.h"
#include "cc/capture/write_artifact.h"
#include "cc/device/host_gpu.h"
#include "cc/testing/fault.h"
#include "cc/testing/pattern.h"
#include "cc/testing/temp_dir.h"

namespace coldsnap {
namespace {

using testing::HasSubstr;

class WriteRouteTest : public testing::Test {
 protected:
  Result<WriteReport> Capture(CaptureOptions options) {
    options.write_threads = 1;
    const auto address = reinterpret_cast<uint64_t>(bytes_.data());
    WriteRequest request{.path = temp_.path() + "/artifact", .tensors = {}};
    request.tensors.push_back({.name = "w",
                               .dtype = "U8",
                               .shape = {bytes_.size()},
                               .strides = {1},
                               .address = address,
                               .storage_address = address,
                               .storage_nbytes = bytes_.size(),
                               .role = {},
                               .attrs = {}});
    return CaptureArtifact(std::move(request), *gpu_, options);
  }
  void SetUp() override {
    const Result<WriteReport> direct = Capture({.backend = WriteBackend::kDirect, .preverified = true});
    if (direct.status().code() == Code::kRouteUnavailable)
      GTEST_SKIP() << "no direct I/O: " << direct.status().message();
    ASSERT_TRUE(direct.ok()) << direct.status().message();
    root_ = direct->artifact_root;
    std::filesystem::remove_all(temp_.path() + "/artifact");
  }
  static std::string DetailOf(const WriteReport& report, const std::string& code) {
    const auto& reasons = report.shard.reasons;
    const auto found = std::ranges::find(reasons, code, &Reason::code);
    return found == reasons.end() ? "" : found->detail;
  }

  TempDir temp_;
  std::unique_ptr<Gpu> gpu_ = OpenHostGpu();
  std::vector<std::byte> bytes_ = PatternBytes(5 * kLeafBytes + 7, 1);
  Sha256 root_{};
};

TEST_F(WriteRouteTest, ARefusedTrialWriteMakesAutoBufferedAndSaysSo) {
  for (const int error : {EINVAL, EOPNOTSUPP}) {
    const ScopedFault trial(FaultPoint::kPwrite, {.error = error});
    const Result<WriteReport> report = Capture({});
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(trial.fired(), 1U);
    EXPECT_EQ(report->shard.route, Route::kBuffered);
    EXPECT_THAT(DetailOf(*report, "direct_refused_probe"), HasSubstr("a trial write fails"));
    EXPECT_EQ(report->artifact_root, root_);
    std::filesystem::remove_all(temp_.path() + "/artifact");
  }
}

TEST_F(WriteRouteTest, ARefusedTrialWriteEndsAnExplicitDirect) {
  const ScopedFault trial(FaultPoint::kPwrite, {.error = EINVAL});
  const Status status = Capture({.backend = WriteBackend::kDirect}).status();
  EXPECT_EQ(trial.fired(), 1U);
  EXPECT_EQ(status.code(), Code::kRouteUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("the file opens, but a trial write fails"));
  EXPECT_THAT(status.remedy(), HasSubstr("use backend buffered or auto"));
  EXPECT_TRUE(std::filesystem::is_empty(temp_.path()));
}

TEST_F(WriteRouteTest, AFullDriveIsNoReasonForAnotherRoute) {
  const ScopedFault trial(FaultPoint::kPwrite, {.error = ENOSPC});
  EXPECT_EQ(Capture({}).status().code(), Code::kNoSpace);
  EXPECT_EQ(trial.fired(), 1U);
  EXPECT_TRUE(std::filesystem::is_empty(temp_.path()));
}

TEST_F(WriteRouteTest, WithoutDirectReadsAPreverifiedCaptureEmptiesThePageCache) {
  const ScopedFault trial(FaultPoint::kPread, {.error = EINVAL});
  const Result<WriteReport> report = Capture({.backend = WriteBackend::kBuffered, .preverified = true});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(trial.fired(), 1U);
  EXPECT_THAT(DetailOf(*report, "direct_refused_probe"), HasSubstr("a trial read fails"));
  EXPECT_EQ(report->artifact_root, root_);
}

TEST_F(WriteRouteTest, ADamagedRereadIsFoundByThatWayToo) {
  const ScopedFault trial(FaultPoint::kPread, {.error = EINVAL});
  const ScopedFault cut(FaultPoint::kPread, {.kind = FaultKind::kNothing, .on_call = 3});
  const Status status = Capture({.backend = WriteBackend::kBuffered, .preverified = true}).status();
  EXPECT_EQ(cut.fired(), 1U);
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_TRUE(std::filesystem::is_empty(temp_.path()));
}

// The trial reads are two; then comes what was written, the header first.
TEST_F(WriteRouteTest, ABitThatTheDriveGivesBackWrongIsFoundBeforeAnythingIsPublished) {
  const std::vector<std::string> said = {"byte 0 is not the header", "compare extent 0 (w) with what was captured"};
  for (size_t i = 0; i < said.size(); ++i) {
    const ScopedFault wrong(FaultPoint::kPread, {.kind = FaultKind::kFlipped, .on_call = 3 + i});
    const Status status = Capture({.preverified = true}).status();
    EXPECT_EQ(wrong.fired(), 1U);
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr(said[i]));
    EXPECT_TRUE(std::filesystem::is_empty(temp_.path()));
  }
}

}  // namespace
}  // namespace coldsnap
