// A million extents: opened, planned and restored, each to its place. The blob has 488 MiB of holes and a few marks.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cc/artifact/limits.h"
#include "cc/device/host_gpu.h"
#include "cc/hydrate/hydrate.h"
#include "cc/hydrate/plan.h"
#include "cc/testing/pattern.h"
#include "tests/large/sparse_artifact.h"

namespace coldsnap {
namespace {

constexpr size_t kTensors = 1'000'000;
constexpr uint64_t kNbytes = 16;
constexpr uint64_t kMemoryLimit = 4 * kGiB;

// Every 9973rd has bytes of its own.
bool IsMarked(size_t tensor) { return tensor % 9973 == 0; }
uint64_t SeedOf(size_t tensor) { return tensor + 1; }

std::vector<SparseTensor> Tensors() {
  std::vector<SparseTensor> tensors(kTensors, SparseTensor{.nbytes = kNbytes, .marks = {}});
  for (size_t i = 0; i < kTensors; ++i) {
    if (IsMarked(i)) tensors[i].marks = {{.leaf = 0, .seed = SeedOf(i)}};
  }
  return tensors;
}

std::string MillisecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::to_string(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
}

uint64_t PeakBytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * kKiB;
}

class ManyTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const rlimit limit{.rlim_cur = kMemoryLimit, .rlim_max = kMemoryLimit};
    ASSERT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
    files_ = std::make_unique<SparseArtifact>(Tensors());
    const auto begin = std::chrono::steady_clock::now();
    Result<OpenArtifact> opened = OpenArtifact::Open(files_->path(), std::nullopt);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    RecordProperty("open_ms", MillisecondsSince(begin));
    artifact_ = std::make_unique<OpenArtifact>(*std::move(opened));
  }
  static void TearDownTestSuite() {
    RecordProperty("peak_MiB", std::to_string(PeakBytes() / kMiB));
    artifact_.reset();
    files_.reset();
  }
  // The extents go by the names of their tensors, t0, t1, t10, t100, ...
  static size_t TensorOf(size_t extent) { return std::stoul(artifact_->manifest().tensors[extent].name.substr(1)); }

  static std::unique_ptr<SparseArtifact> files_;
  static std::unique_ptr<OpenArtifact> artifact_;
};

std::unique_ptr<SparseArtifact> ManyTest::files_;
std::unique_ptr<OpenArtifact> ManyTest::artifact_;

TEST_F(ManyTest, EachExtentIsWhereTheFormatPutsIt) {
  const Manifest& manifest = artifact_->manifest();
  ASSERT_EQ(manifest.extents.size(), kTensors);
  ASSERT_EQ(manifest.tensors.size(), kTensors);
  constexpr uint64_t kInAGroup = kSmallGroupBytes / kSmallAlignment;
  for (size_t i = 0; i < kTensors; ++i) {
    ASSERT_EQ(manifest.tensors[i].extent, i);
    ASSERT_EQ(manifest.extents[i].nbytes, kNbytes);
    ASSERT_EQ(manifest.extents[i].file_offset,
              manifest.data_start + i / kInAGroup * kSmallGroupBytes + i % kInAGroup * kSmallAlignment);
  }
}

TEST_F(ManyTest, AllOfThemAreReadInAsManyWindowsAsThereAreGroups) {
  std::vector<uint32_t> wanted(kTensors);
  for (size_t i = 0; i < kTensors; ++i) wanted[i] = static_cast<uint32_t>(i);
  const auto begin = std::chrono::steady_clock::now();
  const ReadPlan plan = PlanReads(artifact_->manifest().extents, wanted, 4 * kMiB, 4096);
  RecordProperty("plan_ms", MillisecondsSince(begin));
  ASSERT_EQ(plan.segments.size(), kTensors);
  const uint64_t groups = (kTensors * kSmallAlignment + kSmallGroupBytes - 1) / kSmallGroupBytes;
  EXPECT_LE(plan.windows.size(), groups + 1);
  size_t next = 0;
  for (const Window& window : plan.windows) {
    ASSERT_LE(window.nbytes, plan.slot_bytes);
    for (const Segment& segment : SegmentsOf(plan, window)) {
      ASSERT_EQ(segment.extent, next);
      ASSERT_EQ(window.file_offset + segment.slot_offset, artifact_->manifest().extents[next].file_offset);
      ++next;
    }
  }
  EXPECT_EQ(next, kTensors);
}

TEST_F(ManyTest, EachIsRestoredToItsPlace) {
  std::vector<std::byte> memory(kTensors * kNbytes, std::byte{0xEE});
  std::vector<ExtentTarget> targets;
  targets.reserve(kTensors);
  for (size_t i = 0; i < kTensors; ++i) {
    const uint64_t address = reinterpret_cast<uint64_t>(memory.data()) + i * kNbytes;
    targets.push_back({static_cast<uint32_t>(i), {.address = address, .nbytes = kNbytes}});
  }
  const std::unique_ptr<Gpu> gpu = OpenHostGpu();
  const auto begin = std::chrono::steady_clock::now();
  const Result<HydrateReport> report = Hydrate(*artifact_, targets, *gpu, {.backend = Backend::kBuffered});
  ASSERT_TRUE(report.ok()) << report.status().message();
  RecordProperty("restore_ms", MillisecondsSince(begin));
  EXPECT_EQ(report->payload_bytes, kTensors * kNbytes);
  const std::vector<std::byte> zeros(kNbytes);
  for (size_t i = 0; i < kTensors; ++i) {
    const size_t tensor = TensorOf(i);
    const std::vector<std::byte> expected = IsMarked(tensor) ? PatternBytes(kNbytes, SeedOf(tensor)) : zeros;
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), memory.begin() + static_cast<ptrdiff_t>(i * kNbytes)))
        << "t" << tensor;
  }
}

TEST_F(ManyTest, AFlippedBitIsNamed) {
  constexpr uint32_t kExtent = 777'777;
  const uint64_t at = artifact_->manifest().extents[kExtent].file_offset;
  files_->FlipBit(at + 3);
  std::vector<std::byte> memory(kNbytes);
  const std::vector<ExtentTarget> targets = {
      {kExtent, {.address = reinterpret_cast<uint64_t>(memory.data()), .nbytes = kNbytes}}};
  const std::unique_ptr<Gpu> gpu = OpenHostGpu();
  const Status status = Hydrate(*artifact_, targets, *gpu, {.backend = Backend::kBuffered}).status();
  files_->FlipBit(at + 3);
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_NE(status.message().find(StrCat("extent ", kExtent, " (t", TensorOf(kExtent), ")")), std::string::npos)
      << status.message();
}

}  // namespace
}  // namespace coldsnap
