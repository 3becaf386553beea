// Many restores: side by side, into the same memory, stopped anywhere, and so often that a leak must show.
//
// On the host the copies happen as late as their contract allows (TestDevice), so a slot that is given out too early
// is wrong every time. Under ThreadSanitizer there are fewer rounds: it looks at the order of events, not at luck.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cc/device/cuda_gpu.h"
#include "cc/hydrate/hydrate.h"
#include "cc/testing/interposed_gpu.h"
#include "cc/testing/seed.h"
#include "cc/testing/test_artifact.h"
#include "cc/testing/test_device.h"
#include "tests/stress/process_state.h"

namespace coldsnap {
namespace {

using testing::HasSubstr;

#ifdef __SANITIZE_THREAD__
constexpr int kDivideRounds = 10;
#else
constexpr int kDivideRounds = 1;
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitizer = true;
#else
constexpr bool kSanitizer = false;
#endif

constexpr std::byte kPoison{0xFF};

// Routes, digests, rings of one slot and of more slots than windows, one thread and more threads than slots.
std::vector<HydrateOptions> Settings() {
  std::vector<HydrateOptions> settings;
  for (const Backend backend : {Backend::kBuffered, Backend::kDirect, Backend::kAuto}) {
    for (const Verify verify : {Verify::kCrc32, Verify::kCrc32Sha256}) {
      settings.push_back({.backend = backend, .verify = verify, .chunk_bytes = kLeafBytes, .queue_depth = 1});
      settings.push_back({.backend = backend, .verify = verify, .chunk_bytes = 2 * kLeafBytes, .queue_depth = 3});
      settings.back().read_threads = 2;
      settings.push_back({.backend = backend, .verify = verify, .chunk_bytes = kMiB, .queue_depth = 64});
      settings.back().read_threads = 1;
    }
  }
  return settings;
}

std::vector<DeviceRange> RangesOf(const std::vector<TestArtifact::Destination>& destinations) {
  std::vector<DeviceRange> ranges;
  for (const auto& each : destinations) ranges.push_back(each.target.range);
  return ranges;
}

class RestoreStressTest : public testing::Test {
 protected:
  void ExpectRestored(const std::vector<TestArtifact::Destination>& destinations) {
    for (const auto& each : destinations) {
      EXPECT_EQ(device_.Differences(each.target.range, each.seed), 0U) << each.name;
    }
  }
  void ExpectPoison(const std::vector<TestArtifact::Destination>& destinations) {
    for (const auto& each : destinations) EXPECT_TRUE(device_.AllBytesAre(each.target.range, kPoison)) << each.name;
  }
  void Poison(const std::vector<TestArtifact::Destination>& destinations) {
    ASSERT_TRUE(device_.gpu().Poison(RangesOf(destinations)).ok());
  }
  TestDevice device_;
};

class SideBySideTest : public RestoreStressTest, public testing::WithParamInterface<int> {};

TEST_P(SideBySideTest, RestoresIntoSeparateMemoryAreAllRight) {
  const TestArtifact files({3 * kMiB + 5, kLeafBytes, 700, 1});
  const OpenArtifact artifact = files.Open();  // one for all: a restore changes nothing in it
  const std::vector<HydrateOptions> settings = Settings();
  std::vector<std::vector<TestArtifact::Destination>> everybody;
  for (int i = 0; i < GetParam(); ++i) everybody.push_back(files.Allocate(artifact, device_));
  for (size_t round = 0; round < 40 / kDivideRounds; ++round) {
    for (const auto& destinations : everybody) Poison(destinations);
    std::vector<Status> ended(everybody.size());
    std::latch start(GetParam());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < everybody.size(); ++i) {
      threads.emplace_back([&, i] {
        const HydrateOptions& options = settings[(round * everybody.size() + i) % settings.size()];
        start.arrive_and_wait();
        ended[i] = Hydrate(artifact, TargetsOf(everybody[i]), device_.gpu(), options).status();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t i = 0; i < everybody.size(); ++i) {
      ASSERT_TRUE(ended[i].ok()) << "round " << round << ": " << ended[i].message();
      ExpectRestored(everybody[i]);
    }
    if (HasFailure()) return;  // the first wrong round says it all
  }
}

INSTANTIATE_TEST_SUITE_P(TwoAndFour, SideBySideTest, testing::Values(2, 4),
                         [](const auto& info) { return StrCat(info.param, "_threads"); });

TEST_F(RestoreStressTest, OfTwoRestoresIntoTheSameMemoryOneIsRefused) {
  const TestArtifact files({kMiB + 5, 700});
  const OpenArtifact artifact = files.Open();
  const auto destinations = files.Allocate(artifact, device_);
  for (int round = 0; round < 50 / kDivideRounds; ++round) {
    Poison(destinations);
    // Whoever copies waits in its first copy for the other's end, so the two restores do overlap. If both come to
    // copying, nobody was refused: then they go on, and the counts below are wrong.
    std::atomic<int> copying = 0;
    std::atomic<int> over = 0;
    std::vector<Status> ended(2);
    std::latch start(2);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < 2; ++i) {
      threads.emplace_back([&, i] {
        InterposedGpu gpu(device_.gpu(), [&](int copy) {
          if (copy == 0) {
            ++copying;
            while (over == 0 && copying < 2) std::this_thread::yield();
          }
          return Status::Ok();
        });
        start.arrive_and_wait();
        ended[i] =
            Hydrate(artifact, TargetsOf(destinations), gpu, {.chunk_bytes = kLeafBytes, .read_threads = 1}).status();
        ++over;
      });
    }
    for (std::thread& thread : threads) thread.join();
    const Status& refused = ended[0].ok() ? ended[1] : ended[0];
    ASSERT_EQ(refused.code(), Code::kPolicyRefused) << "round " << round << ": " << refused.message();
    EXPECT_THAT(refused.message(), HasSubstr("another restore of this process is writing there"));
    ASSERT_TRUE(ended[0].ok() || ended[1].ok()) << "both were refused in round " << round;
    ExpectRestored(destinations);
    if (HasFailure()) return;
  }
}

TEST_F(RestoreStressTest, StoppedAtAnyMomentItIsWhollyPoisonOrWhollyRight) {
  const uint64_t seed = TestSeed(20240607);
  std::mt19937_64 random(seed);
  const auto below = [&random](uint64_t end) { return std::uniform_int_distribution<uint64_t>(0, end - 1)(random); };
  const TestArtifact files({2 * kMiB + 5, kLeafBytes, 700});
  const OpenArtifact artifact = files.Open();
  const auto destinations = files.Allocate(artifact, device_);
  const uint64_t total = artifact.payload_bytes();
  const std::vector<HydrateOptions> settings = Settings();
  int stopped = 0;
  int finished = 0;
  for (int round = 0; round < 100 / kDivideRounds; ++round) {
    HydrateOptions options = settings[below(settings.size())];
    // Three ways to stop: the caller's callback once so many bytes are done (as many as there are: the very last
    // moment), a flag set by another thread after some time, a failure in the copy with that number.
    const uint64_t way = below(3);
    const uint64_t at_bytes = below(4) == 0 ? total : below(total);
    const auto after = std::chrono::microseconds(below(60'000));
    const int at_copy = static_cast<int>(below(80));  // with large chunks there are fewer: then it finishes
    const auto pause = std::chrono::microseconds(below(2) * below(6'000));
    std::atomic<bool> flag = false;
    std::optional<std::thread> setter;
    if (way == 1) setter.emplace([&] { std::this_thread::sleep_for(after), flag = true; });
    InterposedGpu gpu(device_.gpu(), [&](int copy) {
      std::this_thread::sleep_for(pause);  // so that the callback, 20 times a second, comes in the middle
      return way == 2 && copy == at_copy ? Status(Code::kCancelled, "stopped in a copy") : Status::Ok();
    });
    options.tick = [&](uint64_t done, uint64_t) {
      if ((way == 0 && done >= at_bytes) || (way == 1 && flag))
        return Status(Code::kCancelled, "stopped by the caller");
      return Status::Ok();
    };
    ASSERT_TRUE(device_.gpu().Poison(RangesOf(destinations)).ok());
    const Result<HydrateReport> report = Hydrate(artifact, TargetsOf(destinations), gpu, options);
    if (setter) setter->join();
    if (report.ok()) {
      ++finished;
      EXPECT_EQ(report->payload_bytes, total);
      ExpectRestored(destinations);
    } else {
      ++stopped;
      EXPECT_EQ(report.status().code(), Code::kCancelled) << report.status().message();
      ExpectPoison(destinations);
    }
    ASSERT_FALSE(HasFailure()) << "seed " << seed << ", round " << round << ", way " << way;
  }
  EXPECT_GT(stopped, 0);
  EXPECT_GT(finished, 0);
}

// One flipped bit, one shortage and one cancelled restore among the many: what fails must hold nothing either.
TEST_F(RestoreStressTest, AThousandRestoresHoldNothing) {
  const TestArtifact files({5 * kLeafBytes + 9, kLeafBytes, 700, 1});
  const std::vector<HydrateOptions> settings = Settings();
  const auto destinations = files.Allocate(files.Open(), device_);
  const auto restore = [&](int round) {
    HydrateOptions options = settings[static_cast<size_t>(round) % settings.size()];
    if (round % 7 == 3) options.tick = [](uint64_t, uint64_t) { return Status(Code::kCancelled, "stop"); };
    const bool fails_in_copy = round % 7 == 5;
    InterposedGpu gpu(device_.gpu(), [&](int copy) {
      return fails_in_copy && copy == 1 ? Status(Code::kCuda, "copy: injected") : Status::Ok();
    });
    const OpenArtifact artifact = files.Open();
    const Status status = Hydrate(artifact, TargetsOf(destinations), gpu, options).status();
    ASSERT_EQ(status.ok(), !options.tick && !fails_in_copy) << status.message();
    ASSERT_EQ(gpu.allocated_bytes(), 0U) << "device memory, after round " << round;
  };
  // By the driver's own account, which sees what was not taken through the Gpu. The host has no such account.
  const auto device_free = [&]() -> uint64_t { return device_.IsCuda() ? DescribeCudaDevice(0)->free_bytes : 0; };

  // Heaps of the allocator and stacks that the C library keeps for the next thread come in the first rounds.
  for (int round = 0; round < 100 && !HasFailure(); ++round) restore(round);
  const ProcessState before = TakeProcessState();
  const uint64_t free_before = device_free();
  for (int round = 0; round < 1000 / kDivideRounds && !HasFailure(); ++round) restore(round);
  ProcessState after = TakeProcessState();
  // A thread that was joined is in /proc for a moment longer.
  for (int i = 0; i < 1000 && after.threads > before.threads; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    after = TakeProcessState();
  }
  RecordProperty("before", testing::PrintToString(before));
  RecordProperty("after", testing::PrintToString(after));
  EXPECT_EQ(after.descriptors, before.descriptors);
  EXPECT_EQ(after.threads, before.threads);
  EXPECT_LE(after.mappings, before.mappings + 16) << before << "; then " << after;
  if (!kSanitizer) {  // their own memory grows
    EXPECT_LE(after.resident_bytes, before.resident_bytes + 64 * static_cast<int64_t>(kMiB))
        << before << "; then " << after;
  }
  EXPECT_EQ(device_free(), free_before);
}

TEST_F(RestoreStressTest, EveryByteIsRightEachTime) {
  // The ring has two slots of one leaf.
  const TestArtifact files({37 * kLeafBytes + 11, 2 * kLeafBytes, kLeafBytes, 700});
  const OpenArtifact artifact = files.Open();
  const auto destinations = files.Allocate(artifact, device_);
  for (int round = 0; round < 200 / kDivideRounds; ++round) {
    Poison(destinations);
    const Result<HydrateReport> report = Hydrate(artifact, TargetsOf(destinations), device_.gpu(),
                                                 {.backend = round % 2 == 0 ? Backend::kBuffered : Backend::kDirect,
                                                  .verify = round % 3 == 0 ? Verify::kCrc32 : Verify::kCrc32Sha256,
                                                  .chunk_bytes = kLeafBytes,
                                                  .queue_depth = 2,
                                                  .read_threads = 1 + round % 4});
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_GE(artifact.payload_bytes(), 20 * 2 * kLeafBytes);
    ExpectRestored(destinations);
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

}  // namespace
}  // namespace coldsnap
