// A capture that is killed, at each of its calls and at any moment: the artifact is there whole, or it is not there,
// and the next capture to the same path is none the worse for it.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "cc/base/check.h"
#include "cc/base/units.h"
#include "cc/capture/write_artifact.h"
#include "cc/device/host_gpu.h"
#include "cc/sys/clock.h"
#include "cc/testing/fault.h"
#include "cc/testing/pattern.h"
#include "cc/testing/seed.h"
#include "cc/testing/temp_dir.h"
#include "tests/faults/captured.h"

namespace coldsnap {
namespace {

namespace fs = std::filesystem;

class KillTest : public testing::TestWithParam<WriteBackend> {
 protected:
  KillTest() {
    const Stopwatch watch;
    COLDSNAP_CHECK(Capture().ok());
    capture_us_ = static_cast<uint64_t>(watch.Seconds() * 1e6);
    whole_ = Tree();
    fs::remove_all(path());
  }

  std::string path() const { return temp_.path() + "/artifact"; }

  Status Capture() {
    const std::unique_ptr<Gpu> gpu = OpenHostGpu();
    return CaptureArtifact(RequestOf(tensors_, path()), *gpu,
                           {.backend = GetParam(), .chunk_bytes = kLeafBytes, .queue_depth = 2, .write_threads = 2})
        .status();
  }

  std::map<std::string, std::string> Tree() const { return FilesUnder(path()); }

  size_t Entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(temp_.path()), fs::directory_iterator()));
  }

  // What a killed child left, by `how`; then the next capture.
  void Judge(const std::string& how) {
    const std::map<std::string, std::string> left = Tree();
    if (left.empty()) {
      ++nothing_;
    } else {
      ++wholes_;
      ASSERT_EQ(left, whole_) << how << ": it is there, and not whole";
      fs::remove_all(path());
    }
    const Status next = Capture();
    ASSERT_TRUE(next.ok()) << how << ": the next one fails: " << next.message();
    ASSERT_EQ(Tree(), whole_) << how << ": the next one differs";
    ASSERT_EQ(Entries(), 1U) << how << ": something stays beside it";
    fs::remove_all(path());
  }

  TempDir temp_;
  std::vector<std::vector<std::byte>> tensors_{PatternBytes(100, 1), PatternBytes(5 * kLeafBytes + 7, 2)};
  std::map<std::string, std::string> whole_;
  uint64_t capture_us_ = 0;  // what one takes
  int nothing_ = 0;
  int wholes_ = 0;
};

TEST_P(KillTest, BeforeEachOfItsCalls) {
  const CallCounts counts;
  ASSERT_TRUE(Capture().ok());
  std::map<FaultPoint, uint64_t> calls;
  for (size_t i = 0; i < kFaultPoints; ++i) {
    const auto point = static_cast<FaultPoint>(i);
    if (!IsCudaPoint(point)) calls[point] = counts.Of(point);
  }
  fs::remove_all(path());

  int killed = 0;
  for (const auto& [point, count] : calls) {
    for (uint64_t call = 1; call <= count; ++call) {
      const pid_t child = ::fork();
      if (child == 0) {
        const ScopedFault fault(point, {.kind = FaultKind::kKill, .on_call = call});
        ::_exit(Capture().ok() ? 0 : 1);
      }
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      const std::string how = StrCat("before call ", call, " of ", count, " of ", FaultPointName(point));
      ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << how << ": it was not killed";
      ++killed;
      Judge(how);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(nothing_, 0);
  EXPECT_GT(wholes_, 0) << "no call came after the move";
  std::printf("killed at %d calls: %d times nothing was there, %d times all of it\n", killed, nothing_, wholes_);
}

TEST_P(KillTest, AtAnyMoment) {
  std::mt19937_64 random(TestSeed(std::random_device{}()));
  int ended = 0;
  for (int round = 0; round < 200; ++round) {
    const auto delay_us = static_cast<useconds_t>(random() % (2 * capture_us_ + 1));
    const pid_t child = ::fork();
    if (child == 0) ::_exit(Capture().ok() ? 0 : 1);
    ::usleep(delay_us);
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (WIFEXITED(status)) {
      ++ended;
      ASSERT_EQ(WEXITSTATUS(status), 0);
      ASSERT_EQ(Tree(), whole_);
    }
    Judge(StrCat("round ", round, ", after ", delay_us, " us"));
    if (HasFatalFailure()) return;
  }
  std::printf("of 200: %d had ended; %d times nothing was there, %d times all of it\n", ended, nothing_, wholes_);
}

INSTANTIATE_TEST_SUITE_P(Backends, KillTest, testing::Values(WriteBackend::kBuffered, WriteBackend::kAuto),
                         [](const auto& info) {
                           return std::string(info.param == WriteBackend::kBuffered ? "Buffered" : "Auto");
                         });

}  // namespace
}  // namespace coldsnap
