// What a cut may leave, on histories short enough to know the answer; and that the tracer sees what is done.
#include "tests/power/history.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "cc/testing/temp_dir.h"
#include "tests/power/tracer.h"

namespace coldsnap {
namespace {

// "-" for no file, else what is in it: all that a cut at the end may leave of the file `name`.
std::set<std::string> LeftOf(const History& history, const std::string& name) {
  const Cut cut = CutAfter(history, history.changes.size());
  std::set<std::string> left;
  for (size_t subset = 0; subset < size_t{1} << cut.pending.size(); ++subset) {
    std::vector<bool> kept = cut.safe;
    for (size_t i = 0; i < cut.pending.size(); ++i) kept[cut.pending[i]] = (subset >> i & 1) != 0;
    const Tree tree = TreeOf(history, kept);
    const Tree* const file = tree.At(name);
    EXPECT_EQ(file != nullptr, Appears(history, kept, name));
    left.insert(file == nullptr ? "-" : file->bytes);
  }
  return left;
}

class HistoryTest : public testing::Test {
 protected:
  void SetUp() override {
    const TempDir empty;
    const std::string why_not = Trace(empty.path(), [] { return 0; }).why_not;
    if (!why_not.empty()) GTEST_SKIP() << why_not;
  }
  std::string path(const std::string& name) const { return temp_.path() + "/" + name; }
  int Made(const std::string& name) const { return ::open(path(name).c_str(), O_WRONLY | O_CREAT | O_EXCL, 0644); }
  // What `program` did in a process of its own; the tracer saw it if that makes what there is.
  History Of(const std::function<void(int top)>& program) {
    Traced traced = Trace(temp_.path(), [&] {
      program(::open(temp_.path().c_str(), O_RDONLY | O_DIRECTORY));
      return HasFailure() ? 1 : 0;
    });
    EXPECT_EQ(traced.exit_code, 0);
    EXPECT_EQ(TreeOf(traced.history, std::vector<bool>(traced.history.changes.size(), true)), ReadTree(temp_.path()));
    return std::move(traced.history);
  }

