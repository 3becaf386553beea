#include "cc/base/hex.h"

#include "gtest/gtest.h"

namespace coldsnap {
namespace {

TEST(HexTest, RoundTrips) {
  Sha256 digest;
  for (size_t i = 0; i < digest.size(); ++i) digest[i] = static_cast<std::byte>(7 * i + 240);
  EXPECT_EQ(Sha256FromHex(ToHex(digest)), digest);
  EXPECT_EQ(ToHex(0x00c0ffeeU), "00c0ffee");
  EXPECT_EQ(Crc32FromHex("00c0ffee"), 0x00c0ffeeU);
}

TEST(HexTest, RefusesAnythingButLowerCaseDigitsOfTheRightLength) {
  EXPECT_FALSE(Crc32FromHex("00C0FFEE"));
  EXPECT_FALSE(Crc32FromHex("c0ffee"));
  EXPECT_FALSE(Crc32FromHex("0x00c0ff"));
  EXPECT_FALSE(Sha256FromHex("00"));
  EXPECT_FALSE(Sha256FromHex(std::string(63, '0') + "g"));
}

TEST(UnitsTest, LeavesAndAlignment) {
  EXPECT_EQ(LeavesOf(0), 0U);
  EXPECT_EQ(LeavesOf(1), 1U);
  EXPECT_EQ(LeavesOf(kLeafBytes), 1U);
  EXPECT_EQ(LeavesOf(kLeafBytes + 1), 2U);
  EXPECT_EQ(AlignUp(1, 512), 512U);
  EXPECT_EQ(AlignDown(1023, 512), 512U);
  EXPECT_TRUE(IsAligned(0, 4096));
}

}  // namespace
}  // namespace coldsnap
