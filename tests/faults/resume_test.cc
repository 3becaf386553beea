// A killed capture that the next one goes on with: the artifact is what the tensors are now, and what was on the drive
// is not written again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cc/base/check.h"
#include "cc/base/units.h"
#include "cc/capture/write_artifact.h"
#include "cc/device/host_gpu.h"
#include "cc/device/place.h"
#include "cc/testing/fault.h"
#include "cc/testing/pattern.h"
#include "cc/testing/seed.h"
#include "cc/testing/temp_dir.h"
#include "tests/faults/captured.h"

namespace coldsnap {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr uint64_t kWindows = 12;  // of data; the header is one more

class ResumeTest : public testing::TestWithParam<Place> {
 protected:
  std::string path() const { return temp_.path() + "/artifact"; }
  std::string left() const { return temp_.path() + "/.artifact.incoming/shard-00-00-00"; }

  Result<WriteReport> Capture(bool resume = true, bool preverified = false, uint64_t journal_bytes = kLeafBytes) {
    const std::unique_ptr<Gpu> gpu = OpenHostGpu();
    return CaptureArtifact(RequestOf(tensors_, path()), *gpu,
                           {.backend = WriteBackend::kBuffered,
                            .chunk_bytes = kLeafBytes,
                            .write_threads = 1,
                            .place = GetParam(),
                            .preverified = preverified,
                            .resume = resume,
                            .journal_bytes = journal_bytes});
  }

