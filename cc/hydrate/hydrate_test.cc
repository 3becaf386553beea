// What a restore refuses, keeps and decides. What holds for every route stands in tests/contract.
#include "cc/hydrate/hydrate.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cc/sys/files.h"
#include "cc/testing/end_child.h"
#include "cc/testing/interposed_gpu.h"
#include "cc/testing/pattern.h"
#include "cc/testing/test_artifact.h"
#include "cc/testing/test_device.h"

namespace coldsnap {
namespace {

using testing::HasSubstr;

constexpr std::byte kBefore{0xEE};
constexpr std::byte kPoison{0xFF};

class HydrateRefusalTest : public testing::Test {
 protected:
  HydrateRefusalTest()
      : files_({kLeafBytes, 100}), artifact_(files_.Open()), destinations_(files_.Allocate(artifact_, device_)) {}
  Status Refused(const std::vector<ExtentTarget>& targets, const HydrateOptions& options = {}) {
    Status status = Hydrate(artifact_, targets, device_.gpu(), options).status();
    for (const auto& each : destinations_) EXPECT_TRUE(device_.AllBytesAre(each.target.range, kBefore)) << each.name;
    return status;
  }
  TestDevice device_;
  TestArtifact files_;
  OpenArtifact artifact_;
  std::vector<TestArtifact::Destination> destinations_;
};

TEST_F(HydrateRefusalTest, WrongSettingsNameTheirNumbers) {
  const std::vector<ExtentTarget> targets = TargetsOf(destinations_);
  const auto message = [&](const HydrateOptions& options) {
    const Status status = Refused(targets, options);
    EXPECT_EQ(status.code(), Code::kRequestInvalid);
    return status.message();
  };
  EXPECT_THAT(message({.chunk_bytes = 1000}), HasSubstr("chunk_bytes is 1000, it must be 65536 to"));
  EXPECT_THAT(message({.chunk_bytes = 65537}), HasSubstr("multiple of 65536"));
  EXPECT_THAT(message({.queue_depth = 0}), HasSubstr("queue_depth is 0"));
  EXPECT_THAT(message({.queue_depth = 65}), HasSubstr("it must be 1 to 64"));
  EXPECT_THAT(message({.read_threads = 0}), HasSubstr("read_threads is 0"));
  EXPECT_THAT(message({.pinned_max_bytes = 1000}), HasSubstr("the limit is 1000"));
}

TEST_F(HydrateRefusalTest, TargetsThatDoNotFitAreNamed) {
  std::vector<ExtentTarget> targets = TargetsOf(destinations_);
  targets[1].range.nbytes -= 1;
  EXPECT_THAT(Refused(targets).message(), HasSubstr("extent 1 (t1) has 100 bytes, its destination 99"));
  targets = TargetsOf(destinations_);
  targets[1] = targets[0];
  EXPECT_THAT(Refused(targets).message(), HasSubstr("two destinations"));
  targets = TargetsOf(destinations_);
  targets[1].extent = 9;
  EXPECT_THAT(Refused(targets).message(), HasSubstr("there is no extent 9"));
  targets = TargetsOf(destinations_);
  targets[1].range.address = targets[0].range.address + 5;
  const Status status = Refused(targets);
  EXPECT_EQ(status.code(), Code::kLayoutMismatch);
  EXPECT_THAT(status.message(), HasSubstr("overlap"));
}

TEST_F(HydrateRefusalTest, HostMemoryIsNoDeviceMemory) {
  if (!device_.IsCuda()) GTEST_SKIP() << "the host can't tell one kind of its memory from another";
  std::vector<std::byte> host(kLeafBytes);
  std::vector<ExtentTarget> targets = TargetsOf(destinations_);
  targets[0].range.address = reinterpret_cast<uint64_t>(host.data());
  EXPECT_EQ(Refused(targets).code(), Code::kLayoutMismatch);
}

TEST(HydrateManyTest, FiftyThousandSmallExtents) {
  TestDevice device;
  std::vector<uint64_t> sizes;
  for (uint64_t i = 0; i < 50000; ++i) sizes.push_back(1 + i % 700);
  const TestArtifact files(sizes);
  const OpenArtifact artifact = files.Open();
  // One allocation: 50,000 of them would test the allocator.
  const DeviceRange arena = device.Allocate(50000 * 1024);
  std::vector<ExtentTarget> targets;
  std::vector<uint64_t> seeds;
  for (const TensorRecord& tensor : artifact.manifest().tensors) {
    const uint64_t nbytes = artifact.manifest().extents[*tensor.extent].nbytes;
    seeds.push_back(std::stoull(tensor.name.substr(1)) + 1);
    targets.push_back({*tensor.extent, {arena.address + targets.size() * 1024, nbytes}});
  }
  const Result<HydrateReport> report = Hydrate(artifact, targets, device.gpu(), {.chunk_bytes = kMiB});
  ASSERT_TRUE(report.ok()) << report.status().message();
  const std::vector<std::byte> restored = device.Read(arena);
  for (size_t i = 0; i < targets.size(); ++i) {
    const std::vector<std::byte> expected = PatternBytes(targets[i].range.nbytes, seeds[i]);
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), restored.begin() + static_cast<int64_t>(i * 1024))) << i;
  }
}

