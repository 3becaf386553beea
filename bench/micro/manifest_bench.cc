// Question: how long does a start-up wait for the manifest?  Target: at most 110 ms for 200,000 tensors on two cores.
// And for a million extents, the placing in a capture and the plan of a restore's reads?
//
// The tensors are those of a mixture of experts: a BF16 matrix each, of its own extent, with a role and two attributes.
// 1,000,000 extents fit the blob's header only as small ones, in groups: there each has one row.
// Text and allocator are warm. Memory is the high-water mark of the process, the text and its making included.
#include <sys/resource.h>

#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "cc/artifact/layout.h"
#include "cc/artifact/manifest.h"
#include "cc/base/check.h"
#include "cc/base/strcat.h"
#include "cc/base/types.h"
#include "cc/base/units.h"
#include "cc/hydrate/plan.h"

namespace coldsnap {
namespace {

constexpr uint64_t kExpertsOfALayer = 256;
constexpr const char* kProjections[] = {"down_proj", "gate_proj", "up_proj"};

std::vector<TensorSpec> Experts(uint64_t count, uint64_t rows) {
  std::vector<TensorSpec> specs;
  specs.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t address = (uint64_t{1} << 40) + i * 4 * kMiB;
    const uint64_t expert = i / std::size(kProjections);
    specs.push_back(
        {.name = StrCat("model.layers.", expert / kExpertsOfALayer, ".mlp.experts.", expert % kExpertsOfALayer, ".",
                        kProjections[i % std::size(kProjections)], ".weight"),
         .dtype = "BF16",
         .shape = {rows, 2048},
         .strides = {2048, 1},
         .address = address,
         .storage_address = address,
         .storage_nbytes = rows * 2048 * 2,
         .object = i,
         .role = "parameter",
         .attrs = {"persistent=1", "requires_grad=0"}});
  }
  return specs;
}

std::string ManifestText(uint64_t tensors, uint64_t rows) {
  auto layout = PlanLayout(Experts(tensors, rows));
  COLDSNAP_CHECK(layout.ok());
  std::mt19937_64 random(tensors);
  std::vector<ExtentDigests> digests(layout->sources.size());
  for (ExtentDigests& each : digests) {
    each.crc32 = static_cast<uint32_t>(random());
    for (std::byte& byte : each.sha256t) byte = static_cast<std::byte>(random());
  }
  const auto manifest = MakeManifest(*std::move(layout), digests, Sha256{}, R"({"model":"bench"})", "{}");
  COLDSNAP_CHECK(manifest.ok());
  return WriteManifest(*manifest);
}

void BM_ParseManifest(benchmark::State& state) {
  const std::string text = ManifestText(static_cast<uint64_t>(state.range(0)), static_cast<uint64_t>(state.range(1)));
  for (auto _ : state) {
    auto manifest = std::make_optional(ParseManifest(text));
    state.PauseTiming();  // it lives as long as the artifact is open
    if (!manifest->ok()) {
      state.SkipWithError(manifest->status().message().c_str());
      break;
    }
    manifest.reset();
    state.ResumeTiming();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(text.size()));
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  state.counters["peak_MiB"] = static_cast<double>(usage.ru_maxrss) / 1024;
}
BENCHMARK(BM_ParseManifest)
    ->ArgNames({"tensors", "rows"})
    ->Args({1'000, 768})
    ->Args({200'000, 768})
    ->Args({1'000'000, 1})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->MeasureProcessCPUTime()  // of both threads
    ->Repetitions(9)
    ->ReportAggregatesOnly();

void BM_PlanLayout(benchmark::State& state) {
  for (auto _ : state) {
    state.PauseTiming();
    std::vector<TensorSpec> specs = Experts(static_cast<uint64_t>(state.range(0)), 1);
    state.ResumeTiming();
    auto layout = std::make_optional(PlanLayout(std::move(specs)));
    state.PauseTiming();
    COLDSNAP_CHECK(layout->ok());
    layout.reset();
    state.ResumeTiming();
  }
}
BENCHMARK(BM_PlanLayout)->ArgNames({"tensors"})->Arg(1'000'000)->Unit(benchmark::kMillisecond);

void BM_PlanReads(benchmark::State& state) {
  const auto layout = PlanLayout(Experts(static_cast<uint64_t>(state.range(0)), 1));
  COLDSNAP_CHECK(layout.ok());
  std::vector<Extent> extents;
  std::vector<uint32_t> wanted;
  for (size_t i = 0; i < layout->sources.size(); ++i) {
    extents.push_back({.file_offset = layout->file_offsets[i], .nbytes = layout->sources[i].nbytes});
    wanted.push_back(static_cast<uint32_t>(i));
  }
  for (auto _ : state) benchmark::DoNotOptimize(PlanReads(extents, wanted, 4 * kMiB, 4 * kKiB));
}
BENCHMARK(BM_PlanReads)->ArgNames({"extents"})->Arg(1'000'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace coldsnap

BENCHMARK_MAIN();
