#include "cc/artifact/placement.h"

namespace coldsnap {
namespace {

Status CheckExtent(std::span<const uint64_t> nbytes, size_t i) {
  if (nbytes[i] == 0) return Status(Code::kRequestInvalid, StrCat("extent ", i, " has no bytes"));
  if (nbytes[i] > kMaxInteger) {
    return Status(Code::kRequestInvalid, StrCat("extent ", i, " has ", nbytes[i], " bytes, past 2^53-1"));
  }
  if (i > 0 && IsLarge(nbytes[i]) && !IsLarge(nbytes[i - 1])) {
    return Status(Code::kRequestInvalid,
                  StrCat("extent ", i, " with ", nbytes[i], " bytes stands after extent ", i - 1, " with ",
                         nbytes[i - 1], " bytes; extents of 65536 bytes and more come first"));
  }
  return Status::Ok();
}

// Ends the last group, if there is one: what follows starts at the next multiple of 65536.
void CloseSmallGroup(Placement& placement, size_t end_extent) {
  if (placement.small_groups.empty()) return;
  SmallGroup& group = placement.small_groups.back();
  group.end_extent = end_extent;
  placement.data_bytes = AlignUp(placement.data_bytes, kGroupAlignment);
  group.end = placement.data_bytes;
}

void PlaceSmall(Placement& placement, size_t extent, uint64_t nbytes) {
  uint64_t at = AlignUp(placement.data_bytes, kSmallAlignment);
  if (placement.small_groups.empty() || at + nbytes - placement.small_groups.back().begin > kSmallGroupBytes) {
    CloseSmallGroup(placement, extent);
    at = placement.data_bytes;
    placement.small_groups.push_back({.first_extent = extent, .begin = at});
  }
  placement.offsets.push_back(at);
  placement.data_bytes = at + nbytes;
}

}  // namespace

Result<Placement> PlaceExtents(std::span<const uint64_t> nbytes) {
  Placement placement;
  placement.offsets.reserve(nbytes.size());
  for (size_t i = 0; i < nbytes.size(); ++i) {
    RETURN_IF_ERROR(CheckExtent(nbytes, i));
    if (IsLarge(nbytes[i])) {
      placement.offsets.push_back(placement.data_bytes);
      placement.data_bytes = AlignUp(placement.data_bytes + nbytes[i], kGroupAlignment);
      ++placement.large_count;
    } else {
      PlaceSmall(placement, i, nbytes[i]);
    }
    // Both terms of each sum above are bounded by this, so nothing has wrapped.
    if (placement.data_bytes > kMaxInteger) {
      return Status(Code::kRequestInvalid, StrCat("extents 0 to ", i, " with their padding pass 2^53-1 bytes"));
    }
  }
  CloseSmallGroup(placement, nbytes.size());
  return placement;
}

}  // namespace coldsnap
