// The work of a restore's threads: windows are read into slots, verified, and sent to the device.
//
// From the page cache one thread does all three, block by block, so that bytes are hashed while they are in its core's
// cache; then it goes on with the next slot while the copy travels. From the drive some threads only read, which keeps
// as many requests on their way as were asked for however slow the digests are, and others verify and send. A blob that
// is half in the page cache is read both ways at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/device/gpu.h"
#include "cc/file/blob_reader.h"
#include "cc/hydrate/crew.h"
#include "cc/hydrate/filled_queue.h"
#include "cc/hydrate/gds_reader.h"
#include "cc/hydrate/plan.h"
#include "cc/hydrate/trace.h"
#include "cc/hydrate/verifier.h"
#include "cc/ring/ring.h"

namespace coldsnap {

// The windows of a plan that one reader reads, by index.
struct Share {
  const BlobReader* reader = nullptr;  // none where there are no windows, and for GPUDirect Storage
  std::vector<uint32_t> windows;
};

// How many threads do what; none reads what nobody has.
struct Hands {
  int read_and_send = 0;  // from the page cache
  int send = 0;           // what was read from the drive; the lanes are these threads'
  int read = 0;           // from the drive

  int lanes() const { return read_and_send + send; }
  int all() const { return lanes() + read; }
};

class Readers {
 public:
  // All of them must outlive the readers. `ranges` are the destinations by extent; `lanes` as many as `hands` has;
  // `ring` may be null where neither share has a reader; `gds` reads the direct share in place of a reader;
  // `trace` gets what the threads do, and may be null.
  Readers(const ReadPlan& plan, const Share& buffered, const Share& direct, const GdsReader* gds,
          std::span<const DeviceRange> ranges, Gpu& gpu, Ring* ring, std::span<const std::unique_ptr<Lane>> lanes,
          Verifier& verifier, Trace* trace)
      : plan_(plan),
        buffered_(buffered),
        direct_(direct),
        gds_(gds),
        ranges_(ranges),
        gpu_(gpu),
        ring_(ring),
        lanes_(lanes),
        verifier_(verifier),
        trace_(trace) {}

  // Moves every window and returns when all threads have ended: the first failure of any of them, or of `tick`, which
  // the calling thread runs about every 50 ms with the bytes sent so far, and once at the end.
  Status Run(Crew& crew, const Hands& hands, const std::function<Status(uint64_t done_bytes)>& tick);

  // Mean over the threads of the stage.
  double read_s() const { return read_s_; }
  double digest_s() const { return digest_s_; }

 private:
  // Of one thread.
  struct Times {
    double read = 0;
    double digest = 0;
    Trace::Track* track = nullptr;
  };

  Status RunMember(const Hands& hands, int member, Times& times);
  Status ReadAndSend(Lane& lane, Times& times);
  Status ReadWindows(Times& times);
  Status ReadPastHost(Times& times);
  Status SendWindows(Lane& lane, Times& times);
  Status ReadInBlocks(const Window& window, const EmptySlot& slot, Times& times);
  Status VerifyWindow(const Window& window, const EmptySlot& slot, Times& times);
  Result<EmptySlot> Acquire(const Window& window, const Times& times);
  std::optional<FilledSlot> NextFilled(const Times& times);
  DeviceRange DestinationOf(const Segment& segment) const;
  Status Send(const Window& window, EmptySlot slot, Lane& lane, const Times& times);
  Trace::Track* TrackOf(const Hands& hands, int member);
  int64_t IndexOf(const Window& window) const { return &window - plan_.windows.data(); }
  // The next window of a share, until they run out or something has failed.
  std::optional<uint32_t> Take(const Share& share, std::atomic<size_t>& next);
  void Fail(Status status);

  const ReadPlan& plan_;
  const Share& buffered_;
  const Share& direct_;
  const GdsReader* gds_;
  std::span<const DeviceRange> ranges_;
  Gpu& gpu_;
  Ring* ring_;
  std::span<const std::unique_ptr<Lane>> lanes_;
  Verifier& verifier_;
  Trace* trace_;

  std::atomic<size_t> next_buffered_ = 0;
  std::atomic<size_t> next_direct_ = 0;
  std::atomic<uint64_t> done_bytes_ = 0;
  std::atomic<bool> stop_ = false;
  std::atomic<int> reading_ = 0;  // threads that may still fill slots for others
  FilledQueue filled_;

  std::mutex mutex_;  // guards what follows
  Status first_failure_;
  double read_s_ = 0;
  double digest_s_ = 0;
};

}  // namespace coldsnap