  // Runs a capture that is killed before call `call` of `point`.
  void KillAt(FaultPoint point, uint64_t call, uint64_t journal_bytes = kLeafBytes) {
    const pid_t child = ::fork();
    if (child == 0) {
      const ScopedFault kill(point, {.kind = FaultKind::kKill, .on_call = call});
      ::_exit(Capture(true, false, journal_bytes).ok() ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "it was not killed";
  }

  std::map<std::string, std::string> Tree() const { return FilesUnder(path()); }
  std::map<std::string, std::string> FreshTree() {
    COLDSNAP_CHECK(Capture(false).ok());
    std::map<std::string, std::string> tree = Tree();
    fs::remove_all(path());
    return tree;
  }

  // Goes on with what is left; how many windows were not written.
  uint64_t GoOn(const std::map<std::string, std::string>& expected) {
    const CallCounts counts;
    const Result<WriteReport> report = Capture();
    EXPECT_TRUE(report.ok()) << report.status().message();
    if (!report.ok()) return 0;
    EXPECT_EQ(Tree(), expected);
    fs::remove_all(path());
    EXPECT_TRUE(fs::is_empty(temp_.path()));
    for (const Reason& reason : report->shard.reasons) {
      if (reason.code == "resumed") return std::stoull(reason.detail);
    }
    return 0;
  }

  void FlipInFile(const std::string& file, uint64_t offset) const {
    std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekg(static_cast<std::streamoff>(offset));
    const char other = static_cast<char>(stream.get() ^ 0x10);
    stream.seekp(static_cast<std::streamoff>(offset));
    stream.put(other);
    ASSERT_TRUE(stream.good());
  }

  TempDir temp_;
  std::vector<std::vector<std::byte>> tensors_{PatternBytes(100, 1), PatternBytes((kWindows - 1) * kLeafBytes, 2)};
};

TEST_P(ResumeTest, GoesOnAfterAKillAtEachWriteAndSync) {
  const auto whole = FreshTree();
  const CallCounts counts;
  ASSERT_TRUE(Capture().ok());
  const std::map<FaultPoint, uint64_t> calls = {{FaultPoint::kPwrite, counts.Of(FaultPoint::kPwrite)},
                                                {FaultPoint::kFdatasync, counts.Of(FaultPoint::kFdatasync)},
                                                {FaultPoint::kFsync, counts.Of(FaultPoint::kFsync)},
                                                {FaultPoint::kUnlinkat, counts.Of(FaultPoint::kUnlinkat)}};
  fs::remove_all(path());
  EXPECT_EQ(calls.at(FaultPoint::kFdatasync), 2 * kWindows) << "blob and journal for each window";
  uint64_t most = 0;
  for (const auto& [point, count] : calls) {
    for (uint64_t call = 1; call <= count; ++call) {
      KillAt(point, call);
      if (HasFatalFailure()) return;
      if (fs::exists(path())) {  // killed after the move
        EXPECT_EQ(Tree(), whole);
        fs::remove_all(path());
      }
      most = std::max(most, GoOn(whole));
      ASSERT_FALSE(HasFailure()) << "killed before call " << call << " of " << FaultPointName(point);
    }
  }
  EXPECT_EQ(most, kWindows);
}

// Read as empty it would only cost time; but a drive that fails here is not one to capture to.
TEST_P(ResumeTest, AJournalThatCanNotBeReadEndsTheCapture) {
  const auto whole = FreshTree();
  KillAt(FaultPoint::kFdatasync, 2 * 7 + 1);
  {
    const ScopedFault fault(FaultPoint::kPread, {.error = EIO});
    const Status status = Capture().status();
    EXPECT_EQ(fault.fired(), 1U);
    EXPECT_EQ(status.native(), EIO);
    EXPECT_THAT(status.message(), HasSubstr("journal"));
    EXPECT_FALSE(fs::exists(path()));
  }
  GoOn(whole);
}

TEST_P(ResumeTest, WhatIsOnTheDriveIsNotWrittenAgain) {
  const auto whole = FreshTree();
  KillAt(FaultPoint::kFdatasync, 2 * 7 + 1);  // seven windows are recorded
  const CallCounts counts;
  EXPECT_EQ(GoOn(whole), 7U);
  // The header, the other windows, a journal record for each, and four files' descriptions.
  EXPECT_LE(counts.Of(FaultPoint::kPwrite), 1 + (kWindows - 7) + kWindows + 4);
}

TEST_P(ResumeTest, ATensorThatHasChangedIsWrittenAgain) {
  tensors_[1][3 * kLeafBytes] ^= std::byte{1};
  const auto changed = FreshTree();
  tensors_[1][3 * kLeafBytes] ^= std::byte{1};
  KillAt(FaultPoint::kFdatasync, 2 * 7 + 1);
  tensors_[1][3 * kLeafBytes] ^= std::byte{1};
  EXPECT_EQ(GoOn(changed), 6U);
}

// The first journal's record of the window would fit again, and the file has the bytes in between.
TEST_P(ResumeTest, ATensorThatHasChangedAndChangedBackIsWrittenAgain) {
  const auto whole = FreshTree();
  KillAt(FaultPoint::kFdatasync, 2 * 7 + 1);
  tensors_[1][3 * kLeafBytes] ^= std::byte{1};
  KillAt(FaultPoint::kFchmod, 2, kGiB);  // once all is written and nothing is recorded: the blob's mode comes then
  tensors_[1][3 * kLeafBytes] ^= std::byte{1};
  GoOn(whole);
}

TEST_P(ResumeTest, OtherTensorsBeginAnew) {
  KillAt(FaultPoint::kFdatasync, 2 * 7 + 1);
  tensors_.push_back(PatternBytes(300, 3));
  const Result<WriteReport> report = Capture();
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_TRUE(report->shard.reasons.empty());
  const auto tree = Tree();
  fs::remove_all(path());
  EXPECT_EQ(tree, FreshTree());
}

TEST_P(ResumeTest, WithoutResumeNothingIsTakenUp) {
  KillAt(FaultPoint::kFdatasync, 2 * 7 + 1);
  const Result<WriteReport> report = Capture(false);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_TRUE(report->shard.reasons.empty());
}

TEST_P(ResumeTest, ADamagedJournalDoesNoHarm) {
  const auto whole = FreshTree();
  std::mt19937_64 random(TestSeed(7));
  for (int round = 0; round < 60; ++round) {
    KillAt(FaultPoint::kFdatasync, 2 * 7 + 1);
    const std::string journal = left() + "/journal";
    const uint64_t nbytes = fs::file_size(journal);
    if (round % 2 == 0) {
      fs::resize_file(journal, random() % nbytes);
    } else {
      FlipInFile(journal, random() % nbytes);
    }
    EXPECT_LT(GoOn(whole), 8U);
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

TEST_P(ResumeTest, ABlobThatIsNotTheOneIsNotTakenUp) {
  const auto whole = FreshTree();
  const std::string blob = left() + "/weights.safetensors";
  KillAt(FaultPoint::kFdatasync, 2 * 7 + 1);
  fs::resize_file(blob, fs::file_size(blob) - 1);
  EXPECT_EQ(GoOn(whole), 0U);
  KillAt(FaultPoint::kFdatasync, 2 * 7 + 1);
  fs::create_hard_link(blob, temp_.path() + "/link");
  const std::string before = temp_.Read("link");
  const Result<WriteReport> linked = Capture();
  ASSERT_TRUE(linked.ok());
  EXPECT_EQ(Tree(), whole);
  EXPECT_TRUE(temp_.Read("link") == before) << "another one's file was written to";
  fs::remove_all(path());
  fs::remove(temp_.path() + "/link");
  KillAt(FaultPoint::kFdatasync, 2 * 7 + 1);
  std::ofstream(left() + "/more") << "more";
  EXPECT_EQ(GoOn(whole), 0U);
}

TEST_P(ResumeTest, PreverifiedFindsABlobThatWasDamagedInBetween) {
  KillAt(FaultPoint::kFdatasync, 2 * 7 + 1);
  FlipInFile(left() + "/weights.safetensors", 2 * kLeafBytes + 5);
  const Status status = Capture(true, true).status();
  if (status.code() == Code::kRouteUnavailable) GTEST_SKIP() << "no way past the page cache: " << status.message();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("in the file"));
  EXPECT_TRUE(fs::is_empty(temp_.path()));
}

INSTANTIATE_TEST_SUITE_P(Places, ResumeTest, testing::Values(Place::kHost, Place::kDevice),
                         [](const auto& info) { return std::string(PlaceName(info.param)); });

}  // namespace
}  // namespace coldsnap
