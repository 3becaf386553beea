// Reads of a restore by GPUDirect Storage: from the blob straight to the destinations, with proof of the path.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/device/gpu.h"
#include "cc/gds/gds.h"
#include "cc/hydrate/open_artifact.h"

namespace coldsnap {

class GdsReader {
 public:
  // The blob, opened anew and registered. `driver`: the process's own where there is none.
  static Result<GdsReader> Open(const OpenArtifact& artifact, SharedGdsDriver driver);

  // Registers the destinations, each allocation of `gpu` once, as far as they reach in it.
  Status Register(std::span<const DeviceRange> destinations, Gpu& gpu);
  // From the blob to part of a registered destination. Safe from many threads; each has made the device current.
  Status Read(uint64_t file_offset, const DeviceRange& into) const;
  // The path of everything read since it was opened; a failure if a byte came through host memory.
  Result<GdsEvidence> Prove() const { return driver_->PathSince(before_); }

 private:
  GdsReader(SharedGdsDriver driver, const GdsReads& before, GdsFile file)
      : driver_(std::move(driver)), before_(before), file_(std::move(file)) {}

  SharedGdsDriver driver_;
  GdsReads before_;
  GdsFile file_;
  std::vector<GdsBuffer> buffers_;  // by address; after the file, so let go first
};

}  // namespace coldsnap
