#include "cc/ring/ring.h"

#include <thread>
#include <vector>

#include "cc/base/units.h"
#include "cc/device/host_gpu.h"
#include "cc/testing/interposed_gpu.h"
#include "gtest/gtest.h"

namespace coldsnap {
namespace {

// A device whose pins fail above a limit, as a memory cgroup's do.
class PinLimitedGpu final : public InterposedGpu {
 public:
  PinLimitedGpu(Gpu& inner, uint64_t limit) : InterposedGpu(inner, [](int) { return Status::Ok(); }), limit_(limit) {}
  Result<std::unique_ptr<PinnedMemory>> Pin(uint64_t nbytes) override {
    tried.push_back(nbytes);
    if (nbytes > limit_) return Status(Code::kOutOfMemory, StrCat("pin ", nbytes, " bytes"));
    return InterposedGpu::Pin(nbytes);
  }

  std::vector<uint64_t> tried;

 private:
  uint64_t limit_;
};

TEST(RingTest, SlotsDoNotOverlapAndComeBackInTurn) {
  const std::unique_ptr<Gpu> gpu = OpenHostGpu();
  const std::unique_ptr<Ring> ring = *Ring::Create(*gpu, 3, 64 * kKiB);
  std::byte* first = nullptr;
  {
    EmptySlot a = *ring->Acquire();
    EmptySlot b = *ring->Acquire();
    EmptySlot c = *ring->Acquire();
    first = a.bytes().data();
    EXPECT_EQ(b.bytes().data() - a.bytes().data(), 64 * kKiB);
    EXPECT_EQ(c.bytes().data() - b.bytes().data(), 64 * kKiB);
    std::move(a).Sent();
  }
  EXPECT_EQ((*ring->Acquire()).bytes().data(), first);
}

TEST(RingTest, EveryDroppedSlotComesBack) {
  const std::unique_ptr<Gpu> gpu = OpenHostGpu();
  const std::unique_ptr<Ring> ring = *Ring::Create(*gpu, 2, 64 * kKiB);
  for (int i = 0; i < 10; ++i) {
    const EmptySlot dropped = *ring->Acquire();  // as a failed read does; the third would hang if it were lost
    EXPECT_EQ(dropped.bytes().size(), 64 * kKiB);
  }
}

TEST(RingTest, AcquireWaitsForTheCopiesOfTheSlotItGivesOut) {
  const std::unique_ptr<Gpu> gpu = OpenHostGpu(CopyTime::kLatest);
  const std::unique_ptr<Ring> ring = *Ring::Create(*gpu, 1, 64 * kKiB);
  const std::unique_ptr<Lane> lane = *gpu->OpenLane();
  std::vector<std::byte> target(8);
  {
    EmptySlot slot = *ring->Acquire();
    slot.bytes()[0] = std::byte{42};
    ASSERT_TRUE(lane->Begin(slot.mark()).ok());
    ASSERT_TRUE(lane->CopyToDevice({reinterpret_cast<uint64_t>(target.data()), 8}, slot.bytes().data()).ok());
    ASSERT_TRUE(lane->Record(slot.mark()).ok());
    std::move(slot).Sent();
  }
  EXPECT_EQ(target[0], std::byte{0});
  const EmptySlot again = *ring->Acquire();
  EXPECT_EQ(target[0], std::byte{42});
}

TEST(RingTest, AcquireWakesUpWhenAnotherThreadGivesBack) {
  const std::unique_ptr<Gpu> gpu = OpenHostGpu();
  const std::unique_ptr<Ring> ring = *Ring::Create(*gpu, 1, 64 * kKiB);
  std::vector<std::thread> threads;
  int turns = 0;  // guarded by the one slot
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        const EmptySlot slot = *ring->Acquire();
        ++turns;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(turns, 4000);
}

TEST(RingTest, GivesOutOnlyThoseInUse) {
  const std::unique_ptr<Gpu> gpu = OpenHostGpu();
  const std::unique_ptr<Ring> ring = *Ring::Create(*gpu, 4, 64 * kKiB);
  const std::byte* const first = (*ring->Acquire()).bytes().data();
  ring->Use(2);
  EXPECT_EQ(ring->slots(), 4);
  for (int round = 0; round < 2; ++round) {
    EmptySlot a = *ring->Acquire();
    const EmptySlot b = *ring->Acquire();
    EXPECT_EQ(a.bytes().data(), first);
    EXPECT_EQ(b.bytes().data(), first + 64 * kKiB);
    std::move(a).Sent();
  }
  ring->Use(4);
  const EmptySlot slots[] = {*ring->Acquire(), *ring->Acquire(), *ring->Acquire()};
  EXPECT_EQ(slots[2].bytes().data(), first + 128 * kKiB);
}

TEST(RingTest, HalvesUntilThePinSucceedsAndKeepsTheReason) {
  const std::unique_ptr<Gpu> host = OpenHostGpu();
  PinLimitedGpu gpu(*host, 200 * kKiB);
  const std::unique_ptr<Ring> ring = *Ring::Create(gpu, 8, 64 * kKiB);
  EXPECT_EQ(ring->slots(), 2);
  EXPECT_EQ(gpu.tried, (std::vector<uint64_t>{512 * kKiB, 256 * kKiB, 128 * kKiB}));
  EXPECT_EQ(ring->shrunk_because().message(), "pin 524288 bytes");
}

TEST(RingTest, FailsWhenNotEvenOneSlotCanBePinned) {
  const std::unique_ptr<Gpu> host = OpenHostGpu();
  PinLimitedGpu gpu(*host, 0);
  const Status status = Ring::Create(gpu, 4, 64 * kKiB).status();
  EXPECT_EQ(status.code(), Code::kOutOfMemory);
  EXPECT_EQ(status.stage(), "ring");
}

}  // namespace
}  // namespace coldsnap