  TempDir temp_;
};

TEST_F(HistoryTest, NothingSyncedIsAnythingOfIt) {
  const History history = Of([&](int /*top*/) {
    const int fd = Made("a");
    ASSERT_EQ(::pwrite(fd, "xy", 2, 0), 2);
  });
  EXPECT_EQ(LeftOf(history, "a"), (std::set<std::string>{"-", "", std::string(2, '\0'), "xy"}));
}

TEST_F(HistoryTest, ASyncedFileMayLackItsName) {
  const History history = Of([&](int /*top*/) {
    const int fd = Made("a");
    ASSERT_EQ(::pwrite(fd, "xy", 2, 0), 2);
    ASSERT_EQ(::fsync(fd), 0);
  });
  EXPECT_EQ(LeftOf(history, "a"), (std::set<std::string>{"-", "xy"}));
}

TEST_F(HistoryTest, ASyncedNameMayLackItsBytes) {
  const History history = Of([&](int top) {
    const int fd = Made("a");
    ASSERT_EQ(::pwrite(fd, "xy", 2, 0), 2);
    ASSERT_EQ(::fsync(top), 0);
  });
  EXPECT_EQ(LeftOf(history, "a"), (std::set<std::string>{"", std::string(2, '\0'), "xy"}));
}

TEST_F(HistoryTest, BothSyncedIsThere) {
  const History history = Of([&](int top) {
    const int fd = Made("a");
    ASSERT_EQ(::pwrite(fd, "xy", 2, 0), 2);
    ASSERT_EQ(::fdatasync(fd), 0);
    ASSERT_EQ(::fsync(top), 0);
  });
  EXPECT_EQ(LeftOf(history, "a"), (std::set<std::string>{"xy"}));
}

TEST_F(HistoryTest, ASyncDoesNotCountForWhatComesAfterIt) {
  const History history = Of([&](int top) {
    const int fd = Made("a");
    ASSERT_EQ(::pwrite(fd, "xy", 2, 0), 2);
    ASSERT_EQ(::fsync(fd), 0);
    ASSERT_EQ(::fsync(top), 0);
    ASSERT_EQ(::pwrite(fd, "z", 1, 0), 1);
  });
  EXPECT_EQ(LeftOf(history, "a"), (std::set<std::string>{"xy", "zy"}));
}

TEST_F(HistoryTest, PiecesOf64KibibytesGoOneByOne) {
  const History history = Of([&](int top) {
    const int fd = Made("a");
    const std::string bytes(3 * 65536, 'x');
    ASSERT_EQ(::fallocate(fd, 0, 0, static_cast<off_t>(bytes.size())), 0);
    ASSERT_EQ(::fsync(fd), 0);
    ASSERT_EQ(::fsync(top), 0);
    ASSERT_EQ(::pwrite(fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  });
  EXPECT_EQ(LeftOf(history, "a").size(), 8U);
}

TEST_F(HistoryTest, SyncFileRangeIsNoSync) {
  const History history = Of([&](int top) {
    const int fd = Made("a");
    ASSERT_EQ(::pwrite(fd, "xy", 2, 0), 2);
    ASSERT_EQ(::fsync(top), 0);
    ASSERT_EQ(::sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER), 0);
  });
  EXPECT_EQ(LeftOf(history, "a").size(), 3U);
}

TEST_F(HistoryTest, AMoveIsBothEndsOrNone) {
  const History history = Of([&](int top) {
    const int fd = Made("a");
    ASSERT_EQ(::pwrite(fd, "xy", 2, 0), 2);
    ASSERT_EQ(::fsync(fd), 0);
    ASSERT_EQ(::fsync(top), 0);
    ASSERT_EQ(::rename(path("a").c_str(), path("b").c_str()), 0);
  });
  EXPECT_EQ(LeftOf(history, "a"), (std::set<std::string>{"-", "xy"}));
  EXPECT_EQ(LeftOf(history, "b"), (std::set<std::string>{"-", "xy"}));
  const Cut cut = CutAfter(history, history.changes.size());
  EXPECT_EQ(cut.pending.size(), 1U);
}

TEST_F(HistoryTest, FoldersModesSizesAndRemovals) {
  const History history = Of([&](int /*top*/) {
    ASSERT_EQ(::mkdir(path("folder").c_str(), 0700), 0);
    const int fd = Made("folder/a");
    ASSERT_EQ(::write(fd, "xyz", 3), 3);
    ASSERT_EQ(::write(fd, "xyz", 3), 3);
    ASSERT_EQ(::ftruncate(fd, 4), 0);
    ASSERT_EQ(::fchmod(fd, 0444), 0);
    ASSERT_EQ(::link(path("folder/a").c_str(), path("linked").c_str()), 0);
    ::close(Made("gone"));
    ASSERT_EQ(::unlink(path("gone").c_str()), 0);
    ASSERT_EQ(::mkdir(path("no-folder").c_str(), 0700), 0);
    ASSERT_EQ(::rmdir(path("no-folder").c_str()), 0);
    ASSERT_EQ(::fdatasync(fd), 0);  // all but the mode
  });
  std::vector<bool> kept = CutAfter(history, history.changes.size()).safe;
  EXPECT_EQ(TreeOf(history, kept).entries.size(), 0U);
  for (size_t i = 0; i < kept.size(); ++i) kept[i] = kept[i] || history.changes[i].kind == Change::Kind::kEntry;
  const Tree left = TreeOf(history, kept);
  ASSERT_NE(left.At("folder/a"), nullptr);
  EXPECT_EQ(left.At("folder/a")->bytes, "xyzx");
  EXPECT_EQ(left.At("folder/a")->mode, 0644U);
  EXPECT_EQ(left.At("linked")->bytes, "xyzx");
}

}  // namespace
}  // namespace coldsnap
