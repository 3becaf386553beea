#include "cc/capture/capture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/units.h"
#include "cc/capture/sources_for_test.h"
#include "cc/device/host_gpu.h"
#include "cc/device/place.h"
#include "cc/testing/interposed_gpu.h"
#include "cc/testing/temp_dir.h"
#include "cc/testing/test_device.h"

namespace coldsnap {
namespace {

using testing::HasSubstr;

constexpr const char* kShard = "shard-00-00-00";

std::map<std::string, std::string> FilesOf(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().filename().string()].assign(std::istreambuf_iterator<char>(file), {});
  }
  return files;
}

// Around every edge of leaves, groups and chunks.
std::vector<uint64_t> RandomSizes(uint64_t seed) {
  std::mt19937_64 random(seed);
  constexpr std::array<uint64_t, 12> kEdges = {0,     1,      511,    512,         65535,        65536,
                                               65537, 131072, 262143, kMiB - 1024, kMiB + 70000, 3 * kMiB + 1};
  std::vector<uint64_t> sizes;
  for (uint64_t i = 0, count = random() % 40; i < count; ++i) {
    sizes.push_back(random() % 3 == 0 ? kEdges[random() % kEdges.size()] : random() % (random() % 2 ? 9000 : 300000));
  }
  return sizes;
}

class CaptureTest : public testing::Test {
 protected:
  Result<CapturedShard> Capture(const SourcesForTest& sources, const CaptureOptions& options) {
    return CaptureShard(temp_.path(), kShard, sources.Plan(), "{}", "{}", device_.gpu(), options);
  }
  std::string folder() const { return temp_.path() + "/" + kShard; }
  std::string blob() const { return folder() + "/weights.safetensors"; }
  bool NothingLeft() const { return std::filesystem::is_empty(temp_.path()); }

