#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "cc/base/units.h"
#include "cc/sys/files.h"
#include "cc/sys/memory.h"
#include "cc/testing/temp_dir.h"
#include "gtest/gtest.h"

namespace coldsnap {
namespace {

class FilesTest : public testing::Test {
 protected:
  int dir() { return dir_fd_.get(); }

  TempDir temp_;
  UniqueFd dir_fd_ = *OpenDirectory(temp_.path());
};

TEST_F(FilesTest, ReadsExactlyAndSaysWhereTheFileEnds) {
  temp_.Write("f", "0123456789");
  const UniqueFd fd = *OpenFileAt(dir(), "f");
  std::string into(4, '\0');
  ASSERT_TRUE(ReadExact(fd.get(), std::as_writable_bytes(std::span(into)), 3, "f").ok());
  EXPECT_EQ(into, "3456");
  const Status status = ReadExact(fd.get(), std::as_writable_bytes(std::span(into)), 8, "f");
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_EQ(status.message(), "read 4 bytes at offset 8 of f: the file ends after 2 of them");
}

TEST_F(FilesTest, WritesExactly) {
  const UniqueFd fd(::openat(dir(), "w", O_RDWR | O_CREAT, 0600));
  const std::string text = "hello";
  ASSERT_TRUE(WriteExact(fd.get(), std::as_bytes(std::span(text)), 2, "w").ok());
  EXPECT_EQ(*ReadSmallFile(dir(), "w", 100), std::string("\0\0hello", 7));
  const Status status = WriteExact(-1, std::as_bytes(std::span(text)), 0, "w");
  EXPECT_EQ(status.native(), EBADF);
}

TEST_F(FilesTest, RefusesLinksDirectoriesAndFifos) {
  temp_.Write("real", "x");
  ASSERT_EQ(::symlinkat("real", dir(), "link"), 0);
  ASSERT_EQ(::mkfifoat(dir(), "fifo", 0600), 0);
  ASSERT_EQ(::mkdirat(dir(), "sub", 0700), 0);
  EXPECT_EQ(OpenFileAt(dir(), "link").status().native(), ELOOP);
  EXPECT_FALSE(OpenFileAt(dir(), "link").status().remedy().empty());
  EXPECT_EQ(OpenFileAt(dir(), "fifo").status().code(), Code::kFormatInvalid);
  EXPECT_EQ(OpenFileAt(dir(), "sub").status().code(), Code::kFormatInvalid);
  EXPECT_EQ(OpenFileAt(dir(), "absent").status().native(), ENOENT);
  ASSERT_EQ(::symlinkat("sub", dir(), "sublink"), 0);
  EXPECT_FALSE(OpenDirectoryAt(dir(), "sublink").ok());
  EXPECT_TRUE(OpenDirectoryAt(dir(), "sub").ok());
}

TEST_F(FilesTest, AWrongPathIsTheRequestsFault) {
  EXPECT_EQ(OpenDirectory(temp_.path() + "/absent").status().code(), Code::kRequestInvalid);
  temp_.Write("f", "x");
  EXPECT_EQ(OpenDirectory(temp_.path() + "/f").status().code(), Code::kRequestInvalid);
}

TEST_F(FilesTest, SmallFilesHaveALimit) {
  temp_.Write("f", "0123456789");
  EXPECT_EQ(*ReadSmallFile(dir(), "f", 10), "0123456789");
  EXPECT_EQ(ReadSmallFile(dir(), "f", 9).status().code(), Code::kFormatInvalid);
}

TEST_F(FilesTest, ResidencyCountsWhatIsCached) {
  temp_.Write("f", std::string(1 * kMiB + 5, 'x'));
  const UniqueFd fd = *OpenFileAt(dir(), "f");
  EXPECT_EQ(*ResidentBytes(fd.get(), 1 * kMiB + 5, "f"), 1 * kMiB + 5);  // just written
  EXPECT_EQ(*ResidentBytes(fd.get(), 0, "f"), 0U);
}

TEST_F(FilesTest, ResidencyOfARangeCountsThatRange) {
  temp_.Write("f", std::string(1 * kMiB + 5, 'x'));
  const UniqueFd fd = *OpenFileAt(dir(), "f");
  if (IsMemoryBacked(fd.get())) GTEST_SKIP() << "the test's folder is in memory, so nothing can be dropped from it";
  ASSERT_EQ(::fsync(fd.get()), 0);  // dirty pages are not dropped
  ASSERT_EQ(::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
  ASSERT_EQ(::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_RANDOM), 0);  // no reading ahead
  std::string into(512 * kKiB, '\0');
  ASSERT_TRUE(ReadExact(fd.get(), std::as_writable_bytes(std::span(into)), 0, "f").ok());
  EXPECT_EQ(*ResidentBytes(fd.get(), 0, 512 * kKiB, "f"), 512 * kKiB);
  EXPECT_EQ(*ResidentBytes(fd.get(), 512 * kKiB, 512 * kKiB, "f"), 0U);
  EXPECT_EQ(*ResidentBytes(fd.get(), 448 * kKiB, 128 * kKiB, "f"), 64 * kKiB);
  EXPECT_EQ(*ResidentBytes(fd.get(), 0, 1 * kMiB + 5, "f"), 512 * kKiB);
}

TEST_F(FilesTest, KnowsMemoryBackedFileSystems) {
  const UniqueFd shm = *OpenDirectory("/dev/shm");
  EXPECT_TRUE(IsMemoryBacked(shm.get()));
  EXPECT_FALSE(IsMemoryBacked(-1));
}

TEST(MemoryTest, MapsAlignedZeroedMemory) {
  const Mapping mapping = *MapTouched(5 * kMiB);
  EXPECT_EQ(mapping.get().nbytes, 6 * kMiB);
  EXPECT_TRUE(IsAligned(reinterpret_cast<uint64_t>(mapping.get().address), 2 * kMiB));
  EXPECT_EQ(BytesOf(mapping).back(), std::byte{0});
}

TEST(MemoryTest, SaysHowMuchCouldNotBeMapped) {
  const Status status = MapTouched(uint64_t{1} << 60).status();
  EXPECT_EQ(status.code(), Code::kOutOfMemory);
  EXPECT_NE(status.message().find("1152921504606846976 bytes"), std::string::npos);
}

}  // namespace
}  // namespace coldsnap
