#include "cc/capture/digester.h"

#include <algorithm>

#include "cc/base/check.h"
#include "cc/base/hex.h"
#include "cc/base/units.h"
#include "cc/digest/crc32.h"
#include "cc/digest/sha256.h"

namespace coldsnap {

Digester::Digester(const Layout& layout, const WritePlan& plan)
    : layout_(layout), plan_(plan), segment_crcs_(plan.segments.size()) {
  first_leaf_.reserve(layout.sources.size() + 1);
  first_leaf_.push_back(0);
  for (const DeviceRange& source : layout.sources) first_leaf_.push_back(first_leaf_.back() + LeavesOf(source.nbytes));
  leaves_.resize(first_leaf_.back());
}

// Leaf by leaf, so that the second digest finds its bytes in the core's cache.
void Digester::Add(size_t index, std::span<const std::byte> bytes) {
  const SourceSegment& segment = plan_.segments[index];
  COLDSNAP_CHECK(bytes.size() == segment.nbytes);
  uint64_t leaf = first_leaf_[segment.extent] + segment.extent_offset / kLeafBytes;
  for (uint64_t done = 0; done < bytes.size(); done += kLeafBytes) {
    const auto piece = bytes.subspan(done, std::min<uint64_t>(kLeafBytes, bytes.size() - done));
    segment_crcs_[index] = Crc32(segment_crcs_[index], piece);
    leaves_[leaf++] = Sha256Of(piece);
  }
}

Status Digester::Compare(size_t index, std::span<const std::byte> bytes, std::string_view what,
                         std::string_view remedy) const {
  const SourceSegment& segment = plan_.segments[index];
  uint64_t leaf = first_leaf_[segment.extent] + segment.extent_offset / kLeafBytes;
  for (uint64_t done = 0; done < bytes.size(); done += kLeafBytes, ++leaf) {
    const auto piece = bytes.subspan(done, std::min<uint64_t>(kLeafBytes, bytes.size() - done));
    const Sha256 found = Sha256Of(piece);
    if (found == leaves_[leaf]) continue;
    return Status(Code::kDataLoss,
                  StrCat("compare ", ExtentText(segment.extent), " with what was captured: ", piece.size(),
                         " bytes at its offset ", segment.extent_offset + done, " have SHA-256 ", ToHex(found), " in ",
                         what, ", ", ToHex(leaves_[leaf]), " was captured"))
        .WithStage("digest")
        .WithRemedy(remedy);
  }
  return Status::Ok();
}

Sha256 Digester::WindowDigest(const BlobWindow& window) const {
  std::vector<Sha256> leaves;
  for (const SourceSegment& segment : plan_.SegmentsOf(window)) {
    const auto first = LeavesOfExtent(segment.extent).subspan(segment.extent_offset / kLeafBytes);
    const auto mine = first.first(LeavesOf(segment.nbytes));
    leaves.insert(leaves.end(), mine.begin(), mine.end());
  }
  return TreeRoot(leaves);
}

std::span<const Sha256> Digester::LeavesOfExtent(uint32_t extent) const {
  return std::span(leaves_).subspan(first_leaf_[extent], first_leaf_[extent + 1] - first_leaf_[extent]);
}

std::vector<ExtentDigests> Digester::Extents() const {
  std::vector<ExtentDigests> digests(layout_.sources.size());
  for (size_t i = 0; i < plan_.segments.size(); ++i) {
    const SourceSegment& segment = plan_.segments[i];
    uint32_t& crc = digests[segment.extent].crc32;
    crc = segment.extent_offset == 0 ? segment_crcs_[i] : Crc32Combine(crc, segment_crcs_[i], segment.nbytes);
  }
  for (uint32_t i = 0; i < digests.size(); ++i) digests[i].sha256t = TreeRoot(LeavesOfExtent(i));
  return digests;
}

std::string Digester::ExtentText(uint32_t extent) const {
  // Tensors stand in name order, so the first is the one that orders the extent.
  const auto tensor = std::find_if(layout_.tensors.begin(), layout_.tensors.end(),
                                   [extent](const TensorRecord& each) { return each.extent == extent; });
  return StrCat("extent ", extent, " (", tensor == layout_.tensors.end() ? "" : tensor->name, ")");
}

}  // namespace coldsnap
