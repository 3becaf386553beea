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
#include "cc/hydrate/device_checker.h"
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
  int send = 0;           // what was read from the drive
  int read = 0;           // from the drive

  int senders() const { return read_and_send + send; }
  int all() const { return senders() + read; }
};

// What is moved, and with what. All of it must outlive the readers.
struct ReadJob {
  const ReadPlan& plan;
  const Share& buffered;
  const Share& direct;
  std::span<const DeviceRange> ranges;  // destinations, by extent
  Gpu& gpu;
  std::span<const std::unique_ptr<Lane>> lanes;  // one for each sender, or for each thread: see LanesFor()
  Verifier& on_host;
  const GdsReader* gds = nullptr;  // reads the direct share, where there is one
  Ring* ring = nullptr;            // null where neither share has a reader
  Verifier* on_device = nullptr;   // null where the device computes no digests
  CheckDesks* desks = nullptr;     // as many as lanes, with on_device
  Trace* trace = nullptr;          // gets what the threads do
};

class Readers {
 public:
  explicit Readers(const ReadJob& job) : job_(job) {}

  // Who sends needs a lane, and so does who lets the device hash what GPUDirect Storage has brought.
  static int LanesFor(const Hands& hands, bool gds, bool on_device) {
    return gds && on_device ? hands.all() : hands.senders();
  }

  // Moves every window and returns when all threads have ended: the first failure of any of them, or of `tick`, which
  // the calling thread runs about every 50 ms with the bytes done so far - compared on the device where that is done,
  // else sent - and once at the end.
  Status Run(Crew& crew, const Hands& hands, const std::function<Status(uint64_t done_bytes)>& tick);

  // Mean over the threads of the stage.
  double read_s() const { return read_s_; }
  double digest_s() const { return digest_s_; }

 private:
  // Of one thread.
  struct Self {
    double read = 0;
    double digest = 0;
    Trace::Track* track = nullptr;
    Lane* lane = nullptr;              // none for who only reads
    DeviceChecker* checker = nullptr;  // none where the device computes no digests
  };

  Status RunMember(const Hands& hands, int member, Self& self);
  Status Work(const Hands& hands, int member, Self& self);
  Status FinishChecks(Self& self);
  Status ReadAndSend(Self& self);
  Status ReadWindows(Self& self);
  Status ReadPastHost(Self& self);
  Status SendWindows(Self& self);
  Status ReadInBlocks(const Window& window, const EmptySlot& slot, Self& self);
  Status VerifyWindow(const Window& window, const EmptySlot& slot, Self& self);
  Result<EmptySlot> Acquire(const Window& window, const Self& self);
  std::optional<FilledSlot> NextFilled(const Self& self);
  DeviceRange DestinationOf(const Segment& segment) const;
  Status Send(const Window& window, EmptySlot slot, Self& self);
  Trace::Track* TrackOf(const Hands& hands, int member);
  int64_t IndexOf(const Window& window) const { return &window - job_.plan.windows.data(); }
  // The next window of a share, until they run out or something has failed.
  std::optional<uint32_t> Take(const Share& share, std::atomic<size_t>& next);
  // The window's bytes are in their destinations, or will be when the lane's copies have been done.
  Status Landed(const Window& window, Self& self);
  void Fail(Status status);

  const ReadJob job_;

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
