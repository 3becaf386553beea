// What a restore by GPUDirect Storage promises beyond the contract: admission, proof of the path, and what auto makes
// of it. The library is a stand-in.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cc/hydrate/hydrate.h"
#include "cc/sys/files.h"
#include "cc/testing/end_child.h"
#include "cc/testing/interposed_gpu.h"
#include "cc/testing/test_artifact.h"
#include "cc/testing/test_device.h"
#include "tests/contract/fake_gds.h"

namespace coldsnap {
namespace {

using testing::HasSubstr;

constexpr std::byte kBefore{0xEE};
constexpr std::byte kPoison{0xFF};

class GdsRestoreTest : public testing::Test {
 protected:
  GdsRestoreTest() : destinations_(files_.Allocate(artifact_, device_)) {}

  Result<HydrateReport> Restore(Backend backend, Verify verify = Verify::kNone) {
    return Hydrate(artifact_, TargetsOf(destinations_), device_.gpu(),
                   {.backend = backend, .verify = verify, .chunk_bytes = 128 * kKiB, .gds_driver = gds_.driver()});
  }
  void ExpectAll(std::byte value) {
    for (const auto& each : destinations_) EXPECT_TRUE(device_.AllBytesAre(each.target.range, value)) << each.name;
  }
  void ExpectRestored() {
    for (const auto& each : destinations_) EXPECT_EQ(device_.Differences(each.target.range, each.seed), 0U);
  }
  // Whether the blob could be put out of the page cache, from `offset` on.
  bool MakeCold(uint64_t offset) {
    EXPECT_EQ(::fsync(artifact_.blob_fd()), 0);
    EXPECT_EQ(::posix_fadvise(artifact_.blob_fd(), static_cast<off_t>(offset), 0, POSIX_FADV_DONTNEED), 0);
    const uint64_t rest = artifact_.manifest().blob_bytes - offset;
    return *ResidentBytes(artifact_.blob_fd(), offset, rest, "blob") < rest / 1000;
  }
  static std::vector<std::string> Codes(const HydrateReport& report) {
    std::vector<std::string> codes;
    for (const Reason& reason : report.reasons) codes.push_back(reason.code);
    return codes;
  }

  TestDevice device_;
  FakeGds gds_;
  TestArtifact files_{{4 * kMiB + 5, 100, 700, 3 * kLeafBytes}};
  OpenArtifact artifact_ = files_.Open();
  std::vector<TestArtifact::Destination> destinations_;
};

TEST_F(GdsRestoreTest, ProvesItsPath) {
  const Result<HydrateReport> report = Restore(Backend::kGds);
  ASSERT_TRUE(report.ok()) << report.status().message();
  ASSERT_TRUE(report->gds.has_value());
  EXPECT_EQ(GdsPathName(report->gds->path), "nvidia-fs");
  EXPECT_THAT(report->gds->text, HasSubstr("0 through host memory"));
  EXPECT_EQ(report->pinned_bytes, 0U);
  ExpectRestored();
}

TEST_F(GdsRestoreTest, DigestsThatNobodyCanComputeAreRefused) {
  for (const Verify verify : {Verify::kCrc32, Verify::kCrc32Sha256}) {
    const Status status = Restore(Backend::kGds, verify).status();
    EXPECT_EQ(status.code(), Code::kNotAdmitted);
    EXPECT_THAT(status.remedy(), HasSubstr("coldsnap verify --admit"));
    EXPECT_THAT(status.remedy(), HasSubstr("COLDSNAP_VERIFY_PLACE=device"));
  }
  ExpectAll(kBefore);
  EXPECT_THAT(gds_.control().calls, testing::Not(HasSubstr("read")));
}

TEST_F(GdsRestoreTest, BytesThatBouncedAreNotPublished) {
  gds_.control().bounces = true;
  const Status status = Restore(Backend::kGds).status();
  EXPECT_EQ(status.code(), Code::kRouteUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("through host memory"));
  ExpectAll(kPoison);
}

TEST_F(GdsRestoreTest, ReadsTheFileThatIsOpenAndNotTheOneThatHasItsName) {
  const TestArtifact other({4 * kMiB + 5, 100, 700, 3 * kLeafBytes});
  other.FlipBit(artifact_.manifest().extents[0].file_offset);
  ASSERT_EQ(::rename(other.blob_path().c_str(), files_.blob_path().c_str()), 0);
  const Result<HydrateReport> report = Restore(Backend::kGds);
  ASSERT_TRUE(report.ok()) << report.status().message();
  ExpectRestored();
}

TEST_F(GdsRestoreTest, AFailedReadPoisons) {
  gds_.control().read_error = 5044;
  const Status status = Restore(Backend::kGds).status();
  EXPECT_EQ(status.domain(), Domain::kGds);
  EXPECT_EQ(status.native(), 5044);
  EXPECT_EQ(status.stage(), "file");
  ExpectAll(kPoison);
}

TEST_F(GdsRestoreTest, MemoryThatCantBeRegisteredIsRefusedUntouched) {
  gds_.control().buffer_error = 5036;
  const Status status = Restore(Backend::kGds).status();
  EXPECT_EQ(status.native(), 5036);
  EXPECT_EQ(status.stage(), "device");
  ExpectAll(kBefore);
}

// A Gpu that notes which threads it was made current in.
class CurrentGpu final : public InterposedGpu {
 public:
  explicit CurrentGpu(Gpu& inner) : InterposedGpu(inner, [](int) { return Status::Ok(); }) {}
  Status MakeCurrent() override {
    const std::lock_guard lock(mutex_);
    threads.insert(std::this_thread::get_id());
    return Status::Ok();
  }
  std::set<std::thread::id> threads;

