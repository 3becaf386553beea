#include "cc/publish/incoming.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "cc/publish/publish_artifact.h"
#include "cc/testing/end_child.h"
#include "cc/testing/fault.h"
#include "cc/testing/temp_dir.h"

namespace coldsnap {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class IncomingTest : public testing::Test {
 protected:
  Result<Incoming> Create(const std::string& name = "building") { return Incoming::Create(temp_.path(), name); }
  std::string Path(const std::string& name) const { return temp_.path() + "/" + name; }

  // A process that builds under `name` and is killed with its folder half full.
  void LeaveBehind(const std::string& name) {
    const pid_t child = ::fork();
    if (child == 0) {
      const Result<Incoming> incoming = Create(name);
      if (incoming.ok()) temp_.Write(name + "/half", "half");
      ::kill(::getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(fs::exists(Path(name) + "/half"));
  }

  TempDir temp_;
};

// A user who clears away a folder while a capture in it comes to its end: both want it gone, so nobody complains.
TEST_F(IncomingTest, AFolderThatSomebodyElseRemovesAtTheSameTimeIsNoError) {
  testing::internal::CaptureStderr();
  for (int round = 0; round < 20; ++round) {
    Result<Incoming> incoming = Create();
    ASSERT_TRUE(incoming.ok()) << incoming.status().message();
    for (int file = 0; file < 200; ++file) temp_.Write(StrCat("building/", file), "");
    std::jthread other([&] {
      for (int file = 0; file < 200; ++file) ::unlink(Path(StrCat("building/", file)).c_str());
    });
    {
      const Incoming closed = *std::move(incoming);
    }
    other.join();
    EXPECT_FALSE(fs::exists(Path("building")));
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(IncomingTest, TheFolderIsTheOwnersAndGoesWithTheObject) {
  {
    const Result<Incoming> incoming = Create();
    ASSERT_TRUE(incoming.ok()) << incoming.status().message();
    struct stat info{};
    ASSERT_EQ(::stat(incoming->path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0700U);
    temp_.Write("building/file", "bytes");
  }
  EXPECT_TRUE(fs::is_empty(temp_.path()));
}

TEST_F(IncomingTest, ALiveBuilderIsNotDisturbed) {
  const Result<Incoming> first = Create();
  ASSERT_TRUE(first.ok());
  temp_.Write("building/file", "bytes");
  const Status second = Create().status();
  EXPECT_EQ(second.code(), Code::kPolicyRefused);
  EXPECT_THAT(second.message(), HasSubstr("another capture is building there"));
  EXPECT_EQ(*Incoming::RemoveStale(temp_.path()), 0U);
  EXPECT_EQ(temp_.Read("building/file"), "bytes");
  EXPECT_TRUE(Create("other").ok());
}

TEST_F(IncomingTest, WhatAKilledBuilderLeftIsRemoved) {
  LeaveBehind("building");
  const Result<Incoming> next = Create();
  ASSERT_TRUE(next.ok()) << next.status().message();
  EXPECT_TRUE(fs::is_empty(next->path()));
}

TEST_F(IncomingTest, RemoveStaleTakesWhatIsNobodysAlone) {
  LeaveBehind("a");
  LeaveBehind("b");
  const Result<Incoming> live = Create("c");
  temp_.Write("without a lock", "kept");
  fs::create_directory(Path("folder"));
  EXPECT_EQ(*Incoming::RemoveStale(temp_.path()), 2U);
  std::set<std::string> left;
  for (const auto& entry : fs::directory_iterator(temp_.path())) left.insert(entry.path().filename());
  EXPECT_THAT(left, testing::ElementsAre("c", "c.lock", "folder", "without a lock"));
}

// RemoveStale of another process has the lock of what it takes for an ended capture's, and may have it just when this
// one has made the file.
TEST_F(IncomingTest, WhoeverCleansUpIsNotTakenForABuilder) {
  const std::string lock = temp_.Write("building.lock", "");
  const int fd = ::open(lock.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(fd, LOCK_EX | LOCK_NB), 0);
  bool done = false;
  std::thread cleaner([&] {
    ::usleep(100'000);
    done = true;
    ::unlink(lock.c_str());
    ::close(fd);
  });
  const Result<Incoming> incoming = Create();
  EXPECT_TRUE(done) << "it did not wait";
  cleaner.join();
  ASSERT_TRUE(incoming.ok()) << incoming.status().message();
  EXPECT_TRUE(fs::exists(lock));
}

TEST_F(IncomingTest, AForkedChildLeavesItsParentsFolder) {
  std::optional<Incoming> incoming(*Create());
  const pid_t child = ::fork();
  if (child == 0) {
    incoming.reset();
    EndChild(fs::exists(Path("building")) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Create().status().code(), Code::kPolicyRefused) << "the parent's lock is gone";
}

TEST_F(IncomingTest, AChildThatLivesOnDoesNotKeepTheLock) {
  std::optional<Incoming> incoming(*Create());
  std::array<int, 2> gate{};
  ASSERT_EQ(::pipe(gate.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char byte = 0;
    ::close(gate[1]);
    ::_exit(static_cast<int>(::read(gate[0], &byte, 1)));  // 0 once the parent has seen what it wants to see
  }
  incoming.reset();
  EXPECT_TRUE(Create().ok());
  ::close(gate[1]);
  ::close(gate[0]);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(IncomingTest, MovesOnceAndReplacesNothing) {
  temp_.Write("taken", "kept");
  {
    Incoming incoming = *Create();
    const Status status = std::move(incoming).MoveTo(Path("taken"));
    EXPECT_EQ(status.code(), Code::kExists);
  }
  EXPECT_EQ(temp_.Read("taken"), "kept");
  fs::create_directory(Path("empty"));
  {
    Incoming incoming = *Create();
    EXPECT_EQ(std::move(incoming).MoveTo(Path("empty")).code(), Code::kExists) << "not even an empty folder";
  }
  {
    Incoming incoming = *Create();
    temp_.Write("building/file", "bytes");
    ASSERT_TRUE(std::move(incoming).MoveTo(Path("done")).ok());
  }
  EXPECT_EQ(temp_.Read("done/file"), "bytes");
  EXPECT_FALSE(fs::exists(Path("building")) || fs::exists(Path("building.lock")));
}

TEST_F(IncomingTest, AnotherFileSystemIsRefused) {
  if (!fs::is_directory("/dev/shm")) GTEST_SKIP() << "there is no /dev/shm";
  const TempDir memory("/dev/shm");
  struct stat here{};
  struct stat there{};
  ASSERT_EQ(::stat(temp_.path().c_str(), &here), 0);
  ASSERT_EQ(::stat(memory.path().c_str(), &there), 0);
  if (here.st_dev == there.st_dev) GTEST_SKIP() << "the test's folder is in /dev/shm, too";
  Incoming incoming = *Create();
  const Status status = std::move(incoming).MoveTo(memory.path() + "/done");
  EXPECT_EQ(status.native(), EXDEV);
  EXPECT_THAT(status.remedy(), HasSubstr("on the file system of the destination"));
  EXPECT_TRUE(fs::is_empty(memory.path()));
}

TEST_F(IncomingTest, ImpossibleNamesAreRefused) {
  EXPECT_EQ(Create("").status().code(), Code::kRequestInvalid);
  EXPECT_EQ(Create("a/b").status().code(), Code::kRequestInvalid);
  EXPECT_EQ(Incoming::Create(Path("none"), "building").status().code(), Code::kRequestInvalid);
  EXPECT_TRUE(fs::is_empty(temp_.path()));
}

TEST_F(IncomingTest, WhoKeepsShardsLosesTheFilesBesideThem) {
  LeaveBehind("building");
  fs::create_directory(Path("building") + "/shard-00-00-00");
  temp_.Write("building/shard-00-00-00/journal", "kept");
  const Result<Incoming> next = Incoming::Create(temp_.path(), "building", true);
  ASSERT_TRUE(next.ok()) << next.status().message();
  EXPECT_FALSE(fs::exists(Path("building/half")));
  EXPECT_EQ(temp_.Read("building/shard-00-00-00/journal"), "kept");
}

TEST_F(IncomingTest, AFolderWhoseLockCanNotBeAskedForIsNotRemoved) {
  LeaveBehind("building");
  const ScopedFault fault(FaultPoint::kFlock, {.error = EIO});
  const Status status = Incoming::RemoveStale(temp_.path()).status();
  EXPECT_EQ(fault.fired(), 1U);
  EXPECT_EQ(status.native(), EIO);
  EXPECT_EQ(temp_.Read("building/half"), "half");
}

// Neither the move could be made durable nor could it be taken back.
TEST_F(IncomingTest, AMoveThatMayNotLastLeavesNothingAtTheDestination) {
  Incoming incoming = *Create();
  temp_.Write("building/file", "bytes");
  const ScopedFault sync(FaultPoint::kFsync, {.error = EIO});
  const ScopedFault back(FaultPoint::kRenameat2, {.error = EIO, .on_call = 2});
  const Status status = std::move(incoming).MoveTo(Path("done"));
  EXPECT_EQ(sync.fired(), 1U);
  EXPECT_EQ(back.fired(), 1U);
  EXPECT_EQ(status.native(), EIO);
  EXPECT_FALSE(fs::exists(Path("done")));
}

TEST_F(IncomingTest, WhatNoRecordListsIsNotPublished) {
  Incoming incoming = *Create();
  temp_.Write("building/extra", "");
  const Status status =
      PublishArtifact(std::move(incoming), {{.name = "shard-00-00-00"}}, "{}", "{}", Path("done")).status();
  EXPECT_EQ(status.code(), Code::kRequestInvalid);
  EXPECT_THAT(status.message(), HasSubstr("it holds extra, which no record lists"));
  EXPECT_TRUE(fs::is_empty(temp_.path()));
}

TEST_F(IncomingTest, ARecordWithoutItsFilesIsNotPublished) {
  Incoming incoming = *Create();
  fs::create_directory(incoming.path() + "/shard-00-00-00");
  temp_.Write("building/shard-00-00-00/weights.safetensors", "12345");
  temp_.Write("building/shard-00-00-00/leaves.bin", "");
  temp_.Write("building/shard-00-00-00/manifest.json", "");
  const ShardRecord record{.name = "shard-00-00-00", .blob_bytes = 6};
  const Status status = PublishArtifact(std::move(incoming), {record}, "{}", "{}", Path("done")).status();
  EXPECT_EQ(status.code(), Code::kRequestInvalid);
  EXPECT_THAT(status.message(), HasSubstr("weights.safetensors: it has 5 bytes, its record says 6"));
  EXPECT_TRUE(fs::is_empty(temp_.path()));
}

}  // namespace
}  // namespace coldsnap
