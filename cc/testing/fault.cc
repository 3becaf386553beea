#include "cc/testing/fault.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

namespace coldsnap {
namespace {

constexpr std::array<std::string_view, kFaultPoints> kFaultPointNames = {
    "openat",
    "open",
    "fstat",
    "fstatfs",
    "pread",
    "pwrite",
    "statx",
    "cachestat",
    "mmap",
    "munmap",
    "madvise",
    "mincore",
    "access",
    "flock",
    "mkdir",
    "fchmod",
    "fallocate",
    "fstatvfs",
    "ftruncate",
    "sync_file_range",
    "fsync",
    "fdatasync",
    "unlinkat",
    "renameat2",
    "close",
    "std::thread",
    "cudaGetDeviceCount",
    "cudaGetDeviceProperties",
    "cudaMemGetInfo",
    "cudaGetDevice",
    "cudaSetDevice",
    "cudaPointerGetAttributes",
    "cudaGetDriverEntryPointByVersion",
    "cuMemGetAddressRange",
    "cudaMalloc",
    "cudaFree",
    "cudaHostRegister",
    "cudaHostUnregister",
    "cudaStreamCreateWithFlags",
    "cudaStreamDestroy",
    "cudaStreamSynchronize",
    "cudaEventCreateWithFlags",
    "cudaEventDestroy",
    "cudaEventRecord",
    "cudaEventQuery",
    "cudaEventElapsedTime",
    "cudaMemcpyAsync",
    "cudaMemcpyBatchAsync",
    "coldsnap_scatter_works",
    "coldsnap_scatter",
    "coldsnap_hash_leaves_works",
    "coldsnap_hash_leaves",
    "cudaMemsetAsync",
};

struct Table {
  std::array<std::atomic<uint64_t>, kFaultPoints> calls{};
  std::atomic<int64_t> mapped_bytes = 0;
  std::mutex mutex;
  std::vector<ScopedFault*> armed;  // oldest first
};
// Never destroyed: the last calls come from destructors of the program.
Table& TheTable() {
  static auto* const table = new Table;
  return *table;
}

}  // namespace

std::string_view FaultPointName(FaultPoint point) { return kFaultPointNames[static_cast<size_t>(point)]; }

ScopedFault::ScopedFault(FaultPoint point, const Fault& fault) : point_(point), fault_(fault) {
  Table& table = TheTable();
  const std::lock_guard lock(table.mutex);
  table.armed.push_back(this);
}

ScopedFault::~ScopedFault() {
  Table& table = TheTable();
  const std::lock_guard lock(table.mutex);
  std::erase(table.armed, this);
}

std::optional<Fault> CountCall(FaultPoint point) {
  Table& table = TheTable();
  table.calls[static_cast<size_t>(point)].fetch_add(1);
  std::optional<Fault> due;
  {
    const std::lock_guard lock(table.mutex);
    for (ScopedFault* const armed : table.armed) {
      if (armed->point_ != point) continue;
      const Fault& fault = armed->fault_;
      const uint64_t call = ++armed->calls_;
      if (call < fault.on_call || (fault.times != 0 && call >= fault.on_call + fault.times)) continue;
      armed->fired_.fetch_add(1);
      due = fault;
    }
  }
  if (due && due->kind == FaultKind::kKill) {
    ::raise(SIGKILL);
    ::pause();  // the signal may come to another thread first
  }
  if (due && due->kind == FaultKind::kSlow) {
    std::this_thread::sleep_for(std::chrono::milliseconds(due->slow_ms));
    return std::nullopt;
  }
  return due;
}

CallCounts::CallCounts() {
  for (size_t i = 0; i < kFaultPoints; ++i) before_[i] = TheTable().calls[i].load();
}

uint64_t CallCounts::Of(FaultPoint point) const {
  const auto i = static_cast<size_t>(point);
  return TheTable().calls[i].load() - before_[i];
}

int64_t MappedBytes() { return TheTable().mapped_bytes.load(); }
void AddMappedBytes(int64_t nbytes) { TheTable().mapped_bytes.fetch_add(nbytes); }

}  // namespace coldsnap
