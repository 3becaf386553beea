// Question: what does the ring itself cost, between threads that do nothing but take slots and give them back?
//
// On the host a copy is done when it is recorded, so what is left is the ring: its lock, its queue, its marks. A
// restore of 8 GiB in chunks of 4 MiB takes 2048 slots. Making a ring is pinning and touching its memory.
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "benchmark/benchmark.h"
#include "cc/base/check.h"
#include "cc/base/status.h"
#include "cc/base/units.h"
#include "cc/device/gpu.h"
#include "cc/device/host_gpu.h"
#include "cc/ring/ring.h"

namespace coldsnap {
namespace {

constexpr int kSlots = 32;

// What the threads of one benchmark share.
struct Shared {
  std::unique_ptr<Gpu> gpu = OpenHostGpu();
  std::unique_ptr<Ring> ring = *Ring::Create(*gpu, kSlots, kLeafBytes);
};
std::optional<Shared> shared;

void MakeShared(const benchmark::State& /*state*/) { shared.emplace(); }
void DropShared(const benchmark::State& /*state*/) { shared.reset(); }

Status TakeAndSend(Ring& ring, Lane& lane) {
  ASSIGN_OR_RETURN(EmptySlot slot, ring.Acquire());
  RETURN_IF_ERROR(lane.Begin(slot.mark()));
  RETURN_IF_ERROR(lane.Record(slot.mark()));
  std::move(slot).Sent();
  return Status::Ok();
}

void BM_TakeAndSend(benchmark::State& state) {
  const std::unique_ptr<Lane> lane = *shared->gpu->OpenLane();
  for (auto _ : state) COLDSNAP_CHECK(TakeAndSend(*shared->ring, *lane).ok());
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()));
}
BENCHMARK(BM_TakeAndSend)->Setup(MakeShared)->Teardown(DropShared)->ThreadRange(1, 16)->UseRealTime();

void BM_MakeRing(benchmark::State& state) {
  const std::unique_ptr<Gpu> gpu = OpenHostGpu();
  for (auto _ : state) {
    auto ring = Ring::Create(*gpu, static_cast<int>(state.range(0)), 4 * kMiB);
    COLDSNAP_CHECK(ring.ok());
  }
}
BENCHMARK(BM_MakeRing)->ArgName("slots")->Arg(1)->Arg(8)->Arg(32)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace coldsnap

BENCHMARK_MAIN();
