#include "cc/hydrate/targets.h"

#include <iterator>
#include <map>
#include <utility>

namespace coldsnap {
namespace {

// Asks the driver once for each allocation: engines put thousands of tensors into one, and 50,000 questions take longer
// than the copies.
class Allocations {
 public:
  explicit Allocations(Gpu& gpu) : gpu_(gpu) {}

  // A range may lie in several that follow each other without a gap, as mapped memory does.
  Status Check(const DeviceRange& range) {
    if (range.nbytes > UINT64_MAX - range.address) {
      return Status(Code::kLayoutMismatch,
                    StrCat("its destination of ", range.nbytes, " bytes at address ", range.address, " has no end"));
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

 private:
  // Where the known allocation ends that holds the address; 0 if none does.
  uint64_t EndAt(uint64_t address) const {
    const auto behind = ends_.upper_bound(address);
    if (behind == ends_.begin()) return 0;
    const uint64_t end = std::prev(behind)->second;
    return end > address ? end : 0;
  }

  Gpu& gpu_;
  std::map<uint64_t, uint64_t> ends_;  // by start
};

}  // namespace

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
