#include "cc/device/allocations.h"

#include <iterator>
#include <utility>

namespace coldsnap {

Status Allocations::Check(const DeviceRange& range) {
  if (range.nbytes > UINT64_MAX - range.address) {
    return Status(Code::kLayoutMismatch,
                  StrCat("the range of ", range.nbytes, " bytes at address ", range.address, " has no end"));
  }
  const uint64_t end = range.address + range.nbytes;
  for (uint64_t at = range.address; at < end;) {
    const uint64_t known_to = EndAt(at);
    if (known_to > at) {
      at = known_to;
      continue;
    }
    Result<DeviceRange> found = gpu_.AllocationOf(at);
    if (!found.ok()) return std::move(found).status();
    if (found->address > at || found->nbytes <= at - found->address) {
      return Status(Code::kLayoutMismatch, StrCat("the driver gives ", found->nbytes, " bytes at ", found->address,
                                                  " as the allocation at address ", at));
    }
    ends_[found->address] = found->address + found->nbytes;
  }
  return Status::Ok();
}

// Where the known allocation ends that holds the address; 0 if none does.
uint64_t Allocations::EndAt(uint64_t address) const {
  const auto behind = ends_.upper_bound(address);
  if (behind == ends_.begin()) return 0;
  const uint64_t end = std::prev(behind)->second;
  return end > address ? end : 0;
}

}  // namespace coldsnap
