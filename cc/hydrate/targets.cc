#include "cc/hydrate/targets.h"

#include <utility>

#include "cc/device/allocations.h"

namespace coldsnap {

Result<std::vector<DeviceRange>> RangesByExtent(const OpenArtifact& artifact, std::span<const ExtentTarget> targets,
                                                Gpu& gpu) {
  const std::vector<Extent>& extents = artifact.manifest().extents;
  std::vector<DeviceRange> ranges(extents.size());
  Allocations allocations(gpu);
  for (const auto& [extent, range] : targets) {
    if (extent >= extents.size()) {
      return Status(Code::kLayoutMismatch,
                    StrCat("there is no extent ", extent, ", the artifact has ", extents.size()));
    }
    if (range.nbytes != extents[extent].nbytes) {
      return Status(Code::kLayoutMismatch, StrCat(artifact.ExtentText(extent), " has ", extents[extent].nbytes,
                                                  " bytes, its destination ", range.nbytes));
    }
    if (ranges[extent].nbytes != 0) {
      return Status(Code::kLayoutMismatch, StrCat(artifact.ExtentText(extent), " has two destinations"));
    }
    if (Status status = allocations.Check(range); !status.ok()) {
      return std::move(status).Prefixed(StrCat(artifact.ExtentText(extent), ": ")).WithStage("device");
    }
    ranges[extent] = range;
  }
  return ranges;
}

}  // namespace coldsnap
