// Where a restore writes: each extent's destination, checked before anything is read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/device/gpu.h"
#include "cc/hydrate/open_artifact.h"

namespace coldsnap {

// Where one extent goes.
struct ExtentTarget {
  uint32_t extent = 0;
  DeviceRange range;
};

// Where each extent goes, by index; extents that nobody asked for stay empty. Every range has its extent's size and
// lies in memory of `gpu`, else kLayoutMismatch.
Result<std::vector<DeviceRange>> RangesByExtent(const OpenArtifact& artifact, std::span<const ExtentTarget> targets,
                                                Gpu& gpu);

}  // namespace coldsnap
