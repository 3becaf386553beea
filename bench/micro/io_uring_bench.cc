// Question: does io_uring beat coldsnap's pool of reader threads for direct reads?  To be worth a second way: by 5 %.
//
//   io_uring_bench --path=FOLDER --bytes=1GiB --rounds=5      (the folder is TMPDIR or this one unless named)
//
// A file of random bytes, without a name from its first moments on, is read with O_DIRECT into touched memory of
// in-flight x block bytes: by the threads that restores use, each with a read at a time, and by one thread with as many
// reads in an io_uring. Every sample starts cold and leaves nothing in the page cache, both proved; what lies below
// (a hypervisor's cache) can't be seen. First each way reads the file once untimed, and SHA-256 must find what was
// written. Then the samples are taken in rounds, the two ways in turns. Making threads and rings is not in them.
// Where io_uring is refused, only threads are measured. Lines that begin with a brace are JSON.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/micro/uring.h"
#include "cc/base/status.h"
#include "cc/base/strcat.h"
#include "cc/base/types.h"
#include "cc/base/units.h"
#include "cc/digest/sha256.h"
#include "cc/file/blob_reader.h"
#include "cc/hydrate/crew.h"
#include "cc/sys/files.h"
#include "cc/sys/memory.h"

namespace coldsnap {
namespace {

constexpr std::array<uint64_t, 3> kBlockBytes = {512 * kKiB, kMiB, 4 * kMiB};
constexpr std::array kInFlight = {1, 2, 4, 8, 16};
constexpr uint64_t kLargestBlock = kBlockBytes.back();
constexpr int kMostInFlight = kInFlight.back();
constexpr int kFewestRounds = 5;

struct Options {
  std::string path = ".";
  uint64_t bytes = kGiB;
  int rounds = kFewestRounds;
};

// "1GiB", "512MiB", "5".
std::optional<uint64_t> ParseSize(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  if (error != std::errc() || number > kGiB) return std::nullopt;
  if (unit.empty()) return number;
  if (unit == "MiB") return number * kMiB;
  if (unit == "GiB") return number * kGiB;
  return std::nullopt;
}

Result<Options> ParseOptions(std::span<char*> arguments) {
  Options options;
  if (const char* folder = std::getenv("TMPDIR")) options.path = folder;
  for (const std::string_view argument : arguments) {
    const size_t equals = std::min(argument.find('='), argument.size() - 1);
    const std::string_view name = argument.substr(0, equals);
    const std::string_view value = argument.substr(equals + 1);
    const uint64_t size = ParseSize(value).value_or(0);
    if (name == "--path" && !value.empty()) {
      options.path = value;
    } else if (name == "--bytes" && size != 0 && size % kLargestBlock == 0) {
      options.bytes = size;
    } else if (name == "--rounds" && size >= kFewestRounds && size <= 1000) {
      options.rounds = static_cast<int>(size);
    } else {
      return Status(Code::kRequestInvalid,
                    StrCat("argument ", argument, " is none of --path=FOLDER, --bytes=SIZE (a multiple of ",
                           kLargestBlock / kMiB, "MiB), --rounds=COUNT (", kFewestRounds, " to 1000)"));
    }
  }
  return options;
}

struct File {
  UniqueFd buffered;  // for what goes through the page cache, and to ask about it
  UniqueFd direct;
  std::optional<BlobReader> reader;
  uint64_t nbytes = 0;
  std::vector<Sha256> leaves;
};

Status WriteRandom(File& file) {
  std::mt19937_64 random(file.nbytes);
  std::vector<uint64_t> block(kLargestBlock / sizeof(uint64_t));
  const auto bytes = std::as_bytes(std::span(block));
  for (uint64_t offset = 0; offset < file.nbytes; offset += kLargestBlock) {
    std::ranges::generate(block, std::ref(random));
    std::ranges::copy(LeafDigests(bytes), std::back_inserter(file.leaves));
    RETURN_IF_ERROR(WriteExact(file.buffered.get(), bytes, offset, "the file to measure"));
  }
  if (::fsync(file.buffered.get()) != 0) return Status::FromErrno(errno, "sync the file to measure");
  return Status::Ok();
}

Result<File> MakeFile(const Options& options) {
  ASSIGN_OR_RETURN(const UniqueFd folder, OpenDirectory(options.path));
  if (IsMemoryBacked(folder.get())) {
    return Status(Code::kRequestInvalid, StrCat("measure a drive in ", options.path, ": this folder lies in memory"));
  }
  const std::string name = StrCat("io_uring_bench.", ::getpid());
  File file{.buffered = UniqueFd(::openat(folder.get(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600)),
            .nbytes = options.bytes};
  if (!file.buffered) return Status::FromErrno(errno, StrCat("create ", name, " in ", options.path));
  // A reader tries the first bytes as it opens. After that no name is needed, and nothing stays behind, come what may.
  const std::vector<std::byte> zeros(kLeafBytes);
  const Status begun = WriteExact(file.buffered.get(), zeros, 0, name);
  Result<BlobReader> reader =
      begun.ok() ? BlobReader::Open(Route::kDirect, folder.get(), name, file.buffered.get()) : begun;
  ::unlinkat(folder.get(), name.c_str(), 0);
  ASSIGN_OR_RETURN(file.reader, std::move(reader));
  ASSIGN_OR_RETURN(file.direct, ReopenFile(file.buffered.get(), O_RDONLY | O_DIRECT, name));
  RETURN_IF_ERROR(WriteRandom(file));
  return file;
}

Status MustBeCold(const File& file, std::string_view when) {
  ASSIGN_OR_RETURN(const uint64_t resident, ResidentBytes(file.buffered.get(), file.nbytes, "the file to measure"));
  if (resident <= file.nbytes / 1000) return Status::Ok();  // bench/results/README.md, "cold"
  return Status(Code::kIo, StrCat("prove that the file is cold ", when, " a direct read: ", resident, " of its ",
                                  file.nbytes, " bytes are in the page cache"));
}

struct Sample {
  double seconds = 0;
  double cpu_s = 0;  // of all threads, the kernel's workers too
};

struct Row {
  uint64_t block_bytes = 0;
  int in_flight = 0;
  std::vector<Sample> threads;
  std::vector<Sample> uring;
};

struct Bench {
  File file;
  Mapping memory;
  Crew crew;
  std::string ring;  // what io_uring does; empty: it is refused

  std::span<std::byte> Slot(const Row& row, uint64_t index) const {
    return BytesOf(memory).subspan(index * row.block_bytes, row.block_bytes);
  }
  Result<Uring> OpenUring(const Row& row) const {
    const auto in_flight = static_cast<unsigned>(row.in_flight);
    return Uring::Open(file.direct.get(), BytesOf(memory).first(in_flight * row.block_bytes), in_flight);
  }
};

// Gets every block that was read, from many threads at once; none in timed reads.
using OnBlock = std::function<void(uint64_t block, std::span<const std::byte> bytes)>;
using Way = Result<Sample> (*)(Bench&, const Row&, const OnBlock&);

class Timer {
 public:
  Sample Stop() const {
    return {.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(),
            .cpu_s = CpuSeconds() - cpu_s_};
  }

 private:
  static double CpuSeconds() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }
  double cpu_s_ = CpuSeconds();
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

Result<Sample> ReadByThreads(Bench& bench, const Row& row, const OnBlock& on_block) {
  const uint64_t blocks = bench.file.nbytes / row.block_bytes;
  std::atomic<uint64_t> next = 0;
  std::vector<Status> ends(static_cast<size_t>(row.in_flight));
  const auto work = [&](int member) {
    const auto index = static_cast<size_t>(member);
    const std::span<std::byte> slot = bench.Slot(row, index);
    for (uint64_t block = next.fetch_add(1); block < blocks; block = next.fetch_add(1)) {
      ends[index] = bench.file.reader->Read(slot, block * row.block_bytes);
      if (!ends[index].ok()) return;
      if (on_block) on_block(block, slot);
    }
  };
  const Timer timer;
  bench.crew.Run(row.in_flight, work, [] {});
  const Sample sample = timer.Stop();
  for (const Status& end : ends) RETURN_IF_ERROR(end);
  return sample;
}

Result<Sample> ReadByUring(Bench& bench, const Row& row, const OnBlock& on_block) {
  struct Read {
    uint64_t block = 0;
    uint64_t done_bytes = 0;
  };
  ASSIGN_OR_RETURN(Uring uring, bench.OpenUring(row));
  const uint64_t blocks = bench.file.nbytes / row.block_bytes;
  std::vector<Read> reads(std::min(static_cast<uint64_t>(row.in_flight), blocks));
  const auto start = [&](uint64_t index) {
    const Read& read = reads[index];
    return uring.StartRead(bench.Slot(row, index).subspan(read.done_bytes),
                           read.block * row.block_bytes + read.done_bytes, index);
  };
  uint64_t next = 0;
  const Timer timer;
  for (uint64_t index = 0; index < reads.size(); ++index) {
    reads[index].block = next++;
    RETURN_IF_ERROR(start(index));
  }
  for (uint64_t ended = 0; ended < blocks;) {
    RETURN_IF_ERROR(uring.Wait());
    while (const auto end = uring.Next()) {
      Read& read = reads[end->tag];
      if (end->result <= 0) {
        return Status::FromErrno(end->result == 0 ? EIO : -end->result,
                                 StrCat("read ", row.block_bytes, " bytes at offset ", read.block * row.block_bytes));
      }
      read.done_bytes += static_cast<uint64_t>(end->result);
      if (read.done_bytes == row.block_bytes) {
        if (on_block) on_block(read.block, bench.Slot(row, end->tag));
        ++ended;
        if (next == blocks) continue;
        read = {.block = next++};
      }
      RETURN_IF_ERROR(start(end->tag));  // the next block, or the rest of this one
    }
  }
  return timer.Stop();
}

Status TakeSample(Bench& bench, const Row& row, Way way, std::vector<Sample>& samples) {
  ::posix_fadvise(bench.file.buffered.get(), 0, 0, POSIX_FADV_DONTNEED);  // what it did is seen next
  RETURN_IF_ERROR(MustBeCold(bench.file, "before"));
  ASSIGN_OR_RETURN(const Sample sample, way(bench, row, nullptr));
  samples.push_back(sample);
  return MustBeCold(bench.file, "after");
}

Status Verify(Bench& bench, const Row& row, Way way, std::string_view name) {
  std::vector<Sha256> leaves(bench.file.leaves.size());
  const uint64_t leaves_per_block = row.block_bytes / kLeafBytes;
  const auto keep = [&](uint64_t block, std::span<const std::byte> bytes) {
    std::ranges::copy(LeafDigests(bytes), leaves.begin() + static_cast<ptrdiff_t>(block * leaves_per_block));
  };
  RETURN_IF_ERROR(way(bench, row, keep).status());
  const auto differ = std::ranges::mismatch(leaves, bench.file.leaves).in1;
  if (differ == leaves.end()) return Status::Ok();
  return Status(Code::kDataLoss, StrCat("read by ", name, " in blocks of ", row.block_bytes, " bytes, ", row.in_flight,
                                        " in flight: the ", kLeafBytes, " bytes at offset ",
                                        (differ - leaves.begin()) * kLeafBytes, " are not those that were written"));
}

Status Measure(Bench& bench, std::vector<Row>& rows, int rounds) {
  for (const Row& row : rows) {
    RETURN_IF_ERROR(Verify(bench, row, ReadByThreads, "threads"));
    if (!bench.ring.empty()) RETURN_IF_ERROR(Verify(bench, row, ReadByUring, "io_uring"));
  }
  for (int round = 0; round < rounds; ++round) {
    for (Row& row : rows) {
      for (int turn = 0; turn < 2; ++turn) {
        if ((round + turn) % 2 == 0) {
          RETURN_IF_ERROR(TakeSample(bench, row, ReadByThreads, row.threads));
        } else if (!bench.ring.empty()) {
          RETURN_IF_ERROR(TakeSample(bench, row, ReadByUring, row.uring));
        }
      }
    }
    std::fprintf(stderr, "round %d of %d done\n", round + 1, rounds);
  }
  return Status::Ok();
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

std::vector<double> Each(const std::vector<Sample>& samples, double Sample::* of) {
  std::vector<double> values;
  for (const Sample& sample : samples) values.push_back(sample.*of);
  return values;
}

double MedianSeconds(const std::vector<Sample>& samples) { return Median(Each(samples, &Sample::seconds)); }

void PrintWay(const std::vector<Sample>& samples, double gigabytes) {
  if (samples.empty()) {
    std::printf("%10s %10s", "-", "-");
    return;
  }
  std::printf("%10.2f %10.3f", gigabytes / MedianSeconds(samples), Median(Each(samples, &Sample::cpu_s)) / gigabytes);
}

void PrintTable(const std::vector<Row>& rows, double gigabytes) {
  std::printf("\n%9s %9s | %10s %10s | %10s %10s | %9s\n", "block", "in flight", "threads", "CPU", "io_uring", "CPU",
              "gain");
  std::printf("%9s %9s | %10s %10s | %10s %10s | %9s\n", "KiB", "", "GB/s", "s/GB", "GB/s", "s/GB", "");
  for (const Row& row : rows) {
    std::printf("%9lu %9d | ", static_cast<unsigned long>(row.block_bytes / kKiB), row.in_flight);
    PrintWay(row.threads, gigabytes);
    std::printf(" | ");
    PrintWay(row.uring, gigabytes);
    if (!row.uring.empty()) {
      std::printf(" | %+7.1f %%", 100 * (MedianSeconds(row.threads) / MedianSeconds(row.uring) - 1));
    }
    std::printf("\n");
  }
}

const Row& Best(const std::vector<Row>& rows, std::vector<Sample> Row::* way) {
  return *std::ranges::min_element(rows, {}, [&](const Row& row) { return MedianSeconds(row.*way); });
}

void PrintAnswer(const std::vector<Row>& rows, double gigabytes) {
  const auto print = [&](const char* name, const Row& row, const std::vector<Sample>& samples) {
    std::printf("best %s: %d x %lu KiB, %.3f GB/s\n", name, row.in_flight,
                static_cast<unsigned long>(row.block_bytes / kKiB), gigabytes / MedianSeconds(samples));
  };
  const Row& threads = Best(rows, &Row::threads);
  print("threads", threads, threads.threads);
  if (threads.uring.empty()) return;
  const Row& uring = Best(rows, &Row::uring);
  print("io_uring", uring, uring.uring);
  std::vector<double> gains;
  for (size_t round = 0; round < threads.threads.size(); ++round) {
    gains.push_back(100 * (threads.threads[round].seconds / uring.uring[round].seconds - 1));
  }
  const auto [least, most] = std::ranges::minmax(gains);
  std::printf("io_uring over threads: %+.1f %% by the medians; in one round %+.1f to %+.1f %%\n",
              100 * (MedianSeconds(threads.threads) / MedianSeconds(uring.uring) - 1), least, most);
}

std::string JsonList(const std::vector<double>& values) {
  std::string list;
  for (const double value : values) list += StrCat(list.empty() ? "" : ", ", value);
  return StrCat("[", list, "]");
}

void PrintJson(const Row& row, const char* way, const std::vector<Sample>& samples) {
  if (samples.empty()) return;
  std::printf("{\"way\": \"%s\", \"block_bytes\": %lu, \"in_flight\": %d, \"samples_s\": %s, \"cpu_s\": %s}\n", way,
              static_cast<unsigned long>(row.block_bytes), row.in_flight,
              JsonList(Each(samples, &Sample::seconds)).c_str(), JsonList(Each(samples, &Sample::cpu_s)).c_str());
}

std::vector<Row> MakeRows() {
  std::vector<Row> rows;
  for (const uint64_t block_bytes : kBlockBytes) {
    for (const int in_flight : kInFlight) rows.push_back({.block_bytes = block_bytes, .in_flight = in_flight});
  }
  return rows;
}

// Asks for the largest ring that will be needed. A refusal is an answer, anything else that fails is not.
Result<std::string> TryUring(const Bench& bench) {
  const Result<Uring> uring = bench.OpenUring({.block_bytes = kLargestBlock, .in_flight = kMostInFlight});
  if (uring.ok()) return uring->Describe();
  if (uring.status().code() != Code::kRouteUnavailable) return uring.status();
  std::printf("only threads are measured: %s\n", uring.status().message().c_str());
  return std::string();
}

Status Run(std::span<char*> arguments) {
  ASSIGN_OR_RETURN(const Options options, ParseOptions(arguments));
  Bench bench;
  ASSIGN_OR_RETURN(bench.file, MakeFile(options));
  ASSIGN_OR_RETURN(bench.memory, MapTouched(kMostInFlight * kLargestBlock));
  RETURN_IF_ERROR(bench.crew.Grow(kMostInFlight));
  ASSIGN_OR_RETURN(bench.ring, TryUring(bench));

  std::vector<Row> rows = MakeRows();
  RETURN_IF_ERROR(Measure(bench, rows, options.rounds));
  utsname system{};
  ::uname(&system);
  std::printf("{\"kernel\": \"%s\", \"cpus\": %ld, \"bytes\": %lu, \"rounds\": %d, \"io_uring\": \"%s\"}\n",
              system.release, ::sysconf(_SC_NPROCESSORS_ONLN), static_cast<unsigned long>(options.bytes),
              options.rounds, bench.ring.c_str());
  for (const Row& row : rows) {
    PrintJson(row, "threads", row.threads);
    PrintJson(row, "io_uring", row.uring);
  }
  const double gigabytes = static_cast<double>(options.bytes) / 1e9;
  PrintTable(rows, gigabytes);
  PrintAnswer(rows, gigabytes);
  return Status::Ok();
}

}  // namespace
}  // namespace coldsnap

int main(int argc, char** argv) {
  const coldsnap::Status status = coldsnap::Run(std::span(argv, static_cast<size_t>(argc)).subspan(1));
  if (status.ok()) return EXIT_SUCCESS;
  std::fprintf(stderr, "io_uring_bench: %s\n", status.message().c_str());
  return EXIT_FAILURE;
}
