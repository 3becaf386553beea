// A real file system that is too small, mounted for this test alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cc/base/check.h"
#include "cc/base/units.h"
#include "cc/capture/write_artifact.h"
#include "cc/testing/pattern.h"
#include "cc/testing/temp_dir.h"

namespace coldsnap {
namespace {

using testing::HasSubstr;

constexpr uint64_t kFileSystemBytes = 4 * kMiB;

// Why a file system can't be mounted at `path`; empty once it is. In a mount namespace of this process's own.
std::string MountSmall(const std::string& path) {
  if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
    return StrCat("a mount namespace: ", std::strerror(errno));
  }
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return StrCat("private mounts: ", std::strerror(errno));
  }
  const std::string size = StrCat("size=", kFileSystemBytes);
  if (::mount("small", path.c_str(), "tmpfs", 0, size.c_str()) != 0) {
    return StrCat("a tmpfs of ", kFileSystemBytes, " bytes: ", std::strerror(errno));
  }
  return "";
}

class NoSpaceTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    temp_ = new TempDir;
    why_not_ = new std::string(MountSmall(temp_->path()));
  }
  static void TearDownTestSuite() {
    if (why_not_->empty()) ::umount(temp_->path().c_str());
    delete temp_;
    delete why_not_;
  }
  void SetUp() override {
    if (!why_not_->empty()) GTEST_SKIP() << "not allowed here: " << *why_not_;
  }

  static uint64_t FreeBytes() {
    struct statvfs info{};
    COLDSNAP_CHECK(::statvfs(temp_->path().c_str(), &info) == 0);
    return info.f_bavail * info.f_frsize;
  }
  static Status Capture(const std::vector<std::byte>& bytes) {
    const auto address = reinterpret_cast<uint64_t>(bytes.data());
    WriteRequest request{.path = temp_->path() + "/artifact", .tensors = {}};
    request.tensors.push_back({.name = "w",
                               .dtype = "U8",
                               .shape = {bytes.size()},
                               .strides = {1},
                               .address = address,
                               .storage_address = address,
                               .storage_nbytes = bytes.size(),
                               .role = {},
                               .attrs = {}});
    return WriteHostArtifact(std::move(request)).status();
  }

  static TempDir* temp_;
  static std::string* why_not_;
};
TempDir* NoSpaceTest::temp_ = nullptr;
std::string* NoSpaceTest::why_not_ = nullptr;

TEST_F(NoSpaceTest, ABlobThatDoesNotFitIsRefusedBeforeAByteIsWritten) {
  const uint64_t before = FreeBytes();
  const Status status = Capture(PatternBytes(2 * kFileSystemBytes, 1));
  EXPECT_EQ(status.code(), Code::kNoSpace);
  EXPECT_EQ(status.native(), ENOSPC);
  EXPECT_THAT(status.message(), HasSubstr(StrCat("reserve ", 2 * kFileSystemBytes + kLeafBytes, " bytes for weights")));
  EXPECT_THAT(status.message(), HasSubstr("bytes available)"));
  EXPECT_THAT(status.remedy(), HasSubstr("make room"));
  EXPECT_EQ(FreeBytes(), before);
  EXPECT_TRUE(std::filesystem::is_empty(temp_->path()));
}

TEST_F(NoSpaceTest, RoomForTheBlobAloneIsNotEnough) {
  const std::vector<std::byte> bytes = PatternBytes(kMiB, 1);
  const std::string ballast = temp_->path() + "/ballast";
  // What is left takes the blob (its header is 64 KiB) and no page more.
  std::ofstream(ballast, std::ios::binary) << std::string(FreeBytes() - kMiB - kLeafBytes, 'x');
  const uint64_t before = FreeBytes();
  const Status status = Capture(bytes);
  EXPECT_EQ(status.code(), Code::kNoSpace);
  EXPECT_THAT(status.message(), HasSubstr("leaves.bin"));
  EXPECT_EQ(FreeBytes(), before) << "the blob's room was not given back";

  std::filesystem::remove(ballast);
  EXPECT_TRUE(Capture(bytes).ok());
  std::filesystem::remove_all(temp_->path() + "/artifact");
}

}  // namespace
}  // namespace coldsnap
