// HostGpu: the promises of a Gpu over host memory, for machines without one and for CPU tensors.
#pragma once

#include "cc/device/gpu.h"

namespace coldsnap {

// When a copy happens. kLatest is for tests: a copy runs as late as its contract allows, when its mark is waited for,
// so a slot that is given out too early shows as wrong bytes every time and not once in a thousand runs.
enum class CopyTime : uint8_t { kAtOnce, kLatest };

std::unique_ptr<Gpu> OpenHostGpu(CopyTime when = CopyTime::kAtOnce);

}  // namespace coldsnap