TEST(HydrateNothingTest, AnArtifactOfEmptyTensorsIsRestoredByDoingNothing) {
  TestDevice device;
  const TestArtifact files({0, 0});
  const OpenArtifact artifact = files.Open();
  const Result<HydrateReport> report = Hydrate(artifact, {}, device.gpu(), {});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->payload_bytes, 0U);
}

class HydratorTest : public testing::Test {
 protected:
  HydratorTest() : destinations_(files_.Allocate(artifact_, device_)) {}
  Result<HydrateReport> Restore(Hydrator& hydrator, const HydrateOptions& options) {
    EXPECT_TRUE(device_.gpu().Poison(Ranges()).ok());
    return hydrator.Hydrate(artifact_, TargetsOf(destinations_), options);
  }
  std::vector<DeviceRange> Ranges() const {
    std::vector<DeviceRange> ranges;
    for (const auto& each : destinations_) ranges.push_back(each.target.range);
    return ranges;
  }
  void ExpectRestored() {
    for (const auto& each : destinations_) EXPECT_EQ(device_.Differences(each.target.range, each.seed), 0U);
  }
  TestDevice device_;
  TestArtifact files_{{9 * kLeafBytes + 5, 100, 700, 3 * kLeafBytes}};
  OpenArtifact artifact_ = files_.Open();
  std::vector<TestArtifact::Destination> destinations_;
};

// A Gpu that counts what a restore makes on it.
class CountingGpu final : public InterposedGpu {
 public:
  explicit CountingGpu(Gpu& inner) : InterposedGpu(inner, [](int) { return Status::Ok(); }) {}
  Result<std::unique_ptr<PinnedMemory>> Pin(uint64_t nbytes) override {
    ++pins;
    return InterposedGpu::Pin(nbytes);
  }
  Result<std::unique_ptr<Lane>> OpenLane() override {
    ++lanes;
    return InterposedGpu::OpenLane();
  }
  int pins = 0;
  int lanes = 0;
};

TEST_F(HydratorTest, LaterRestoresMakeNothing) {
  CountingGpu gpu(device_.gpu());
  Hydrator hydrator(gpu);
  const HydrateOptions options{.chunk_bytes = kLeafBytes, .queue_depth = 6, .read_threads = 3};
  ASSERT_TRUE(hydrator.Prepare(options).ok());
  const int pins = gpu.pins;  // the ring, and on a device what it writes digests to
  EXPECT_GT(pins, 0);
  const int lanes = gpu.lanes;
  EXPECT_GT(lanes, 0);
  for (const Backend backend : {Backend::kBuffered, Backend::kDirect, Backend::kAuto}) {
    for (const int depth : {6, 1, 4}) {
      HydrateOptions each = options;
      each.backend = backend;
      each.queue_depth = depth;
      const Result<HydrateReport> report = Restore(hydrator, each);
      ASSERT_TRUE(report.ok()) << report.status().message();
      ExpectRestored();
    }
  }
  EXPECT_EQ(gpu.pins, pins);
  EXPECT_EQ(gpu.lanes, lanes);
  HydrateOptions larger = options;
  larger.chunk_bytes = 8 * kLeafBytes;
  ASSERT_TRUE(Restore(hydrator, larger).ok());
  ExpectRestored();
  EXPECT_EQ(gpu.pins, pins + 1);
}

TEST_F(HydratorTest, DigestsAreComputedWhereTheyWereAskedFor) {
  Hydrator hydrator(device_.gpu());
  const Place by_itself = device_.IsCuda() ? Place::kDevice : Place::kHost;
  for (const auto& [asked, found] :
       {std::pair(Place::kAuto, by_itself), std::pair(Place::kHost, Place::kHost),
        std::pair(Place::kDevice, Place::kDevice), std::pair(Place::kBoth, Place::kBoth)}) {
    const Result<HydrateReport> report = Restore(hydrator, {.place = asked});
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report->place, found);
    EXPECT_GT(report->stages_s.digest, 0);
    EXPECT_EQ(report->reasons.size(), 1U);  // the route's
    ExpectRestored();
  }
}

// A device without the kernel, of a kind that would have its digests computed there.
class NoKernelGpu final : public InterposedGpu {
 public:
  explicit NoKernelGpu(Gpu& inner) : InterposedGpu(inner, [](int) { return Status::Ok(); }) {}
  Status CanHashLeaves() override { return Status(Code::kRouteUnavailable, "no kernel"); }
  bool IsHost() const override { return false; }
};

