#include "cc/hydrate/plan.h"

#include <numeric>
#include <random>

#include "cc/base/units.h"
#include "cc/testing/seed.h"
#include "gtest/gtest.h"

namespace coldsnap {
namespace {

// Extents as the format places them: large ones at multiples of 64 KiB, small ones at multiples of 512.
std::vector<Extent> Place(const std::vector<uint64_t>& sizes) {
  std::vector<Extent> extents;
  uint64_t at = kLeafBytes;
  for (const uint64_t nbytes : sizes) {
    at = AlignUp(at, nbytes >= kLeafBytes ? kLeafBytes : 512);
    extents.push_back({.file_offset = at, .nbytes = nbytes});
    at += nbytes;
  }
  return extents;
}

// What every plan promises: all wanted bytes once and in order, leaves uncut, windows aligned and inside their slot.
void CheckPlan(const std::vector<Extent>& extents, const std::vector<uint32_t>& wanted, uint64_t chunk_bytes,
               uint64_t alignment) {
  const ReadPlan plan = PlanReads(extents, wanted, chunk_bytes, alignment);
  std::vector<uint64_t> covered(extents.size(), 0);
  size_t next = 0;
  uint64_t read_bytes = 0;
  for (const Window& window : plan.windows) {
    ASSERT_EQ(window.first_segment, next);
    ASSERT_GT(window.segments, 0U);
    ASSERT_TRUE(IsAligned(window.file_offset, alignment) && IsAligned(window.nbytes, alignment));
    ASSERT_LE(window.nbytes, plan.slot_bytes);
    read_bytes += window.nbytes;
    uint64_t data = 0;
    for (; next < window.first_segment + window.segments; ++next) {
      const Segment& segment = plan.segments[next];
      const Extent& extent = extents[segment.extent];
      ASSERT_EQ(segment.extent_offset, covered[segment.extent]);
      ASSERT_EQ(window.file_offset + segment.slot_offset, extent.file_offset + segment.extent_offset);
      ASSERT_LE(segment.slot_offset + segment.nbytes, window.nbytes);
      covered[segment.extent] += segment.nbytes;
      ASSERT_TRUE(IsAligned(covered[segment.extent], kLeafBytes) || covered[segment.extent] == extent.nbytes);
      data += segment.nbytes;
    }
    ASSERT_LE(data, chunk_bytes);
  }
  ASSERT_EQ(next, plan.segments.size());
  ASSERT_EQ(read_bytes, plan.read_bytes);
  std::vector<uint64_t> expected(extents.size(), 0);
  for (const uint32_t index : wanted) expected[index] = extents[index].nbytes;
  ASSERT_EQ(covered, expected);
}

std::vector<uint32_t> All(size_t count) {
  std::vector<uint32_t> all(count);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TEST(PlanTest, KeepsItsPromisesForRandomExtents) {
  std::mt19937_64 random(TestSeed(20261129));
  for (int round = 0; round < 300; ++round) {
    std::vector<uint64_t> sizes;
    for (int i = 0; i < 40; ++i) {
      const uint64_t edge[] = {
          1, 511, 512, 513, kLeafBytes - 1, kLeafBytes, kLeafBytes + 1, 2 * kLeafBytes, 3 * kLeafBytes + 7};
      sizes.push_back(random() % 2 == 0 ? edge[random() % 9] : 1 + random() % (kMiB));
    }
    const std::vector<Extent> extents = Place(sizes);
    std::vector<uint32_t> wanted;
    for (uint32_t i = 0; i < extents.size(); ++i) {
      if (round % 3 == 0 || random() % 2 == 0) wanted.push_back(i);
    }
    for (const uint64_t chunk : {kLeafBytes, 2 * kLeafBytes, 3 * kLeafBytes, kMiB, 4 * kMiB}) {
      for (const uint64_t alignment : {uint64_t{1}, uint64_t{512}, uint64_t{4096}, kLeafBytes}) {
        ASSERT_NO_FATAL_FAILURE(CheckPlan(extents, wanted, chunk, alignment)) << "round " << round;
      }
    }
  }
}

TEST(PlanTest, OneLargeExtentIsReadInWholeChunks) {
  const std::vector<Extent> extents = Place({10 * kMiB});
  const ReadPlan plan = PlanReads(extents, All(1), 4 * kMiB, 4096);
  ASSERT_EQ(plan.windows.size(), 3U);
  EXPECT_EQ(plan.windows[0].nbytes, 4 * kMiB);
  EXPECT_EQ(plan.windows[2].nbytes, 2 * kMiB);
  EXPECT_EQ(plan.slot_bytes, 4 * kMiB);
}

// 50,000 x 16 KiB: reads of a group's size, at most 1.05 times the payload.
TEST(PlanTest, ManySmallExtentsShareReads) {
  const std::vector<Extent> extents = Place(std::vector<uint64_t>(50000, 16 * kKiB));
  const ReadPlan plan = PlanReads(extents, All(50000), 4 * kMiB, 4096);
  EXPECT_LE(plan.windows.size(), 50000U / 255);
  EXPECT_LE(plan.read_bytes * 100, uint64_t{50000} * 16 * kKiB * 105);
}

TEST(PlanTest, UnwantedExtentsAreSkipped) {
  const std::vector<Extent> extents = Place({kMiB, 8 * kMiB, kMiB});
  const std::vector<uint32_t> wanted = {0, 2};
  EXPECT_EQ(PlanReads(extents, wanted, 16 * kMiB, 4096).read_bytes, 2 * kMiB);
}

TEST(PlanTest, NothingWantedIsNoRead) { EXPECT_TRUE(PlanReads({}, {}, kMiB, 1).windows.empty()); }

}  // namespace
}  // namespace coldsnap
