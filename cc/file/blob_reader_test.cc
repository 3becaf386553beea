#include "cc/file/blob_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "cc/sys/memory.h"
#include "cc/testing/pattern.h"
#include "cc/testing/temp_dir.h"
#include "gtest/gtest.h"

namespace coldsnap {
namespace {

constexpr uint64_t kBlobBytes = 4 * kLeafBytes;

class BlobReaderTest : public testing::TestWithParam<Route> {
 protected:
  BlobReaderTest() {
    const std::vector<std::byte> bytes = PatternBytes(kBlobBytes, 7);
    temp_.Write("blob", std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  Result<BlobReader> Open(Route route) { return BlobReader::Open(route, dir_.get(), "blob", blob_.get()); }

  TempDir temp_;
  UniqueFd dir_ = *OpenDirectory(temp_.path());
  UniqueFd blob_{-1};
};

TEST_P(BlobReaderTest, ReadsTheBytesThatAreThere) {
  blob_ = *OpenFileAt(dir_.get(), "blob");
  const Result<BlobReader> reader = Open(GetParam());
  if (!reader.ok() && GetParam() == Route::kDirect) {
    GTEST_SKIP() << "the test's folder has no direct I/O: " << reader.status().message();
  }
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_EQ(reader->route(), GetParam());
  const Mapping memory = *MapTouched(kBlobBytes);
  const std::span<std::byte> into = BytesOf(memory).first(2 * kLeafBytes);
  ASSERT_TRUE(reader->Read(into, kLeafBytes).ok());
  const std::vector<std::byte> whole = PatternBytes(kBlobBytes, 7);
  EXPECT_TRUE(std::equal(into.begin(), into.end(), whole.begin() + kLeafBytes));
  EXPECT_EQ(reader->Read(into, kBlobBytes - kLeafBytes).code(), Code::kDataLoss);  // past the end
}

INSTANTIATE_TEST_SUITE_P(Routes, BlobReaderTest, testing::Values(Route::kBuffered, Route::kDirect),
                         [](const auto& info) { return std::string(RouteName(info.param)); });

TEST_F(BlobReaderTest, NoticesAReplacedFile) {
  blob_ = *OpenFileAt(dir_.get(), "blob");
  ASSERT_EQ(::renameat(dir_.get(), "blob", dir_.get(), "old"), 0);
  temp_.Write("blob", std::string(kBlobBytes, 'x'));
  const Status status = Open(Route::kDirect).status();
  if (status.code() == Code::kRouteUnavailable) GTEST_SKIP() << status.message();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_NE(status.message().find("replaced"), std::string::npos);
}

TEST_F(BlobReaderTest, DirectOnAFileThatCannotSaysWhy) {
  // A file in /proc is regular and refuses O_DIRECT on every kernel.
  const UniqueFd proc = *OpenDirectory("/proc/self");
  const UniqueFd file = *OpenFileAt(proc.get(), "maps");
  const Status status = BlobReader::Open(Route::kDirect, proc.get(), "maps", file.get()).status();
  EXPECT_EQ(status.code(), Code::kRouteUnavailable);
  EXPECT_EQ(status.stage(), "file");
  EXPECT_NE(status.message().find("Invalid argument"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace coldsnap