TEST_F(HydratorTest, WithoutTheKernelAutoTakesTheHostAndSaysSo) {
  NoKernelGpu gpu(device_.gpu());
  Hydrator hydrator(gpu);
  const Result<HydrateReport> report = Restore(hydrator, {});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->place, Place::kHost);
  EXPECT_EQ(report->reasons.back().code, "device_digests_unavailable");
  EXPECT_EQ(report->reasons.back().detail, "no kernel");
  for (const Place place : {Place::kDevice, Place::kBoth}) {
    EXPECT_EQ(Restore(hydrator, {.place = place}).status().code(), Code::kRouteUnavailable);
    for (const DeviceRange& range : Ranges()) EXPECT_TRUE(device_.AllBytesAre(range, kPoison));  // as it was
  }
}

// A device on a memory node that the machine doesn't have.
class FarGpu final : public InterposedGpu {
 public:
  explicit FarGpu(Gpu& inner) : InterposedGpu(inner, [](int) { return Status::Ok(); }) {}
  std::optional<int> NumaNode() const override { return 1000; }
};

TEST_F(HydratorTest, ThreadsThatCanNotStayNearTheDeviceAreSaidAndRestoreAllTheSame) {
  FarGpu gpu(device_.gpu());
  Hydrator hydrator(gpu);
  const Result<HydrateReport> report = Restore(hydrator, {});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->reasons.back().code, "numa_refused");
  EXPECT_THAT(report->reasons.back().detail, HasSubstr("1000"));
  ExpectRestored();
}

// What host digests can't see: bytes that were right in the slot and are wrong in the device's memory.
TEST_F(HydratorTest, DeviceDigestsFindWhatWentWrongBehindTheCopy) {
  for (const auto& [verify, says] : {std::pair(Verify::kCrc32, "a second read of the file is right"),
                                     std::pair(Verify::kCrc32Sha256, "piece 0 (")}) {
    for (const Place place : {Place::kDevice, Place::kBoth, Place::kHost}) {
      const DeviceRange& range = destinations_[0].target.range;
      // By then the first slot has been given out again, so its copy has been done.
      InterposedGpu gpu(device_.gpu(), [&](int copy) {
        const DeviceRange byte{.address = range.address + 1, .nbytes = 1};
        return copy == 6 ? device_.gpu().Poison({&byte, 1}) : Status::Ok();
      });
      Hydrator hydrator(gpu);
      const HydrateOptions options{.backend = Backend::kBuffered,
                                   .verify = verify,
                                   .place = place,
                                   .chunk_bytes = kLeafBytes,
                                   .queue_depth = 2,
                                   .read_threads = 1};
      const Status status = Restore(hydrator, options).status();
      EXPECT_GT(gpu.copies(), 6);
      if (place == Place::kHost) {
        EXPECT_TRUE(status.ok()) << status.message();
        continue;
      }
      EXPECT_EQ(status.code(), Code::kDataLoss);
      EXPECT_EQ(status.stage(), "digest");
      EXPECT_THAT(status.message(), HasSubstr(artifact_.ExtentText(destinations_[0].target.extent)));
      EXPECT_THAT(status.message(), HasSubstr(says));
      for (const DeviceRange& each : Ranges()) EXPECT_TRUE(device_.AllBytesAre(each, kPoison));
    }
  }
}

TEST_F(HydratorTest, DeviceDigestsAreRightAtAnyAddress) {
  const DeviceRange arena = device_.Allocate(artifact_.payload_bytes() + 4 * 64);
  for (const uint64_t shift : {0, 1, 2, 3, 4, 8, 15, 17}) {
    std::vector<ExtentTarget> targets;
    uint64_t end = arena.address + shift;
    for (const auto& each : destinations_) {
      targets.push_back({each.target.extent, {end, each.target.range.nbytes}});
      end += each.target.range.nbytes + 7;
    }
    const Result<HydrateReport> report = Hydrate(artifact_, targets, device_.gpu(), {.place = Place::kDevice});
    ASSERT_TRUE(report.ok()) << shift << ": " << report.status().message();
    for (size_t i = 0; i < targets.size(); ++i) {
      EXPECT_EQ(device_.Differences(targets[i].range, destinations_[i].seed), 0U) << shift;
    }
  }
}

TEST_F(HydratorTest, GoesOnAfterAFailure) {
  int fail_at = 2;
  InterposedGpu gpu(device_.gpu(),
                    [&](int) { return fail_at-- == 0 ? Status(Code::kCuda, "copy: injected") : Status::Ok(); });
  Hydrator hydrator(gpu);
  const HydrateOptions options{.chunk_bytes = kLeafBytes, .queue_depth = 3, .read_threads = 1};
  EXPECT_EQ(Restore(hydrator, options).status().code(), Code::kCuda);
  for (const DeviceRange& range : Ranges()) EXPECT_TRUE(device_.AllBytesAre(range, kPoison));
  ASSERT_TRUE(Restore(hydrator, options).ok());
  ExpectRestored();
}

