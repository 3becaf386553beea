// Question: in which pieces does one thread read a file fastest, through the page cache and past it?
//
// The file is in TMPDIR, made for this and removed again. It is on the drive and, unless memory is short, in the page
// cache too; `resident` says how much of it was at the end. Reads past the cache don't see that. A drive wants several
// reads at once, so the direct ones are no ceiling of it: //bench:calibrate has those.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <utility>

#include "benchmark/benchmark.h"
#include "cc/base/check.h"
#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/base/units.h"
#include "cc/file/blob_reader.h"
#include "cc/sys/files.h"
#include "cc/sys/memory.h"
#include "cc/testing/temp_dir.h"

namespace coldsnap {
namespace {

constexpr uint64_t kFileBytes = 256 * kMiB;
constexpr const char* kFile = "blob";

// Random bytes: drives and file systems cheat on zeros.
class File {
 public:
  File() {
    std::string bytes(kFileBytes, '\0');
    std::mt19937_64 random(1);
    for (uint64_t i = 0; i < kFileBytes; i += sizeof(uint64_t)) {
      const uint64_t word = random();
      std::memcpy(bytes.data() + i, &word, sizeof(word));
    }
    folder_.Write(kFile, bytes);
    auto directory = OpenDirectory(folder_.path());
    COLDSNAP_CHECK(directory.ok());
    directory_ = *std::move(directory);
    auto file = OpenFileAt(directory_.get(), kFile);
    COLDSNAP_CHECK(file.ok());
    file_ = *std::move(file);
    COLDSNAP_CHECK(::fsync(file_.get()) == 0);  // else a direct read would wait for it
  }
  double Resident() const {
    const auto bytes = ResidentBytes(file_.get(), kFileBytes, kFile);
    COLDSNAP_CHECK(bytes.ok());
    return static_cast<double>(*bytes) / static_cast<double>(kFileBytes);
  }
  Result<BlobReader> Open(Route route) const { return BlobReader::Open(route, directory_.get(), kFile, file_.get()); }

 private:
  TempDir folder_;
  UniqueFd directory_;
  UniqueFd file_;
};

// One for all benchmarks, gone when the program ends.
const File& TheFile() {
  static const File file;
  return file;
}

void BM_Read(benchmark::State& state, Route route) {
  const auto reader = TheFile().Open(route);
  if (!reader.ok()) {  // a file system without direct I/O
    state.SkipWithError(reader.status().message().c_str());
    return;
  }
  const auto block_bytes = static_cast<uint64_t>(state.range(0));
  const auto memory = MapTouched(block_bytes);
  COLDSNAP_CHECK(memory.ok());
  const std::span<std::byte> into = BytesOf(*memory).first(block_bytes);
  uint64_t at = 0;
  for (auto _ : state) {
    const Status status = reader->Read(into, at);
    if (!status.ok()) {
      state.SkipWithError(status.message().c_str());
      break;
    }
    at = (at + block_bytes) % kFileBytes;
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * state.range(0));
  state.counters["resident"] = TheFile().Resident();
}

void Sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgName("block_bytes")->UseRealTime();
  for (const uint64_t bytes : {64 * kKiB, 256 * kKiB, kMiB, 4 * kMiB, 16 * kMiB}) {
    bench->Arg(static_cast<int64_t>(bytes));
  }
}
BENCHMARK_CAPTURE(BM_Read, buffered, Route::kBuffered)->Apply(Sizes);
BENCHMARK_CAPTURE(BM_Read, direct, Route::kDirect)->Apply(Sizes);

}  // namespace
}  // namespace coldsnap

BENCHMARK_MAIN();
