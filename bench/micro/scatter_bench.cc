// Question: what does a small piece cost on its way from a slot to its place, and does it help to submit many at once?
//
//   scatter_bench --device=cuda:0       (without it the host's memory stands in, where a piece is a memcpy)
// A slot of 4 MiB is cut into pieces, which go to places that are spread over 64 MiB of the device's memory; an
// iteration ends when they are there.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "benchmark/benchmark.h"
#include "cc/base/status.h"
#include "cc/base/strcat.h"
#include "cc/base/units.h"
#include "cc/device/gpu.h"

namespace coldsnap {
namespace {

constexpr uint64_t kSlotBytes = 4 * kMiB;
constexpr uint64_t kSpread = 16;  // how many times as far apart pieces are at the device

struct Places {
  std::unique_ptr<PinnedMemory> slot;
  std::unique_ptr<DeviceMemory> memory;
  std::unique_ptr<Lane> lane;
  std::unique_ptr<Mark> mark;
};

Result<Places> Prepare(Gpu& gpu) {
  Places places;
  ASSIGN_OR_RETURN(places.slot, gpu.Pin(kSlotBytes));
  ASSIGN_OR_RETURN(places.memory, gpu.Allocate(kSlotBytes * kSpread));
  ASSIGN_OR_RETURN(places.lane, gpu.OpenLane());
  ASSIGN_OR_RETURN(places.mark, gpu.NewMark(false));
  return places;
}

std::vector<CopyIn> Pieces(const Places& places, uint64_t piece_bytes) {
  std::vector<CopyIn> pieces;
  for (uint64_t at = 0; at < kSlotBytes; at += piece_bytes) {
    const uint64_t address = places.memory->address() + at * kSpread;
    pieces.push_back(
        {.to = {.address = address, .nbytes = piece_bytes}, .from = places.slot->bytes().subspan(at).data()});
  }
  return pieces;
}

Status CopyAll(const Places& places, std::span<const CopyIn> pieces, size_t at_once) {
  RETURN_IF_ERROR(places.lane->Begin(*places.mark));
  for (size_t i = 0; i < pieces.size(); i += at_once) {
    RETURN_IF_ERROR(places.lane->CopyToDevice(pieces.subspan(i, std::min(at_once, pieces.size() - i))));
  }
  RETURN_IF_ERROR(places.lane->Record(*places.mark));
  return places.mark->Wait();
}

void Scatter(benchmark::State& state, Gpu& gpu) {
  const auto places = Prepare(gpu);
  if (!places.ok()) {
    state.SkipWithError(places.status().message().c_str());
    return;
  }
  const std::vector<CopyIn> pieces = Pieces(*places, static_cast<uint64_t>(state.range(0)));
  for (auto _ : state) {
    const Status status = CopyAll(*places, pieces, static_cast<size_t>(state.range(1)));
    if (!status.ok()) {
      state.SkipWithError(status.message().c_str());
      break;
    }
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(kSlotBytes));
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(pieces.size()));
}

// What is left of the command line after Google Benchmark's own flags: at most --device=NAME.
Result<std::unique_ptr<Gpu>> OpenAsked(std::span<char*> arguments) {
  constexpr std::string_view kDevice = "--device=";
  std::string name = "host";
  for (const std::string_view argument : arguments) {
    if (!argument.starts_with(kDevice)) {
      return Status(Code::kRequestInvalid, StrCat("argument ", argument, " is not --device=NAME"));
    }
    name = argument.substr(kDevice.size());
  }
  return OpenGpu(name);
}

Status Run(std::span<char*> arguments) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Gpu> gpu, OpenAsked(arguments));
  auto* const bench =
      benchmark::RegisterBenchmark("BM_Scatter", [&](benchmark::State& state) { Scatter(state, *gpu); });
  bench->ArgNames({"piece_bytes", "at_once"})->UseRealTime();
  for (const int64_t piece_bytes : {512, 4096, 16384, 65536}) {
    for (const int64_t at_once : {1, 1024}) bench->Args({piece_bytes, at_once});
  }
  benchmark::RunSpecifiedBenchmarks();
  return Status::Ok();
}

}  // namespace
}  // namespace coldsnap

// NOLINTNEXTLINE(bugprone-exception-escape): then the program ends, as it should
int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const coldsnap::Status status = coldsnap::Run(std::span(argv, static_cast<size_t>(argc)).subspan(1));
  if (status.ok()) return EXIT_SUCCESS;
  std::fprintf(stderr, "scatter_bench: %s\n", status.message().c_str());
  return EXIT_FAILURE;
}