 private:
  std::mutex mutex_;
};

TEST_F(GdsRestoreTest, TheCallersThreadKeepsItsDevice) {
  CurrentGpu gpu(device_.gpu());
  const Result<HydrateReport> report =
      Hydrate(artifact_, TargetsOf(destinations_), gpu,
              {.backend = Backend::kGds, .verify = Verify::kNone, .gds_driver = gds_.driver()});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_FALSE(gpu.threads.empty());
  EXPECT_FALSE(gpu.threads.contains(std::this_thread::get_id()));
}

TEST_F(GdsRestoreTest, ShortReadsAreContinued) {
  gds_.control().longest_read = 4096;
  ASSERT_TRUE(Restore(Backend::kGds).ok());
  ExpectRestored();
}

TEST_F(GdsRestoreTest, AutoTakesItForAColdAdmittedBlob) {
  if (!MakeCold(0)) GTEST_SKIP() << "the file system keeps its files in memory";
  const Result<HydrateReport> report = Restore(Backend::kAuto);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->By(Route::kGds).nbytes, artifact_.payload_bytes());
  EXPECT_EQ(Codes(*report), std::vector<std::string>{"cold"});
  ExpectRestored();
}

TEST_F(GdsRestoreTest, AutoReadsHalfOfItFromTheCache) {
  if (!MakeCold(2 * kMiB)) GTEST_SKIP() << "the file system keeps its files in memory";
  const Result<HydrateReport> report = Restore(Backend::kAuto);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_GT(report->By(Route::kGds).nbytes, kMiB);
  EXPECT_GT(report->By(Route::kBuffered).nbytes, kMiB);
  EXPECT_EQ(Codes(*report), std::vector<std::string>{"mixed"});
  ExpectRestored();
}

// cuFile's driver belongs to the process that opened it.
TEST_F(GdsRestoreTest, AutoInAForkedChildGoesWithoutIt) {
  if (!MakeCold(0)) GTEST_SKIP() << "the file system keeps its files in memory";
  const pid_t child = ::fork();
  if (child == 0) {
    TestDevice device;  // the parent's memory is not inherited
    destinations_ = files_.Allocate(artifact_, device);
    const Result<HydrateReport> report = Restore(Backend::kAuto);
    const bool without = report.ok() && Codes(*report) == std::vector<std::string>{"cold", "gds_no_driver"} &&
                         report->By(Route::kDirect).nbytes == artifact_.payload_bytes();
    EndChild(without ? 7 : 8);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST_F(GdsRestoreTest, AutoSaysWhyNot) {
  if (!MakeCold(0)) GTEST_SKIP() << "the file system keeps its files in memory";
  const Result<HydrateReport> inline_digests = Restore(Backend::kAuto, Verify::kCrc32);
  ASSERT_TRUE(inline_digests.ok()) << inline_digests.status().message();
  EXPECT_EQ(Codes(*inline_digests), (std::vector<std::string>{"cold", "not_preverified"}));
  EXPECT_EQ(inline_digests->By(Route::kDirect).nbytes, artifact_.payload_bytes());
  gds_.control().file_error = 5027;
  ASSERT_TRUE(MakeCold(0));
  const Result<HydrateReport> no_file = Restore(Backend::kAuto);
  ASSERT_TRUE(no_file.ok()) << no_file.status().message();
  EXPECT_EQ(Codes(*no_file), (std::vector<std::string>{"cold", "gds_compat_only"}));
  EXPECT_THAT(no_file->reasons[1].detail, HasSubstr("5027"));
  ExpectRestored();
}

}  // namespace
}  // namespace coldsnap
