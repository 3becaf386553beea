// What a flow may leave behind: nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cc/testing/fake_cuda.h"

namespace coldsnap {

struct Resources {
  uint64_t descriptors = 0;
  uint64_t threads = 0;
  int64_t mapped_bytes = 0;
  uint64_t cuda_objects = 0;
  bool operator==(const Resources&) const = default;
};

Resources ResourcesNow(const FakeCuda* fake);

// What there is more or less of than in `before`; empty when it is the same. Waits a moment for threads that have been
// joined and that the kernel has not taken off its list yet.
std::string Leaked(const Resources& before, const FakeCuda* fake);

}  // namespace coldsnap
