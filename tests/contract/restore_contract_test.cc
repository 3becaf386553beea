// One set of promises for every way that a restore can take: each route with each digest, on host memory and on a CUDA
// device. A new route adds its lines to Ways(). The bytes are compared on the device by what does not share a line with
// the path under test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "cc/hydrate/hydrate.h"
#include "cc/testing/interposed_gpu.h"
#include "cc/testing/pattern.h"
#include "cc/testing/test_artifact.h"
#include "cc/testing/test_device.h"
#include "tests/contract/fake_gds.h"

namespace coldsnap {
namespace {

using testing::HasSubstr;

constexpr std::byte kBefore{0xEE};
constexpr std::byte kPoison{0xFF};

struct Way {
  std::string name;
  Backend backend;
  Verify verify;
  Place place = Place::kAuto;
};

class RestoreContract : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (GetParam().backend != Backend::kGds) return;
    if (device_.IsCuda()) GTEST_SKIP() << "the stand-in for cuFile writes to host memory only";
    gds_.emplace();
  }
  bool Compares() const { return GetParam().verify != Verify::kNone; }
  bool IsGds() const { return GetParam().backend == Backend::kGds; }
  HydrateOptions Options() const {
    HydrateOptions options{.backend = GetParam().backend,
                           .verify = GetParam().verify,
                           .place = GetParam().place,
                           .chunk_bytes = 128 * kKiB,
                           .queue_depth = 3,
                           .read_threads = 2};
    if (gds_) options.gds_driver = gds_->driver();
    return options;
  }
  void ExpectRestored(const std::vector<TestArtifact::Destination>& destinations) {
    for (const auto& each : destinations) {
      EXPECT_EQ(device_.Differences(each.target.range, each.seed), 0U)
          << each.name << " of " << each.target.range.nbytes;
    }
  }
  void ExpectAll(const std::vector<TestArtifact::Destination>& destinations, std::byte value) {
    for (const auto& each : destinations) EXPECT_TRUE(device_.AllBytesAre(each.target.range, value)) << each.name;
  }
  TestDevice device_;
  std::optional<FakeGds> gds_;
};

TEST_P(RestoreContract, RestoresSizesAroundEveryEdge) {
  const uint64_t chunk = 128 * kKiB;
  const TestArtifact files({0, 1, 511, 512, 513, 4095, 4096, 4097, kLeafBytes - 1, kLeafBytes, kLeafBytes + 1,
                            chunk - 1, chunk, chunk + 1, 3 * chunk + 7, 192 * kKiB, 192 * kKiB + 1});
  const OpenArtifact artifact = files.Open();
  const auto destinations = files.Allocate(artifact, device_);
  const Result<HydrateReport> report = Hydrate(artifact, TargetsOf(destinations), device_.gpu(), Options());
  ASSERT_TRUE(report.ok()) << report.status().message();
  ExpectRestored(destinations);
  EXPECT_EQ(report->payload_bytes, artifact.payload_bytes());
  EXPECT_GE(report->read_bytes, report->payload_bytes);
  EXPECT_EQ(report->extents, 16U);
  const Route route = GetParam().backend == Backend::kDirect ? Route::kDirect
                      : IsGds()                              ? Route::kGds
                                                             : Route::kBuffered;  // auto too: it was just written
  EXPECT_EQ(report->By(route).nbytes, report->payload_bytes);
  EXPECT_EQ(report->By(route).extents, 16U);
  EXPECT_EQ(report->gds.has_value(), IsGds());
}

