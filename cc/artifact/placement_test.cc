#include "cc/artifact/placement.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace coldsnap {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Placement MustPlace(const std::vector<uint64_t>& nbytes) {
  auto placement = PlaceExtents(nbytes);
  EXPECT_TRUE(placement.ok()) << placement.status().message();
  return *std::move(placement);
}

TEST(PlacementTest, NothingTakesNothing) { EXPECT_EQ(MustPlace({}).data_bytes, 0U); }

TEST(PlacementTest, LargeExtentsStartAtMultiplesOf65536) {
  const Placement placement = MustPlace({65536, 65537, 131072, 131073});
  EXPECT_THAT(placement.offsets, ElementsAre(0, 65536, 3 * 65536, 5 * 65536));
  EXPECT_EQ(placement.data_bytes, 8U * 65536);
  EXPECT_EQ(placement.large_count, 4U);
  EXPECT_TRUE(placement.small_groups.empty());
}

TEST(PlacementTest, SmallExtentsStartAtMultiplesOf512InOneGroup) {
  const Placement placement = MustPlace({70000, 1, 511, 512, 513, 65535});
  EXPECT_THAT(placement.offsets, ElementsAre(0, 131072, 131584, 132096, 132608, 133632));
  ASSERT_EQ(placement.small_groups.size(), 1U);
  EXPECT_EQ(placement.small_groups[0].begin, 131072U);
  EXPECT_EQ(placement.small_groups[0].end, 262144U);  // 133632 + 65535 = 199167, padded
  EXPECT_EQ(placement.data_bytes, 262144U);
}

// 127 x 32768 bytes leave exactly 32768 of the 4 MiB.
TEST(PlacementTest, AGroupTakesWhatEndsExactlyAt4MiB) {
  std::vector<uint64_t> nbytes(128, 32768);
  EXPECT_EQ(MustPlace(nbytes).small_groups.size(), 1U);
  EXPECT_EQ(MustPlace(nbytes).data_bytes, 4 * kMiB);
  nbytes.back() += 1;
  const Placement placement = MustPlace(nbytes);
  ASSERT_EQ(placement.small_groups.size(), 2U);
  EXPECT_EQ(placement.small_groups[0].end_extent, 127U);
  EXPECT_EQ(placement.small_groups[0].end, 4 * kMiB);
  EXPECT_EQ(placement.offsets.back(), 4 * kMiB);
  EXPECT_EQ(placement.data_bytes, 4 * kMiB + 65536);
}

TEST(PlacementTest, AGroupIsPaddedTo65536NotTo4MiB) {
  std::vector<uint64_t> nbytes(63, 65535);  // 63 x 65536 = 4128768; one more fits, the next doesn't
  nbytes.push_back(65000);
  nbytes.push_back(600);
  const Placement placement = MustPlace(nbytes);
  ASSERT_EQ(placement.small_groups.size(), 2U);
  EXPECT_EQ(placement.small_groups[0].end, 4 * kMiB);
  nbytes.resize(60);
  nbytes.push_back(1);
  EXPECT_EQ(MustPlace(nbytes).data_bytes, 61U * 65536);
}

TEST(PlacementTest, RefusesWhatIsNoLayout) {
  const auto message = [](std::vector<uint64_t> nbytes) { return PlaceExtents(nbytes).status().message(); };
  EXPECT_THAT(message({65536, 0}), HasSubstr("extent 1 has no bytes"));
  EXPECT_THAT(message({5, 65536}), HasSubstr("extent 1 with 65536 bytes stands after extent 0 with 5 bytes"));
  EXPECT_THAT(message({kMaxInteger + 1}), HasSubstr("past 2^53-1"));
  EXPECT_THAT(message({kMaxInteger}), HasSubstr("extents 0 to 0 with their padding pass 2^53-1"));
  EXPECT_THAT(message({kMaxInteger / 2, kMaxInteger / 2, kMaxInteger / 2}), HasSubstr("extents 0 to 1"));
  EXPECT_THAT(message({UINT64_MAX}), HasSubstr("past 2^53-1"));
}

}  // namespace
}  // namespace coldsnap
