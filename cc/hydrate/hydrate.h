// The flow of a restore: file -> ring -> device -> digest -> publish.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/device/gpu.h"
#include "cc/hydrate/crew.h"
#include "cc/hydrate/device_checker.h"
#include "cc/hydrate/open_artifact.h"
#include "cc/hydrate/readers.h"
#include "cc/hydrate/route.h"
#include "cc/hydrate/targets.h"
#include "cc/hydrate/trace.h"
#include "cc/ring/ring.h"

namespace coldsnap {

struct HydrateOptions {
  Backend backend = Backend::kAuto;
  Verify verify = Verify::kCrc32Sha256;
  Place place = Place::kAuto;          // kAuto: the device where it can, but for host memory
  uint64_t chunk_bytes = 4 * kMiB;     // of wanted data in one read; a multiple of 65536, at most 1 GiB
  int queue_depth = 8;                 // slots of the ring, 1..64
  int read_threads = 4;                // from the page cache, 1..64; no more than slots and reads are started
  uint64_t direct_chunk_bytes = 0;     // chunk_bytes when the drive decides, no more than that; 0: the same
  int direct_queue_depth = 0;          // slots in use when the drive decides, 1..queue_depth; 0: queue_depth
  int direct_read_threads = 0;         // reads on their way to the drive, 1..64; 0: read_threads
  int hash_threads = 4;                // that hash and send what was read from the drive, 1..64
  uint64_t pinned_max_bytes = 0;       // the ring's limit; 0: none
  SharedGdsDriver gds_driver;          // tests bring one; none: the process's own
  std::span<const uintptr_t> streams;  // the caller's: what was submitted there before is done before the first copy
  // Called by the thread that called Hydrate, at most 20 times a second and once at the end, with bytes verified and
  // bytes in all. A failure cancels the restore and is returned after everything has been drained.
  std::function<Status(uint64_t done_bytes, uint64_t total_bytes)> tick;
  // The last word before the destinations are published, by the thread that called Hydrate; a failure poisons them.
  std::function<Status()> confirm;
  Trace* trace = nullptr;  // gets what each thread does, also of a restore that fails; must outlive it
};

struct HydrateReport {
  // What each route brought. An extent that came by both counts in both.
  struct Part {
    uint64_t nbytes = 0;
    uint64_t extents = 0;
  };
  std::array<Part, kRoutes.size()> parts;
  const Part& By(Route route) const { return parts[static_cast<size_t>(route)]; }

  std::vector<Reason> reasons;
  uint64_t payload_bytes = 0;
  uint64_t read_bytes = 0;  // with padding and alignment
  uint64_t extents = 0;
  std::optional<double> residency_before;  // fraction of the blob in the page cache; none where nobody can tell
  std::optional<double> residency_after;
  uint64_t chunk_bytes = 0;  // as they were used
  int queue_depth = 0;
  uint64_t pinned_bytes = 0;       // the ring, and what the device writes digests to: 36 KiB a thread, 2 MiB at least
  Place place = Place::kHost;      // where digests were computed, never kAuto
  std::optional<GdsEvidence> gds;  // the path that GPUDirect Storage took, where it was used
  // Seconds on the monotonic clock. read and digest are the mean over their threads (of digests on the device, its busy
  // time) and overlap with copy, which is the device's busy time over all streams, from every eighth slot.
  struct Stages {
    double open = 0;  // residency, choice of the routes, trial read
    double ring = 0;  // pin the ring, start threads and streams; about nothing when they are there already
    double read = 0;
    double digest = 0;
    double copy = 0;
    double drain = 0;    // from the last read to the last copy
    double publish = 0;  // last digests, hand-over
  } stages_s;
  double wall_s = 0;
};

// Keeps what a restore needs and the next one needs again: the pinned ring, threads, streams.
//
// One restore at a time, else kPolicyRefused. Of the process that made it: a forked child can only destroy it, and is
// refused with kPolicyRefused.
class Hydrator {
 public:
  explicit Hydrator(Gpu& gpu) : gpu_(gpu) {}  // which must outlive it
  ~Hydrator();
  Hydrator(const Hydrator&) = delete;
  Hydrator& operator=(const Hydrator&) = delete;

  // Makes ring, threads and streams for restores with these options before there is one, and says how long that took,
  // in seconds. An engine does it while it builds its model.
  Result<double> Prepare(const HydrateOptions& options);

  // Fills targets[i] with its extent and returns once every byte has been verified; it is published then.
  //
  // Targets have the extents' sizes and each extent stands at most once, else kLayoutMismatch. What is refused before
  // the first read of data leaves every byte as it was. After that, a restore that ends in any way but success has
  // drained its copies and filled every target with 0xFF (kDeviceLost if even that failed). An explicit backend works
  // or fails with the reason; kAuto chooses and says why. Blocks; works on streams of its own.
  Result<HydrateReport> Hydrate(const OpenArtifact& artifact, std::span<const ExtentTarget> targets,
                                const HydrateOptions& options);

 private:
  friend class Restore;
  Status CheckFree();
  Status MakeRing(int slots, uint64_t slot_bytes, uint64_t pinned_max_bytes);
  Status MakeHands(const Hands& hands, int lanes, bool on_device);

  Gpu& gpu_;
  std::atomic<bool> busy_ = false;
  int asked_slots_ = 0;  // of the ring; it may have got fewer
  std::unique_ptr<Ring> ring_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  CheckDesks desks_;
  Crew crew_;  // goes first
};

// A restore by a Hydrator of its own.
Result<HydrateReport> Hydrate(const OpenArtifact& artifact, std::span<const ExtentTarget> targets, Gpu& gpu,
                              const HydrateOptions& options);

}  // namespace coldsnap