TEST_P(RestoreContract, RestoresABlobManyTimesTheRing) {
  const TestArtifact files({20 * kMiB + 3, 5 * kMiB, kLeafBytes, 100});
  const OpenArtifact artifact = files.Open();
  const auto destinations = files.Allocate(artifact, device_);
  HydrateOptions options = Options();
  options.chunk_bytes = kLeafBytes;
  options.queue_depth = 2;
  const Result<HydrateReport> report = Hydrate(artifact, TargetsOf(destinations), device_.gpu(), options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  if (!IsGds()) {
    EXPECT_GT(report->pinned_bytes, 0U);
  }
  // Memory is pinned 2 MiB at a time; digests that the device writes have some of their own.
  const bool on_device = report->place == Place::kDevice || report->place == Place::kBoth;
  EXPECT_LE((report->pinned_bytes - (on_device ? 2 * kMiB : 0)) * 12, artifact.payload_bytes());
  ExpectRestored(destinations);
}

TEST_P(RestoreContract, OneFlippedBitIsNamedAndPoisonsEverything) {
  if (!Compares()) GTEST_SKIP() << "this way compares no digest";
  const std::vector<uint64_t> sizes = {1, 700, kLeafBytes - 1, kLeafBytes, 5 * kLeafBytes + 9};
  const TestArtifact files(sizes);
  const OpenArtifact artifact = files.Open();
  for (size_t extent = 0; extent < artifact.manifest().extents.size(); ++extent) {
    const auto destinations = files.Allocate(artifact, device_);
    const Extent& damaged = artifact.manifest().extents[extent];
    const uint64_t at = damaged.file_offset + damaged.nbytes - 1;
    files.FlipBit(at);
    const Status status = Hydrate(artifact, TargetsOf(destinations), device_.gpu(), Options()).status();
    files.FlipBit(at);
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_EQ(status.stage(), "digest");
    EXPECT_THAT(status.message(), HasSubstr(artifact.ExtentText(extent)));
    EXPECT_THAT(status.message(), HasSubstr(GetParam().verify == Verify::kCrc32 ? "its crc32 is" : "has SHA-256"));
    EXPECT_THAT(status.message(), HasSubstr(StrCat("piece ", (damaged.nbytes - 1) / kLeafBytes, " (")));
    ExpectAll(destinations, kPoison);
  }
  const auto destinations = files.Allocate(artifact, device_);
  EXPECT_TRUE(Hydrate(artifact, TargetsOf(destinations), device_.gpu(), Options()).ok())
      << "after the bits were put back";
}

TEST_P(RestoreContract, AShortenedBlobIsRefusedBeforeTheFirstByte) {
  const TestArtifact files({3 * kLeafBytes});
  const OpenArtifact artifact = files.Open();
  const auto destinations = files.Allocate(artifact, device_);
  files.Truncate(artifact.manifest().blob_bytes - kLeafBytes);
  const Status status = Hydrate(artifact, TargetsOf(destinations), device_.gpu(), Options()).status();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  ExpectAll(destinations, kBefore);
  EXPECT_EQ(OpenArtifact::Open(files.path(), std::nullopt).status().code(), Code::kDataLoss);
}

TEST_P(RestoreContract, ABlobThatShrinksDuringTheRestorePoisons) {
  if (IsGds()) GTEST_SKIP() << "no copy of ours is in its way; see GdsRestoreTest";
  const TestArtifact files({4 * kMiB});
  const OpenArtifact artifact = files.Open();
  const auto destinations = files.Allocate(artifact, device_);
  InterposedGpu gpu(device_.gpu(), [&](int copy) {
    if (copy == 3) files.Truncate(artifact.manifest().data_start + kMiB);
    return Status::Ok();
  });
  HydrateOptions options = Options();
  options.read_threads = 1;
  const Status status = Hydrate(artifact, TargetsOf(destinations), gpu, options).status();
  EXPECT_GT(gpu.copies(), 3);
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_EQ(status.stage(), "file");
  EXPECT_THAT(status.message(), HasSubstr("the file ends after"));
  ExpectAll(destinations, kPoison);
}

TEST_P(RestoreContract, ABlobReplacedMeanwhileIsNotRead) {
  if (IsGds()) GTEST_SKIP() << "no copy of ours is in its way; see GdsRestoreTest";
  const TestArtifact files({4 * kMiB});
  const TestArtifact other({4 * kMiB});
  const OpenArtifact artifact = files.Open();
  other.FlipBit(artifact.manifest().data_start + 4 * kMiB - 1);  // which is read last
  const auto destinations = files.Allocate(artifact, device_);
  int replaced = 0;
  InterposedGpu gpu(device_.gpu(), [&](int copy) {
    if (copy == 3) replaced = ::rename(other.blob_path().c_str(), files.blob_path().c_str()) == 0 ? 1 : -1;
    return Status::Ok();
  });
  HydrateOptions options = Options();
  options.read_threads = 1;
  const Status status = Hydrate(artifact, TargetsOf(destinations), gpu, options).status();
  EXPECT_EQ(replaced, 1);
  EXPECT_TRUE(status.ok()) << status.message();
  ExpectRestored(destinations);
}

TEST_P(RestoreContract, AFailedCopyDrainsAndPoisons) {
  if (IsGds()) GTEST_SKIP() << "no copy of ours is in its way; see GdsRestoreTest";
  const TestArtifact files({4 * kMiB, 100});
  const OpenArtifact artifact = files.Open();
  const auto destinations = files.Allocate(artifact, device_);
  InterposedGpu gpu(device_.gpu(), [](int copy) {
    return copy == 5 ? Status(Code::kCuda, "copy: injected").WithNative(Domain::kCuda, 719) : Status::Ok();
  });
  HydrateOptions options = Options();
  options.read_threads = 1;
  const Status status = Hydrate(artifact, TargetsOf(destinations), gpu, options).status();
  EXPECT_GE(gpu.copies(), 6);   // the failure came from here,
  EXPECT_LT(gpu.copies(), 34);  // and the rest was not copied
  EXPECT_EQ(status.code(), Code::kCuda);
  EXPECT_EQ(status.native(), 719);
  EXPECT_EQ(status.stage(), "device");
  ExpectAll(destinations, kPoison);
}

TEST_P(RestoreContract, CancellingDrainsAndPoisons) {
  const TestArtifact files({8 * kMiB, 100});
  const OpenArtifact artifact = files.Open();
  const auto destinations = files.Allocate(artifact, device_);
  HydrateOptions options = Options();
  options.tick = [](uint64_t, uint64_t) { return Status(Code::kCancelled, "stop"); };
  const Status status = Hydrate(artifact, TargetsOf(destinations), device_.gpu(), options).status();
  EXPECT_EQ(status.code(), Code::kCancelled);
  ExpectAll(destinations, kPoison);
}

TEST_P(RestoreContract, WhatIsNotConfirmedIsPoisoned) {
  const TestArtifact files({kMiB, 100});
  const OpenArtifact artifact = files.Open();
  const auto destinations = files.Allocate(artifact, device_);
  HydrateOptions options = Options();
  options.confirm = [&]() -> Status {
    ExpectRestored(destinations);  // everything is there by then
    return Status(Code::kNotAdmitted, "changed");
  };
  const Status status = Hydrate(artifact, TargetsOf(destinations), device_.gpu(), options).status();
  EXPECT_EQ(status.code(), Code::kNotAdmitted);
  ExpectAll(destinations, kPoison);
}

TEST_P(RestoreContract, TheLastTickHasEveryByte) {
  const TestArtifact files({kMiB, 100});
  const OpenArtifact artifact = files.Open();
  const auto destinations = files.Allocate(artifact, device_);
  HydrateOptions options = Options();
  uint64_t last = 0;
  options.tick = [&last](uint64_t done, uint64_t total) {
    EXPECT_LE(last, done);
    EXPECT_EQ(total, kMiB + 100);
    last = done;
    return Status::Ok();
  };
  ASSERT_TRUE(Hydrate(artifact, TargetsOf(destinations), device_.gpu(), options).ok());
  EXPECT_EQ(last, kMiB + 100);
}

TEST_P(RestoreContract, LeavesOutWhatNobodyAskedFor) {
  const TestArtifact files({kLeafBytes, 9 * kLeafBytes, 77, 4 * kLeafBytes});
  const OpenArtifact artifact = files.Open();
  auto destinations = files.Allocate(artifact, device_);
  destinations.erase(destinations.begin() + 1);
  const Result<HydrateReport> report = Hydrate(artifact, TargetsOf(destinations), device_.gpu(), Options());
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->payload_bytes, 5 * kLeafBytes + 77);
  ExpectRestored(destinations);
}

