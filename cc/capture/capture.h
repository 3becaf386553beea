// The flow of a capture: device -> ring -> digest -> file, the mirror image of a restore. Publishing is cc/publish's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cc/artifact/artifact_json.h"
#include "cc/artifact/layout.h"
#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/base/units.h"
#include "cc/device/gpu.h"

namespace coldsnap {

// What the caller named; kAuto writes past the page cache where the file system can, and says why where it can't.
enum class WriteBackend : uint8_t { kAuto, kBuffered, kDirect };
Result<WriteBackend> WriteBackendNamed(std::string_view name);

struct CaptureOptions {
  WriteBackend backend = WriteBackend::kAuto;
  // What came nearest to plain writes on an H200's drive (bench/micro/capture_bench.cc).
  uint64_t chunk_bytes = kMiB;    // of one write; a multiple of 65536, at most 1 GiB
  int queue_depth = 16;           // slots of the ring, 1..64
  int write_threads = 16;         // each copies, hashes and writes; 1..64, no more than slots and writes are started
  uint64_t pinned_max_bytes = 0;  // the ring's limit; 0: none
  // kHost: digests of the staged bytes. kDevice: of the sources, by the device, before the copies and again after them.
  // kBoth: those, and the staged bytes are compared with them. kAuto: the device where it can, but for host memory.
  Place place = Place::kAuto;
  // Digests the sources again after the copy, so that one that was written to meanwhile is found. Always so where the
  // device digests them.
  bool check_source = false;
  // Reads the synced file again past the page cache, header and padding too, and compares it with what was captured.
  bool preverified = false;
  // Takes up what a killed capture of the same tensors, identity and settings left in the folder, instead of kExists:
  // windows that were on the drive are copied and hashed again, but written only where a source has changed. And keeps
  // the journal that this takes, every `journal_bytes`.
  bool resume = false;
  uint64_t journal_bytes = kGiB;
  std::span<const uintptr_t> streams;  // the caller's: what was submitted there before is done before the first copy
  // Called by the thread that called CaptureShard, at most 20 times a second and once at the end, with the bytes that
  // have passed and all that will: the payload, once for each of digesting on the device, copying, checking the sources
  // and reading again. A failure cancels the capture and is returned after everything has been drained.
  std::function<Status(uint64_t done_bytes, uint64_t total_bytes)> tick;
};

struct CaptureReport {
  Route route = Route::kBuffered;
  Place place = Place::kHost;  // of the digests, never kAuto
  std::vector<Reason> reasons;
  uint64_t payload_bytes = 0;
  uint64_t blob_bytes = 0;
  uint64_t extents = 0;
  uint64_t uncovered_bytes = 0;           // of storages, outside every tensor
  std::optional<double> residency_after;  // fraction of the blob in the page cache; none where nobody can tell
  uint64_t chunk_bytes = 0;               // as they were used
  int queue_depth = 0;
  int write_threads = 0;
  uint64_t pinned_bytes = 0;
  // Seconds on the monotonic clock. copy, digest and write are the mean over the threads and overlap; digests by the
  // device come before them.
  struct Stages {
    double open = 0;  // plan, create and reserve the file, trial write
    double ring = 0;  // pin the ring, start threads and streams
    double copy = 0;  // a thread's wait for its copies
    double digest = 0;
    double write = 0;
    double source = 0;   // digesting the sources again
    double sync = 0;     // what was written, to the drive
    double reread = 0;   // reading the file again
    double publish = 0;  // leaves.bin, manifest.json, the folder
  } stages_s;
  double wall_s = 0;
};

struct CapturedShard {
  ShardRecord record;
  CaptureReport report;
};

// Writes the folder `shard` with weights.safetensors, leaves.bin and manifest.json under the folder `parent`, and
// returns once all of it is on the drive. Files have mode 0444.
//
// `layout.sources` are ranges of the device; they must stay alive and unchanged until this returns. kExists if the
// folder is there, unless it resumes. Whatever fails, nothing in flight and no folder stays. An explicit backend works
// or fails with the reason. Blocks; works on streams of its own.
Result<CapturedShard> CaptureShard(const std::string& parent, const std::string& shard, Layout layout,
                                   std::string_view identity_json, std::string_view scalars_json, Gpu& gpu,
                                   const CaptureOptions& options);

}  // namespace coldsnap
