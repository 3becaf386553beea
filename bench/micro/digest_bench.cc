// Question: how fast does one core compute each digest, and from which size of piece on?
//
// Up to a few hundred KiB the bytes are in the core's own cache, as those that it has just read are; 64 MiB come from
// memory. The tree is of all leaves of one extent, the combination joins the CRCs of two pieces.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "benchmark/benchmark.h"
#include "cc/base/types.h"
#include "cc/base/units.h"
#include "cc/digest/crc32.h"
#include "cc/digest/sha256.h"

namespace coldsnap {
namespace {

std::vector<std::byte> RandomBytes(uint64_t nbytes) {
  std::vector<std::byte> bytes(nbytes);
  std::mt19937_64 random(nbytes);
  for (uint64_t i = 0; i < nbytes; i += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, sizeof(word));
  }
  return bytes;
}

void CountBytes(benchmark::State& state, uint64_t nbytes) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(nbytes));
}

void BM_Crc32(benchmark::State& state) {
  const std::vector<std::byte> bytes = RandomBytes(static_cast<uint64_t>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(Crc32(0, bytes));
  CountBytes(state, bytes.size());
}
BENCHMARK(BM_Crc32)->ArgName("bytes")->Arg(4 * kKiB)->Arg(kLeafBytes)->Arg(kMiB)->Arg(64 * kMiB);

void BM_LeafDigests(benchmark::State& state) {
  const std::vector<std::byte> bytes = RandomBytes(static_cast<uint64_t>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(LeafDigests(bytes));
  CountBytes(state, bytes.size());
}
BENCHMARK(BM_LeafDigests)->ArgName("bytes")->Arg(4 * kKiB)->Arg(kLeafBytes)->Arg(kMiB)->Arg(64 * kMiB);

void BM_TreeRoot(benchmark::State& state) {
  const std::vector<Sha256> leaves(static_cast<size_t>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(TreeRoot(leaves));
  CountBytes(state, leaves.size() * sizeof(Sha256));
}
BENCHMARK(BM_TreeRoot)->ArgName("leaves")->Arg(1)->Arg(16)->Arg(1024)->Arg(65536);

void BM_Crc32Combine(benchmark::State& state) {
  uint32_t crc = 1;
  for (auto _ : state) {
    crc = Crc32Combine(crc, 0x12345678, static_cast<uint64_t>(state.range(0)));
    benchmark::DoNotOptimize(crc);
  }
}
BENCHMARK(BM_Crc32Combine)->ArgName("second_bytes")->Arg(1)->Arg(kLeafBytes)->Arg(4 * kMiB)->Arg(kGiB);

}  // namespace
}  // namespace coldsnap

BENCHMARK_MAIN();
