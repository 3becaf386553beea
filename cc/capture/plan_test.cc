#include "cc/capture/plan.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "cc/base/units.h"
#include "cc/testing/seed.h"

namespace coldsnap {
namespace {

Layout LayoutOf(const std::vector<uint64_t>& sizes) {
  std::vector<TensorSpec> specs;
  uint64_t address = 1 << 20;
  for (const uint64_t nbytes : sizes) {
    specs.push_back({.name = StrCat("t", specs.size()),
                     .dtype = "U8",
                     .shape = {nbytes},
                     .strides = {1},
                     .address = address,
                     .storage_address = address,
                     .storage_nbytes = nbytes,
                     .object = specs.size(),
                     .role = {},
                     .attrs = {}});
    address += nbytes + 512;
  }
  Result<Layout> layout = PlanLayout(std::move(specs));
  COLDSNAP_CHECK(layout.ok());
  return *std::move(layout);
}

// The windows are the blob, each byte once; the segments are the extents, each byte once and where the file has it.
void ExpectWhole(const Layout& layout, uint64_t chunk_bytes) {
  const WritePlan plan = PlanWrites(layout, chunk_bytes);
  uint64_t at = 0;
  uint32_t next_segment = 0;
  std::vector<uint64_t> done(layout.sources.size(), 0);
  for (const BlobWindow& window : plan.windows) {
    ASSERT_EQ(window.file_offset, at);
    ASSERT_TRUE(IsAligned(window.file_offset, kLeafBytes) && IsAligned(window.nbytes, kLeafBytes));
    ASSERT_GT(window.nbytes, 0U);
    ASSERT_LE(window.nbytes, std::max<uint64_t>(chunk_bytes, 4 * kMiB));
    ASSERT_LE(window.nbytes, plan.slot_bytes);
    ASSERT_EQ(window.segments == 0, window.file_offset < layout.data_start);
    ASSERT_EQ(window.segments == 0 ? next_segment : window.first_segment, next_segment);
    next_segment += window.segments;
    uint64_t slot_end = 0;
    for (const SourceSegment& segment : plan.SegmentsOf(window)) {
      ASSERT_GE(segment.slot_offset, slot_end);
      slot_end = segment.slot_offset + segment.nbytes;
      ASSERT_LE(slot_end, window.nbytes);
      ASSERT_EQ(segment.extent_offset, done[segment.extent]);
      ASSERT_TRUE(IsAligned(segment.extent_offset, kLeafBytes)) << "a leaf is cut";
      ASSERT_EQ(window.file_offset + segment.slot_offset, layout.file_offsets[segment.extent] + segment.extent_offset);
      done[segment.extent] += segment.nbytes;
    }
    at += window.nbytes;
  }
  ASSERT_EQ(at, layout.blob_bytes);
  ASSERT_EQ(next_segment, plan.segments.size());
  uint64_t payload = 0;
  for (size_t i = 0; i < done.size(); ++i) {
    ASSERT_EQ(done[i], layout.sources[i].nbytes) << "extent " << i;
    payload += done[i];
  }
  ASSERT_EQ(plan.payload_bytes, payload);
}

TEST(WritePlanTest, WindowsAreTheBlobAndSegmentsTheExtents) {
  constexpr std::array<uint64_t, 10> kEdges = {1, 511, 512, 513, 65535, 65536, 65537, 262144, 4 * kMiB, 4 * kMiB + 1};
  const uint64_t first = TestSeed(1);
  for (uint64_t seed = first; seed < first + 200; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<uint64_t> sizes(random() % 60);
    for (uint64_t& nbytes : sizes) {
      nbytes = random() % 4 == 0 ? kEdges[random() % kEdges.size()] : 1 + random() % (random() % 2 ? 65535 : 9000000);
    }
    for (const uint64_t chunk_bytes : {kLeafBytes, 4 * kLeafBytes, 4 * kMiB, 64 * kMiB}) {
      ExpectWhole(LayoutOf(sizes), chunk_bytes);
      ASSERT_FALSE(HasFatalFailure()) << "seed " << seed << ", chunks of " << chunk_bytes;
    }
  }
}

TEST(WritePlanTest, ManySmallExtentsMakeFewWrites) {
  const WritePlan plan = PlanWrites(LayoutOf(std::vector<uint64_t>(5000, 16 * kKiB)), 4 * kMiB);
  EXPECT_LE(plan.windows.size(), 5000 * 16 * kKiB / (4 * kMiB) + 3);
}

TEST(WritePlanTest, LargeExtentsFillTheWindows) {
  const WritePlan plan = PlanWrites(LayoutOf(std::vector<uint64_t>(100, 5 * kLeafBytes)), 4 * kMiB);
  EXPECT_LE(plan.windows.size(), CeilDiv(100 * 5 * kLeafBytes, 4 * kMiB) + 1);
}

TEST(WritePlanTest, NoExtentsLeaveTheHeader) {
  const WritePlan plan = PlanWrites(LayoutOf({0}), kLeafBytes);
  ASSERT_EQ(plan.windows.size(), 1U);
  EXPECT_EQ(plan.windows[0].segments, 0U);
}

}  // namespace
}  // namespace coldsnap
