// Stage 3, slots to device ranges: what every device promises, real (CudaGpu) or host memory (HostGpu).
//
// A Lane is an ordered queue of copies of one thread, on a stream of our own. Copies are asynchronous: the source must
// stay as it is until the Mark recorded behind them has been waited for. Whoever makes lanes and marks destroys them
// before the Gpu.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "cc/base/status.h"
#include "cc/base/types.h"

namespace coldsnap {

// A point behind copies of a lane. Used again and again; one wait for each record.
class Mark {
 public:
  virtual ~Mark() = default;
  // Blocks until everything before the last record has been done; at once if there was none.
  virtual Status Wait() = 0;
  // How long the device took for what was recorded last, in seconds, to be asked after Wait(); 0 of an untimed mark.
  virtual double BusySeconds() = 0;
};

// One piece of host memory and where it goes.
struct CopyIn {
  DeviceRange to;
  const std::byte* from = nullptr;
};

// One thread at a time.
class Lane {
 public:
  virtual ~Lane() = default;
  // The copies that follow count into `mark` until Record(mark), which puts it behind all copies so far.
  virtual Status Begin(Mark& mark) = 0;
  // Many small copies cost one submission. In any order; their destinations don't overlap.
  virtual Status CopyToDevice(std::span<const CopyIn> copies) = 0;
  Status CopyToDevice(const DeviceRange& to, const std::byte* from) {
    const CopyIn copy{.to = to, .from = from};
    return CopyToDevice({&copy, 1});
  }
  virtual Status CopyToHost(std::byte* to, const DeviceRange& from) = 0;
  virtual Status Record(Mark& mark) = 0;
  // Cuts each range of the device's memory into leaves from its start and writes their digests, those that `verify`
  // asks for, to `out`, which is pinned, one after the other. Computed by the device, in no order with this lane's
  // copies: those of these ranges have been waited for. `mark` is recorded behind it. At most kMaxHashRanges ranges,
  // each below 4 GiB. Only where CanHashLeaves().
  virtual Status HashLeaves(std::span<const DeviceRange> ranges, Verify verify, LeafDigest* out, Mark& mark) = 0;
  // Blocks until everything that this lane was given has been done.
  virtual Status Drain() = 0;
};
inline constexpr size_t kMaxHashRanges = 512;

// Page-locked memory at a 2 MiB boundary; unlocked and unmapped when it goes.
class PinnedMemory {
 public:
  virtual ~PinnedMemory() = default;
  virtual std::span<std::byte> bytes() = 0;
};

// Memory of the device, for tests and measurements; engines bring their own.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual uint64_t address() const = 0;
};

class Gpu {
 public:
  virtual ~Gpu() = default;

  virtual std::string Name() const = 0;  // "host" or "cuda:0"
  virtual Result<std::unique_ptr<PinnedMemory>> Pin(uint64_t nbytes) = 0;
  virtual Result<std::unique_ptr<DeviceMemory>> Allocate(uint64_t nbytes) = 0;
  virtual Result<std::unique_ptr<Lane>> OpenLane() = 0;
  // A timed mark makes the device note the time before and after, which costs it 3 % between copies of 4 MiB (measured
  // on an H200): a few of them stand for all.
  virtual Result<std::unique_ptr<Mark>> NewMark(bool timed) = 0;

  // The allocation of this device's memory that holds the byte at `address`; kLayoutMismatch if there is none.
  virtual Result<DeviceRange> AllocationOf(uint64_t address) = 0;
  // The node of the machine that the device hangs on; none where that makes no difference or isn't known.
  virtual std::optional<int> NumaNode() const = 0;
  // Ok where lanes can hash, else why not.
  virtual Status CanHashLeaves() = 0;
  // Whether the host's processors read this memory as fast as their own, so that they may as well hash on the way.
  virtual bool IsHost() const = 0;
  // Makes this device the calling thread's current one, for libraries that ask which it is. For threads of our own.
  virtual Status MakeCurrent() = 0;
  // Returns once everything that was submitted to the caller's streams before this call has been done.
  virtual Status WaitForStreams(std::span<const uintptr_t> streams) = 0;
  // Fills the ranges with 0xFF on a stream of its own and returns once that is done. A failure is kDeviceLost: then
  // nobody knows what the ranges hold.
  virtual Status Poison(std::span<const DeviceRange> ranges) = 0;
};

// The device called `name` ("host", "cuda:N"). Another name is kRequestInvalid; a CUDA device that is not there is
// kRouteUnavailable with the driver's reason.
Result<std::unique_ptr<Gpu>> OpenGpu(const std::string& name);

}  // namespace coldsnap