TEST_F(HydratorTest, ASecondThreadIsRefused) {
  std::optional<Status> second;
  Hydrator* mine = nullptr;
  InterposedGpu gpu(device_.gpu(), [&](int copy) {
    if (copy == 0) second = mine->Hydrate(artifact_, {}, {}).status();
    return Status::Ok();
  });
  Hydrator hydrator(gpu);
  mine = &hydrator;
  ASSERT_TRUE(Restore(hydrator, {.read_threads = 1}).ok());
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->code(), Code::kPolicyRefused);
  EXPECT_THAT(second->message(), HasSubstr("in use by another thread"));
}

TEST_F(HydratorTest, AForkedChildIsRefusedAndCanEnd) {
  auto hydrator = std::make_unique<Hydrator>(device_.gpu());
  ASSERT_TRUE(Restore(*hydrator, {}).ok());
  const pid_t child = ::fork();
  if (child == 0) {
    const Status status = hydrator->Hydrate(artifact_, {}, {}).status();
    hydrator.reset();
    const bool said = status.message().find("was forked from process") != std::string::npos;
    EndChild(status.code() == Code::kPolicyRefused && said ? 7 : 8);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST_F(HydratorTest, WithoutDigestsADifferenceIsNotSeen) {
  files_.FlipBit(artifact_.manifest().extents[0].file_offset);
  Hydrator hydrator(device_.gpu());
  EXPECT_EQ(Restore(hydrator, {.verify = Verify::kCrc32}).status().code(), Code::kDataLoss);
  ASSERT_TRUE(Restore(hydrator, {.verify = Verify::kNone}).ok());
  uint64_t differences = 0;
  for (const auto& each : destinations_) differences += device_.Differences(each.target.range, each.seed);
  EXPECT_EQ(differences, 1U);  // so every other byte came
}

TEST(HydrateMixedTest, AHalfCachedBlobIsReadBothWays) {
  TestDevice device;
  const TestArtifact files({8 * kMiB, 8 * kMiB + 3, 700});
  const OpenArtifact artifact = files.Open();
  const auto destinations = files.Allocate(artifact, device);
  ASSERT_EQ(::fsync(artifact.blob_fd()), 0);
  ASSERT_EQ(::posix_fadvise(artifact.blob_fd(), 6 * kMiB, 4 * kMiB, POSIX_FADV_DONTNEED), 0);
  const uint64_t cold = 4 * kMiB - *ResidentBytes(artifact.blob_fd(), 6 * kMiB, 4 * kMiB, "blob");
  if (cold != 4 * kMiB) GTEST_SKIP() << "the file system keeps its files in memory";
  const Result<HydrateReport> report =
      Hydrate(artifact, TargetsOf(destinations), device.gpu(), {.chunk_bytes = 256 * kKiB, .queue_depth = 4});
  ASSERT_TRUE(report.ok()) << report.status().message();
  for (const auto& each : destinations) EXPECT_EQ(device.Differences(each.target.range, each.seed), 0U);
  ASSERT_EQ(report->reasons.size(), 1U);
  EXPECT_EQ(report->reasons[0].code, "mixed");
  const HydrateReport::Part& direct = report->By(Route::kDirect);
  EXPECT_GE(direct.nbytes, 3 * kMiB);
  EXPECT_LE(direct.nbytes, 5 * kMiB);
  EXPECT_EQ(direct.nbytes + report->By(Route::kBuffered).nbytes, artifact.payload_bytes());
  EXPECT_EQ(direct.extents, 2U);
  EXPECT_EQ(report->By(Route::kBuffered).extents, 3U);
  // What was not cached was read past the cache, but for the windows at both ends, of which half was.
  EXPECT_LE(*ResidentBytes(artifact.blob_fd(), 6 * kMiB, 4 * kMiB, "blob"), 256 * kKiB);
}

TEST(HydrateAutoTest, SaysWhyItChose) {
  TestDevice device;
  const TestArtifact files({4 * kMiB});
  const OpenArtifact artifact = files.Open();
  const auto destinations = files.Allocate(artifact, device);
  const Result<HydrateReport> report =
      Hydrate(artifact, TargetsOf(destinations), device.gpu(), {.backend = Backend::kAuto});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->By(Route::kBuffered).nbytes, 4 * kMiB);  // it was written just now
  ASSERT_EQ(report->reasons.size(), 1U);
  EXPECT_EQ(report->reasons[0].code, "resident");
  EXPECT_GE(report->residency_before.value_or(0), 0.99);
}

}  // namespace
}  // namespace coldsnap