std::vector<Way> Ways() {
  std::vector<Way> ways;
  for (const auto& [name, backend] : {std::pair("auto", Backend::kAuto), std::pair("buffered", Backend::kBuffered),
                                      std::pair("direct", Backend::kDirect)}) {
    ways.push_back({StrCat(name, "_crc32"), backend, Verify::kCrc32});
    ways.push_back({StrCat(name, "_crc32_sha256"), backend, Verify::kCrc32Sha256});
    ways.push_back({StrCat(name, "_none"), backend, Verify::kNone});
  }
  ways.push_back({"gds_none", Backend::kGds, Verify::kNone});
  for (const auto& [digests, verify] :
       {std::pair("crc32", Verify::kCrc32), std::pair("crc32_sha256", Verify::kCrc32Sha256)}) {
    for (const auto& [name, backend] :
         {std::pair("buffered", Backend::kBuffered), std::pair("direct", Backend::kDirect)}) {
      ways.push_back({StrCat(name, "_", digests, "_host"), backend, verify, Place::kHost});
      ways.push_back({StrCat(name, "_", digests, "_device"), backend, verify, Place::kDevice});
      ways.push_back({StrCat(name, "_", digests, "_both"), backend, verify, Place::kBoth});
    }
    ways.push_back({StrCat("gds_", digests, "_device"), Backend::kGds, verify, Place::kDevice});
  }
  return ways;
}
INSTANTIATE_TEST_SUITE_P(EveryWay, RestoreContract, testing::ValuesIn(Ways()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace coldsnap
