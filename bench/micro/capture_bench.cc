// Question: how close does a capture with all digests come to plain direct writes of the same bytes to the same drive?
//
//   capture_bench --path=FOLDER --device=cuda:0 --bytes=4GiB --rounds=5      (without --path the folder is TMPDIR or
//                                                                            this one; without --device the host)
// Extents of 64 MiB of random bytes in the device's memory are captured, with the source compared before and after, by
// digests on the host and on the device, and as many bytes are written by threads that do nothing else: in turns, for
// each block size and number of writes in flight. All end with a sync. Files are removed after each sample. Lines that
// begin with a brace are JSON.
#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "cc/artifact/layout.h"
#include "cc/base/status.h"
#include "cc/base/strcat.h"
#include "cc/base/units.h"
#include "cc/capture/capture.h"
#include "cc/device/gpu.h"
#include "cc/device/place.h"
#include "cc/file/blob_writer.h"
#include "cc/hydrate/crew.h"
#include "cc/sys/clock.h"
#include "cc/sys/files.h"
#include "cc/sys/memory.h"

namespace coldsnap {
namespace {

constexpr uint64_t kExtentBytes = 64 * kMiB;
constexpr const char* kFile = "capture_bench.blob";
constexpr const char* kShard = "shard-99-99-99";

struct Options {
  std::string path = ".";
  std::string device = "host";
  uint64_t bytes = kGiB;
  int rounds = 5;
};

Result<Options> ParseOptions(std::span<char*> arguments) {
  Options options;
  if (const char* folder = std::getenv("TMPDIR")) options.path = folder;
  for (const std::string_view argument : arguments) {
    const size_t equals = std::min(argument.find('='), argument.size() - 1);
    const std::string_view name = argument.substr(0, equals);
    const std::string_view value = argument.substr(equals + 1);
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    const std::string_view unit = value.substr(error == std::errc() ? static_cast<size_t>(end - value.data()) : 0);
    if (name == "--path") {
      options.path = value;
    } else if (name == "--device") {
      options.device = value;
    } else if (name == "--bytes" && unit == "GiB" && number >= 1 && number <= 64) {
      options.bytes = number * kGiB;
    } else if (name == "--rounds" && unit.empty() && number >= 1 && number <= 100) {
      options.rounds = static_cast<int>(number);
    } else {
      return Status(Code::kRequestInvalid, StrCat("argument ", argument,
                                                  " is none of --path=FOLDER, --device=NAME, --bytes=1GiB to 64GiB, "
                                                  "--rounds=1 to 100"));
    }
  }
  return options;
}

// Random bytes in memory of the device, as tensors of one extent each.
struct Source {
  std::unique_ptr<Gpu> gpu;
  std::vector<std::unique_ptr<DeviceMemory>> memory;
  std::vector<TensorSpec> specs;
};

void FillRandom(std::mt19937_64& random, std::span<std::byte> bytes) {
  for (size_t i = 0; i < bytes.size(); i += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, sizeof(word));
  }
}

Result<Source> MakeSource(const Options& options) {
  Source source;
  ASSIGN_OR_RETURN(source.gpu, OpenGpu(options.device));
  ASSIGN_OR_RETURN(const std::unique_ptr<PinnedMemory> pinned, source.gpu->Pin(kExtentBytes));
  ASSIGN_OR_RETURN(const std::unique_ptr<Lane> lane, source.gpu->OpenLane());
  ASSIGN_OR_RETURN(const std::unique_ptr<Mark> mark, source.gpu->NewMark(false));
  std::mt19937_64 random(options.bytes);
  for (uint64_t at = 0; at < options.bytes; at += kExtentBytes) {
    FillRandom(random, pinned->bytes());
    ASSIGN_OR_RETURN(std::unique_ptr<DeviceMemory> memory, source.gpu->Allocate(kExtentBytes));
    const uint64_t address = memory->address();
    RETURN_IF_ERROR(lane->Begin(*mark));
    RETURN_IF_ERROR(lane->CopyToDevice({.address = address, .nbytes = kExtentBytes}, pinned->bytes().data()));
    RETURN_IF_ERROR(lane->Record(*mark));
    RETURN_IF_ERROR(mark->Wait());
    source.specs.push_back({.name = StrCat("t", at / kExtentBytes),
                            .dtype = "U8",
                            .shape = {kExtentBytes},
                            .strides = {1},
                            .address = address,
                            .storage_address = address,
                            .storage_nbytes = kExtentBytes,
                            .object = at,
                            .role = {},
                            .attrs = {}});
    source.memory.push_back(std::move(memory));
  }
  return source;
}

struct Captures {
  Place place = Place::kHost;
  std::vector<double> wall_s;
  CaptureReport::Stages stages;  // of the last one
};

struct Row {
  uint64_t block_bytes = 0;
  int in_flight = 0;
  std::vector<double> plain_s;
  std::vector<Captures> captures;
};

Result<double> WritePlain(const Options& options, const Row& row, Crew& crew, std::span<std::byte> memory) {
  RETURN_IF_ERROR(crew.Grow(row.in_flight));
  const Stopwatch watch;
  ASSIGN_OR_RETURN(const UniqueFd folder, OpenDirectory(options.path));
  ASSIGN_OR_RETURN(BlobWriter file, BlobWriter::Create(folder.get(), kFile, options.bytes));
  RETURN_IF_ERROR(file.UseDirect(folder.get()));
  std::atomic<uint64_t> next = 0;
  std::vector<Status> ends(static_cast<size_t>(row.in_flight));
  const auto work = [&](int member) {
    const auto index = static_cast<size_t>(member);
    BlobWriter::Hand hand(file);
    for (uint64_t at = next.fetch_add(row.block_bytes); at < options.bytes; at = next.fetch_add(row.block_bytes)) {
      ends[index] = hand.Write(memory.subspan(at, row.block_bytes), at);
      if (!ends[index].ok()) return;
    }
  };
  crew.Run(row.in_flight, work, [] {});
  for (const Status& end : ends) RETURN_IF_ERROR(end);
  RETURN_IF_ERROR(file.Sync());
  RETURN_IF_ERROR(std::move(file).Close());
  return watch.Seconds();
}

Status Capture(const Options& options, const Row& row, const Source& source, Captures& captures) {
  ASSIGN_OR_RETURN(Layout layout, PlanLayout(source.specs));
  const CaptureOptions how{.backend = WriteBackend::kDirect,
                           .chunk_bytes = row.block_bytes,
                           .queue_depth = row.in_flight,
                           .write_threads = row.in_flight,
                           .place = captures.place,
                           .check_source = true};
  ASSIGN_OR_RETURN(const CapturedShard shard,
                   CaptureShard(options.path, kShard, std::move(layout), "{}", "{}", *source.gpu, how));
  captures.stages = shard.report.stages_s;
  captures.wall_s.push_back(shard.report.wall_s);
  return Status::Ok();
}

double Median(std::vector<double> samples) {
  std::ranges::sort(samples);
  return samples[samples.size() / 2];
}

std::string List(const std::vector<double>& samples) {
  std::string text;
  for (const double sample : samples) text += StrCat(text.empty() ? "" : ",", sample);
  return text;
}

Status Measure(const Options& options) {
  ASSIGN_OR_RETURN(const Source source, MakeSource(options));
  // As much as is written, since a drive may be quicker with what it has just seen.
  ASSIGN_OR_RETURN(const Mapping memory, MapTouched(options.bytes));
  std::mt19937_64 random(1);
  FillRandom(random, BytesOf(memory));
  Crew crew("plain writes", "");
  std::vector<Captures> captures = {{.place = Place::kHost, .wall_s = {}, .stages = {}}};
  if (source.gpu->CanHashLeaves().ok()) captures.push_back({.place = Place::kDevice, .wall_s = {}, .stages = {}});
  std::vector<Row> rows;
  for (const uint64_t block_bytes : {512 * kKiB, kMiB}) {
    for (const int in_flight : {8, 16, 32}) {
      rows.push_back({.block_bytes = block_bytes, .in_flight = in_flight, .plain_s = {}, .captures = captures});
    }
  }
  const std::filesystem::path folder(options.path);
  for (int round = 0; round < options.rounds; ++round) {
    for (Row& row : rows) {
      Result<double> plain = WritePlain(options, row, crew, BytesOf(memory));
      std::error_code ignored;
      std::filesystem::remove(folder / kFile, ignored);
      ASSIGN_OR_RETURN(const double plain_s, std::move(plain));
      row.plain_s.push_back(plain_s);
      std::fprintf(stderr, "%ju KiB x %d: plain %.2f s\n", row.block_bytes / kKiB, row.in_flight, plain_s);
      for (Captures& each : row.captures) {
        const Status end = Capture(options, row, source, each);
        std::filesystem::remove_all(folder / kShard, ignored);
        RETURN_IF_ERROR(end);
        std::fprintf(stderr, "  capture, digests %s: %.2f s\n", std::string(PlaceName(each.place)).c_str(),
                     each.wall_s.back());
      }
    }
  }
  double best = 0;
  for (const Row& row : rows) best = std::max(best, static_cast<double>(options.bytes) / Median(row.plain_s));
  for (const Row& row : rows) {
    std::printf("{\"block_bytes\":%ju,\"in_flight\":%d,\"plain_s\":[%s]", row.block_bytes, row.in_flight,
                List(row.plain_s).c_str());
    for (const Captures& each : row.captures) {
      std::printf(",\"capture_%s_s\":[%s]", std::string(PlaceName(each.place)).c_str(), List(each.wall_s).c_str());
    }
    std::printf("}\n%5ju KiB x %2d: plain %.2f GB/s\n", row.block_bytes / kKiB, row.in_flight,
                static_cast<double>(options.bytes) / Median(row.plain_s) / 1e9);
    for (const Captures& each : row.captures) {
      const double rate = static_cast<double>(options.bytes) / Median(each.wall_s);
      std::printf(
          "  capture, digests %s: %.2f GB/s, %.3f of the best plain one; the last one's copy %.2f, digest %.2f, write "
          "%.2f, ring %.2f, sync %.2f s\n",
          std::string(PlaceName(each.place)).c_str(), rate / 1e9, rate / best, each.stages.copy, each.stages.digest,
          each.stages.write, each.stages.ring, each.stages.sync);
    }
  }
  return Status::Ok();
}

Status Run(std::span<char*> arguments) {
  ASSIGN_OR_RETURN(const Options options, ParseOptions(arguments));
  return Measure(options);
}

}  // namespace
}  // namespace coldsnap

// NOLINTNEXTLINE(bugprone-exception-escape): then the program ends, as it should
int main(int argc, char** argv) {
  const coldsnap::Status status = coldsnap::Run(std::span(argv, static_cast<size_t>(argc)).subspan(1));
  if (status.ok()) return EXIT_SUCCESS;
  std::fprintf(stderr, "capture_bench: %s\n", status.message().c_str());
  return EXIT_FAILURE;
}
