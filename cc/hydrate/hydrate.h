// The flow of a restore: file -> ring -> device -> digest -> publish.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/device/gpu.h"
#include "cc/hydrate/open_artifact.h"
#include "cc/hydrate/route.h"

namespace coldsnap {

// Where one extent goes.
struct ExtentTarget {
  uint32_t extent = 0;
  DeviceRange range;
};

struct HydrateOptions {
  Backend backend = Backend::kAuto;
  Verify verify = Verify::kCrc32Sha256;
  uint64_t chunk_bytes = 4 * kMiB;     // of wanted data in one read; a multiple of 65536, at most 1 GiB
  int queue_depth = 8;                 // slots of the ring, 1..64
  int read_threads = 4;                // 1..64; no more than slots and reads are started
  uint64_t pinned_max_bytes = 0;       // the ring's limit; 0: none
  std::span<const uintptr_t> streams;  // the caller's: what was submitted there before is done before the first copy
  // Called by the thread that called Hydrate, at most 20 times a second and once at the end, with bytes verified and
  // bytes in all. A failure cancels the restore and is returned after everything has been drained.
  std::function<Status(uint64_t done_bytes, uint64_t total_bytes)> tick;
};

struct HydrateReport {
  Route route{};  // the path that ran
  std::vector<Reason> reasons;
  uint64_t payload_bytes = 0;
  uint64_t read_bytes = 0;  // with padding and alignment
  uint64_t extents = 0;
  std::optional<double> residency_before;  // fraction of the blob in the page cache; none where nobody can tell
  std::optional<double> residency_after;
  uint64_t chunk_bytes = 0;  // as they were used
  int queue_depth = 0;
  int read_threads = 0;
  uint64_t pinned_bytes = 0;
  // Seconds on the monotonic clock. read and digest are the mean over reader threads and overlap with copy, which is
  // the device's busy time over all streams.
  struct Stages {
    double open = 0;  // residency, choice of the route, trial read
    double ring = 0;  // pin the ring
    double read = 0;
    double digest = 0;
    double copy = 0;
    double drain = 0;    // from the last read to the last copy
    double publish = 0;  // last digests, hand-over
  } stages_s;
  double wall_s = 0;
};

// Fills targets[i] with its extent and returns once every byte has been verified; it is published then.
//
// Targets have the extents' sizes and each extent stands at most once, else kLayoutMismatch. What is refused before the
// first read of data leaves every byte as it was. After that, a restore that ends in any way but success has drained
// its copies and filled every target with 0xFF (kDeviceLost if even that failed). An explicit backend works or fails
// with the reason; kAuto chooses and says why. Blocks; works on streams of its own.
Result<HydrateReport> Hydrate(const OpenArtifact& artifact, std::span<const ExtentTarget> targets, Gpu& gpu,
                              const HydrateOptions& options);

}  // namespace coldsnap