  // Changes one byte of the blob while nobody writes to it.
  void FlipInFile(uint64_t offset) const {
    std::fstream file(blob(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(static_cast<std::streamoff>(offset));
    const char other = static_cast<char>(file.get() ^ 0x10);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(other);
    ASSERT_TRUE(file.good());
  }

  TestDevice device_;
  TempDir temp_;
};

TEST_F(CaptureTest, EveryBackendWritesWhatAPlainWriterWrites) {
  std::map<Route, int> routes;
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    const SourcesForTest sources(device_, RandomSizes(seed), seed);
    const std::map<std::string, std::string> expected = sources.PlainShard();
    const uint64_t chunk_bytes = std::array<uint64_t, 3>{kLeafBytes, 4 * kLeafBytes, 4 * kMiB}[seed % 3];
    const Place place = std::array{Place::kHost, Place::kDevice, Place::kBoth, Place::kAuto}[seed % 4];
    for (const WriteBackend backend : {WriteBackend::kAuto, WriteBackend::kBuffered, WriteBackend::kDirect}) {
      const Result<CapturedShard> captured = Capture(sources, {.backend = backend,
                                                               .chunk_bytes = chunk_bytes,
                                                               .queue_depth = static_cast<int>(1 + seed % 8),
                                                               .write_threads = static_cast<int>(1 + seed % 5),
                                                               .place = place,
                                                               .check_source = seed % 2 == 0});
      if (backend == WriteBackend::kDirect && captured.status().code() == Code::kRouteUnavailable) continue;
      ASSERT_TRUE(captured.ok()) << captured.status().message();
      ++routes[captured->report.route];
      EXPECT_NE(captured->report.place, Place::kAuto);
      ASSERT_EQ(FilesOf(folder()), expected) << "seed " << seed << ", backend " << static_cast<int>(backend);
      EXPECT_EQ(captured->record.blob_bytes, expected.at("weights.safetensors").size());
      EXPECT_EQ(captured->record.leaves_bytes, expected.at("leaves.bin").size());
      EXPECT_EQ(captured->record.manifest_bytes, expected.at("manifest.json").size());
      std::filesystem::remove_all(folder());
    }
  }
  EXPECT_GT(routes[Route::kBuffered], 0);
  if (routes[Route::kDirect] == 0) GTEST_SKIP() << temp_.path() << " takes no direct writes: compared buffered alone";
}

TEST_F(CaptureTest, FilesAreReadOnlyAndTheFolderIsForAll) {
  const mode_t umask_before = ::umask(077);
  const Result<CapturedShard> captured = Capture(SourcesForTest(device_, {100, 70000}, 1), {});
  ::umask(umask_before);
  ASSERT_TRUE(captured.ok()) << captured.status().message();
  for (const auto& [name, bytes] : FilesOf(folder())) {
    struct stat info{};
    ASSERT_EQ(::stat((folder() + "/" + name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0444U) << name;
  }
  struct stat info{};
  ASSERT_EQ(::stat(folder().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0755U);
}

TEST_F(CaptureTest, TheReportSaysWhatWasDone) {
  const SourcesForTest sources(device_, {kMiB + 5, 100, 0}, 1);
  uint64_t last = 0;
  uint64_t total = 0;
  const Result<CapturedShard> captured = Capture(sources, {.chunk_bytes = 2 * kLeafBytes,
                                                           .queue_depth = 4,
                                                           .write_threads = 3,
                                                           .check_source = true,
                                                           .tick = [&](uint64_t done, uint64_t all) {
                                                             EXPECT_GE(done, last);
                                                             last = done;
                                                             total = all;
                                                             return Status::Ok();
                                                           }});
  ASSERT_TRUE(captured.ok()) << captured.status().message();
  const CaptureReport& report = captured->report;
  EXPECT_EQ(report.payload_bytes, kMiB + 105);
  EXPECT_EQ(report.extents, 2U);
  EXPECT_EQ(report.blob_bytes, std::filesystem::file_size(blob()));
  EXPECT_EQ(report.queue_depth, 4);
  EXPECT_EQ(report.write_threads, 3);
  EXPECT_GE(report.pinned_bytes, 3 * 2 * kLeafBytes);
  EXPECT_EQ(total, (IsOnDevice(report.place) ? 3 : 2) * report.payload_bytes);
  EXPECT_EQ(last, total);
  EXPECT_FALSE(report.reasons.empty()) << "auto says why";
  // Direct writes leave the blob out of the page cache.
  ASSERT_TRUE(report.residency_after);
  EXPECT_LT(*report.residency_after, report.route == Route::kDirect ? 0.2 : 1.1);
}

TEST_F(CaptureTest, ASourceThatChangesMeanwhileIsFound) {
  for (const Place place : {Place::kHost, Place::kDevice, Place::kBoth}) {
    const SourcesForTest sources(device_, {300000, 100}, 1);
    const CaptureOptions options{.place = place, .check_source = true, .tick = [&](uint64_t done, uint64_t total) {
                                   if (done + 300100 == total) sources.Flip(1);
                                   return Status::Ok();
                                 }};
    const Status status = Capture(sources, options).status();
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("extent 1 (t1)"));
    EXPECT_THAT(status.message(), HasSubstr("the source now"));
    EXPECT_THAT(status.remedy(), HasSubstr("nothing writes to the tensors"));
    EXPECT_TRUE(NothingLeft());
  }
}

// Digesting on the device is work that a bar shows: its first pass, the copy and its second pass count alike.
TEST_F(CaptureTest, EachPassOfTheDeviceMovesTheProgress) {
  constexpr uint64_t kPayload = 300100;
  const SourcesForTest sources(device_, {300000, 100}, 1);
  for (const bool check_source : {false, true}) {
    std::set<uint64_t> seen;
    uint64_t last = 0;
    const CaptureOptions options{
        .place = Place::kDevice, .check_source = check_source, .tick = [&](uint64_t done, uint64_t total) {
          EXPECT_EQ(total, 3 * kPayload);
          EXPECT_GE(done, last);
          seen.insert(last = done);
          return Status::Ok();
        }};
    ASSERT_TRUE(Capture(sources, options).ok());
    EXPECT_EQ(last, 3 * kPayload);
    EXPECT_TRUE(seen.contains(kPayload)) << "behind the first pass";
    EXPECT_TRUE(seen.contains(2 * kPayload)) << "behind the copy";
    std::filesystem::remove_all(folder());
  }
}

// The device has digested the sources before they are copied, so it looks again after that, asked or not.
TEST_F(CaptureTest, WithDigestsOnTheDeviceAChangeIsAlwaysFound) {
  const SourcesForTest sources(device_, {300000, 100}, 1);
  bool changed = false;
  const CaptureOptions options{.place = Place::kDevice, .tick = [&](uint64_t done, uint64_t total) {
                                 if (done + 300100 == total && !std::exchange(changed, true)) sources.Flip(1);
                                 return Status::Ok();
                               }};
  EXPECT_EQ(Capture(sources, options).status().code(), Code::kDataLoss);
  EXPECT_TRUE(changed);
  EXPECT_TRUE(NothingLeft());
}

// A device whose copies to the host bring a wrong byte.
class WrongCopyGpu final : public InterposedGpu {
 public:
  explicit WrongCopyGpu(Gpu& inner) : InterposedGpu(inner, [](int) { return Status::Ok(); }) {}
  void CopiedToHost(std::span<std::byte> bytes) override { bytes[0] ^= std::byte{1}; }
};

TEST_F(CaptureTest, AWrongCopyIsFoundByBothPlacesAtOnceAndByTheDevicesDigestsLater) {
  if (device_.IsCuda()) GTEST_SKIP() << "copies of a real device come later than the call";
  const std::unique_ptr<Gpu> host = OpenHostGpu();
  WrongCopyGpu gpu(*host);
  const SourcesForTest sources(device_, {300000, 100}, 1);
  const auto capture = [&](Place place) {
    return CaptureShard(temp_.path(), kShard, sources.Plan(), "{}", "{}", gpu, {.place = place});
  };
  const Status status = capture(Place::kBoth).status();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("the staging memory"));
  EXPECT_TRUE(NothingLeft());
  // The digests are the sources' own, so the wrong bytes are found by whoever reads them.
  ASSERT_TRUE(capture(Place::kDevice).ok());
  const std::map<std::string, std::string> expected = sources.PlainShard();
  const std::map<std::string, std::string> found = FilesOf(folder());
  EXPECT_EQ(found.at("manifest.json"), expected.at("manifest.json"));
  EXPECT_NE(found.at("weights.safetensors"), expected.at("weights.safetensors"));
}

TEST_F(CaptureTest, ACancelledCaptureLeavesNothing) {
  const Status status = Capture(SourcesForTest(device_, {300000}, 1),
                                {.tick = [](uint64_t, uint64_t) { return Status(Code::kCancelled, "stop"); }})
                            .status();
  EXPECT_EQ(status.code(), Code::kCancelled);
  EXPECT_TRUE(NothingLeft());
}

TEST_F(CaptureTest, AnotherFolderIsLeftAlone) {
  std::filesystem::create_directory(folder());
  const std::string kept = temp_.Write(std::string(kShard) + "/kept", "kept");
  EXPECT_EQ(Capture(SourcesForTest(device_, {1}, 1), {}).status().code(), Code::kExists);
  EXPECT_TRUE(std::filesystem::exists(kept));
}

TEST_F(CaptureTest, WrongOptionsAreRefusedUntouched) {
  EXPECT_EQ(WriteBackendNamed("fast").status().code(), Code::kRequestInvalid);
  EXPECT_THAT(WriteBackendNamed("fast").status().message(), HasSubstr("backend is \"fast\", it must be auto"));
  const SourcesForTest sources(device_, {300000}, 1);
  const std::vector<std::pair<CaptureOptions, const char*>> wrong = {
      {{.chunk_bytes = 0}, "chunk_bytes is 0"},
      {{.chunk_bytes = kLeafBytes + 1}, "must be a multiple of 65536"},
      {{.chunk_bytes = 2 * kGiB}, "up to 1073741824"},
      {{.queue_depth = 0}, "queue_depth is 0, it must be 1 to 64"},
      {{.queue_depth = 65}, "queue_depth is 65"},
      {{.write_threads = 0}, "write_threads is 0"},
      {{.chunk_bytes = kLeafBytes, .pinned_max_bytes = kLeafBytes}, "the limit is 65536"},
  };
  for (const auto& [options, text] : wrong) {
    const Status status = Capture(sources, options).status();
    EXPECT_EQ(status.code(), Code::kRequestInvalid) << text;
    EXPECT_THAT(status.message(), HasSubstr(text));
    EXPECT_TRUE(NothingLeft());
  }
  EXPECT_EQ(CaptureShard(temp_.path() + "/none", kShard, sources.Plan(), "{}", "{}", device_.gpu(), {}).status().code(),
            Code::kRequestInvalid);
  EXPECT_EQ(CaptureShard(temp_.path(), kShard, sources.Plan(), "[]", "{}", device_.gpu(), {}).status().code(),
            Code::kRequestInvalid);
  EXPECT_TRUE(NothingLeft());
  // Also what only the last file needs is refused before the first one is written.
  const CaptureOptions must_not_begin{.tick = [](uint64_t, uint64_t) {
    ADD_FAILURE() << "the capture has begun";
    return Status::Ok();
  }};
  for (const auto& [shard, identity, scalars] : {std::array{"../escape", "{}", "{}"}, std::array{"shard", "{}", "{}"},
                                                 std::array{kShard, "{", "{}"}, std::array{kShard, "{}", "[1]"}}) {
    const Status status =
        CaptureShard(temp_.path(), shard, sources.Plan(), identity, scalars, device_.gpu(), must_not_begin).status();
    EXPECT_EQ(status.code(), Code::kRequestInvalid) << shard << identity << scalars;
  }
  EXPECT_TRUE(NothingLeft());
}

TEST_F(CaptureTest, APreverifiedCaptureFindsWhatTheDriveHasWrong) {
  const std::vector<uint64_t> sizes = {300000, 100};
  const SourcesForTest sources(device_, sizes, 1);
  const Layout layout = sources.Plan();
  const auto preverified = [&](const std::function<void()>& once_written) {
    bool called = false;
    Result<CapturedShard> result =
        Capture(sources, {.preverified = true, .tick = [&](uint64_t done, uint64_t total) {
                            if (total - done == 300100 && !called) {  // reading again is the last pass
                              called = true;
                              if (once_written) once_written();
                            }
                            return Status::Ok();
                          }});
    EXPECT_TRUE(called || result.status().code() == Code::kRouteUnavailable);
    return result;
  };
  const Result<CapturedShard> good = preverified(nullptr);
  if (good.status().code() == Code::kRouteUnavailable) {
    GTEST_SKIP() << "no way past the page cache here: " << good.status().message();
  }
  ASSERT_TRUE(good.ok()) << good.status().message();
  EXPECT_GT(good->report.stages_s.reread, 0);
  std::filesystem::remove_all(folder());

  const std::vector<std::pair<uint64_t, const char*>> places = {
      {10, "byte 10 is not the header"},
      {layout.file_offsets[0] + 70000, "extent 0 (t0)"},
      {layout.file_offsets[0] + 300000, "is not the zero"},
      {layout.file_offsets[1] + 99, "extent 1 (t1)"},
      {layout.blob_bytes - 1, "is not the zero"},
  };
  for (const auto& [offset, text] : places) {
    const Status status = preverified([this, at = offset] { FlipInFile(at); }).status();
    EXPECT_EQ(status.code(), Code::kDataLoss) << text;
    EXPECT_THAT(status.message(), HasSubstr(text));
    EXPECT_TRUE(NothingLeft());
  }
}

TEST_F(CaptureTest, InMemoryNothingIsPreverified) {
  if (!std::filesystem::is_directory("/dev/shm")) GTEST_SKIP() << "there is no /dev/shm";
  const TempDir memory("/dev/shm");
  const Result<CapturedShard> captured = CaptureShard(memory.path(), kShard, SourcesForTest(device_, {100}, 1).Plan(),
                                                      "{}", "{}", device_.gpu(), {.preverified = true});
  EXPECT_EQ(captured.status().code(), Code::kRouteUnavailable);
  EXPECT_THAT(captured.status().message(), HasSubstr("its file system lives in memory"));
  EXPECT_TRUE(std::filesystem::is_empty(memory.path()));
}

TEST_F(CaptureTest, InMemoryAutoWritesThroughThePageCacheAndSaysSo) {
  if (!std::filesystem::is_directory("/dev/shm")) GTEST_SKIP() << "there is no /dev/shm";
  const TempDir memory("/dev/shm");
  const Result<CapturedShard> captured =
      CaptureShard(memory.path(), kShard, SourcesForTest(device_, {100}, 1).Plan(), "{}", "{}", device_.gpu(), {});
  ASSERT_TRUE(captured.ok()) << captured.status().message();
  EXPECT_EQ(captured->report.route, Route::kBuffered);
  EXPECT_EQ(captured->report.reasons.at(0).code, "direct_served_from_memory");
}

}  // namespace
}  // namespace coldsnap
