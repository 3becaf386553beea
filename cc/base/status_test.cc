#include "cc/base/status.h"

#include <cerrno>
#include <set>
#include <string>

#include "gtest/gtest.h"

namespace coldsnap {
namespace {

TEST(StatusTest, ErrnoKeepsItsNumberAndSaysWhatWasDone) {
  const Status status = Status::FromErrno(EIO, "read 4096 bytes at offset 0 of weights.safetensors");
  EXPECT_EQ(status.code(), Code::kIo);
  EXPECT_EQ(status.domain(), Domain::kErrno);
  EXPECT_EQ(status.native(), EIO);
  EXPECT_EQ(status.message(), "read 4096 bytes at offset 0 of weights.safetensors: Input/output error");
}

TEST(StatusTest, SpaceMemoryAndExistingHaveTheirOwnCodes) {
  EXPECT_EQ(Status::FromErrno(ENOSPC, "w").code(), Code::kNoSpace);
  EXPECT_EQ(Status::FromErrno(EDQUOT, "w").code(), Code::kNoSpace);
  EXPECT_EQ(Status::FromErrno(ENOMEM, "w").code(), Code::kOutOfMemory);
  EXPECT_EQ(Status::FromErrno(EEXIST, "w").code(), Code::kExists);
}

TEST(StatusTest, TheLayerNearestToTheFailureNamesStageAndRemedy) {
  const Status status = Status(Code::kIo, "inner").WithStage("file").WithRemedy("a").Prefixed("outer: ");
  const Status again = Status(status).WithStage("hydrate").WithRemedy("b");
  EXPECT_EQ(again.stage(), "file");
  EXPECT_EQ(again.remedy(), "a");
  EXPECT_EQ(again.message(), "outer: inner");
}

TEST(StatusTest, ChangingACopyLeavesTheOriginal) {
  const Status original(Code::kIo, "inner");
  const Status changed = Status(original).Prefixed("outer: ");
  EXPECT_EQ(original.message(), "inner");
  EXPECT_EQ(changed.message(), "outer: inner");
}

TEST(StatusTest, OkStaysOk) {
  const Status status = Status::Ok().WithStage("file").Prefixed("outer: ");
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.message(), "");
}

TEST(StatusTest, EveryCodeHasItsOwnName) {
  std::set<std::string> names;
  for (int code = 0; code <= static_cast<int>(Code::kCancelled); ++code) {
    names.insert(std::string(CodeName(static_cast<Code>(code))));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(Code::kCancelled) + 1);
}

Result<int> Half(int value) {
  if (value % 2 != 0) return Status(Code::kRequestInvalid, StrCat(value, " is odd"));
  return value / 2;
}

Result<int> Quarter(int value) {
  ASSIGN_OR_RETURN(const int half, Half(value));
  return Half(half);
}

TEST(ResultTest, PassesValuesAndFailuresOn) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Quarter(6).status().message(), "3 is odd");
}

}  // namespace
}  // namespace coldsnap
