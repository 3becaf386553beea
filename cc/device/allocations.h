// Which ranges are memory of a device, asked before the first copy: a wrong address ends a CUDA context, not a call.
#pragma once

#include <cstdint>
#include <map>

#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/device/gpu.h"

namespace coldsnap {

// Asks the driver once for each allocation: engines put thousands of tensors into one, and 50,000 questions take longer
// than the copies.
class Allocations {
 public:
  explicit Allocations(Gpu& gpu) : gpu_(gpu) {}

  // kLayoutMismatch unless the whole range is the device's. It may lie in several allocations that follow each other
  // without a gap, as mapped memory does.
  Status Check(const DeviceRange& range);

 private:
  uint64_t EndAt(uint64_t address) const;

  Gpu& gpu_;
  std::map<uint64_t, uint64_t> ends_;  // by start
};

}  // namespace coldsnap
