// FakeCuda: CUDA devices made of host memory, so that CudaGpu's own code runs where there is no GPU.
//
// It is a stand-in and says so: its devices are called "fake". It answers the runtime's functions in the program's
// stead (fault_cuda.cc) while a FakeCuda lives. Copies are asynchronous in the strictest way that the API allows: one
// is done when somebody waits for its stream or for an event behind it, and not before. What a real device would
// punish by chance the fake reports every time: see Violations().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace coldsnap {

// One at a time.
class FakeCuda {
 public:
  FakeCuda();
  // Every object that was made on the fake must be gone.
  ~FakeCuda();
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  // Rules of the runtime that were broken since the last call: memory given back or written by another stream while
  // copies to or from it were under way, a handle or an address that is none.
  std::vector<std::string> TakeViolations();
  // Copies that nobody has waited for.
  uint64_t PendingCopies() const;
  // Streams, events, registrations and allocations that exist.
  uint64_t LiveObjects() const;
  // The calling thread's error and device, as cudaPeekAtLastError and cudaGetDevice say.
  int LastError() const;
  int CurrentDevice() const;
  void SetCurrentDevice(int device);
};

}  // namespace coldsnap
