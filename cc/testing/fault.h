// Faults at the system and CUDA calls of the flows, put in between when a test is linked.
//
// A program that links //cc/testing:fault is linked with `--wrap` for every call below: the core's object files, the
// very ones that users get, then call our stand-in, which asks a process-wide table whether a fault is due and makes
// the real call otherwise. What is not linked with it has no trace of it. Safe from many threads at once.
#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <string_view>

namespace coldsnap {

// One call that can fail. The order is that of kFaultPointNames.
enum class FaultPoint : uint8_t {
  kOpenat,
  kOpen,
  kFstat,
  kFstatfs,
  kPread,
  kPwrite,
  kStatx,
  kCachestat,
  kMmap,
  kMunmap,
  kMadvise,
  kMincore,
  kAccess,
  kFlock,
  kMkdir,
  kFchmod,
  kFallocate,
  kFstatvfs,
  kFtruncate,
  kSyncFileRange,
  kFsync,
  kFdatasync,
  kUnlinkat,
  kRenameat2,
  kClose,
  kStartThread,
  kCudaGetDeviceCount,
  kCudaGetDeviceProperties,
  kCudaMemGetInfo,
  kCudaGetDevice,
  kCudaSetDevice,
  kCudaPointerGetAttributes,
  kCudaGetDriverEntryPoint,
  kCuMemGetAddressRange,
  kCudaMalloc,
  kCudaFree,
  kCudaHostRegister,
  kCudaHostUnregister,
  kCudaStreamCreate,
  kCudaStreamDestroy,
  kCudaStreamSynchronize,
  kCudaEventCreate,
  kCudaEventDestroy,
  kCudaEventRecord,
  kCudaEventQuery,
  kCudaEventElapsedTime,
  kCudaMemcpyAsync,
  kCudaMemcpyBatchAsync,
  kScatterWorks,
  kScatter,
  kHashLeavesWorks,
  kHashLeaves,
  kCudaMemsetAsync,
};
inline constexpr size_t kFaultPoints = static_cast<size_t>(FaultPoint::kCudaMemsetAsync) + 1;
// As the function is called that fails.
std::string_view FaultPointName(FaultPoint point);
inline bool IsCudaPoint(FaultPoint point) { return point >= FaultPoint::kCudaGetDeviceCount; }

enum class FaultKind : uint8_t {
  kError,       // the call is not made, `error` is its answer
  kErrorAfter,  // it is made, and answers `error` all the same: how close() and cudaStreamDestroy fail
  kOneByte,     // pread and pwrite: of one byte
  kHalf,        // of half of the bytes
  kNothing,     // of no byte, and no error
  kFlipped,     // pread: of all bytes, the first with its lowest bit turned: a drive or a memory that lies
  kSlow,        // it is made `slow_ms` milliseconds late
  kKill,        // the process is killed before it is made
};

struct Fault {
  FaultKind kind = FaultKind::kError;
  int error = EIO;       // errno, or a cudaError_t for a CUDA call
  uint64_t on_call = 1;  // the first call that is hit, counted from 1 when the fault is armed
  uint64_t times = 1;    // how many calls are hit, one after the other; 0: all that follow
  int slow_ms = 20;
};

// Arms a fault for as long as it lives. Several may be armed; of those that are due at one call the newest wins.
class ScopedFault {
 public:
  ScopedFault(FaultPoint point, const Fault& fault);
  ~ScopedFault();
  ScopedFault(const ScopedFault&) = delete;
  ScopedFault& operator=(const ScopedFault&) = delete;

  // How many calls it has hit; 0 means that the test has not tested what it says.
  uint64_t fired() const { return fired_.load(); }

 private:
  friend std::optional<Fault> CountCall(FaultPoint point);
  FaultPoint point_;
  Fault fault_;
  uint64_t calls_ = 0;  // since it was armed; guarded by the table's mutex
  std::atomic<uint64_t> fired_ = 0;
};

// Calls per point since the object was made.
class CallCounts {
 public:
  CallCounts();
  uint64_t Of(FaultPoint point) const;

 private:
  std::array<uint64_t, kFaultPoints> before_{};
};

// Bytes that the program has mapped by mmap and not unmapped again, through its own calls.
int64_t MappedBytes();
void AddMappedBytes(int64_t nbytes);  // for the stand-ins

// For the stand-ins: counts a call and says which fault is due. A slow one has been waited for and is not returned.
std::optional<Fault> CountCall(FaultPoint point);

}  // namespace coldsnap
