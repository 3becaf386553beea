#include "cc/capture/digester.h"

#include <algorithm>

#include "cc/base/check.h"
#include "cc/base/hex.h"
#include "cc/base/units.h"
#include "cc/digest/crc32.h"
#include "cc/digest/sha256.h"

namespace coldsnap {

Digester::Digester(const Layout& layout, const WritePlan& plan) : layout_(layout), plan_(plan) {
  first_leaf_.reserve(layout.sources.size() + 1);
  first_leaf_.push_back(0);
  for (const DeviceRange& source : layout.sources) first_leaf_.push_back(first_leaf_.back() + LeavesOf(source.nbytes));
  leaves_.resize(first_leaf_.back());
  crcs_.resize(first_leaf_.back());
}

uint64_t Digester::LeafAt(const SourceSegment& segment, uint64_t offset) const {
  return first_leaf_[segment.extent] + (segment.extent_offset + offset) / kLeafBytes;
}

// Leaf by leaf, so that the second digest finds its bytes in the core's cache.
void Digester::Add(size_t index, std::span<const std::byte> bytes) {
  const SourceSegment& segment = plan_.segments[index];
  COLDSNAP_CHECK(bytes.size() == segment.nbytes);
  uint64_t leaf = LeafAt(segment, 0);
  for (uint64_t done = 0; done < bytes.size(); done += kLeafBytes, ++leaf) {
    const auto piece = bytes.subspan(done, std::min<uint64_t>(kLeafBytes, bytes.size() - done));
    crcs_[leaf] = Crc32(0, piece);
    leaves_[leaf] = Sha256Of(piece);
  }
}

void Digester::Put(size_t index, uint64_t offset, std::span<const LeafDigest> leaves) {
  uint64_t leaf = LeafAt(plan_.segments[index], offset);
  for (const LeafDigest& each : leaves) {
    crcs_[leaf] = each.crc32;
    leaves_[leaf++] = each.sha256;
  }
}

Status Digester::Compare(size_t index, std::span<const std::byte> bytes, std::string_view what,
                         std::string_view remedy) const {
  const SourceSegment& segment = plan_.segments[index];
  for (uint64_t done = 0; done < bytes.size(); done += kLeafBytes) {
    const auto piece = bytes.subspan(done, std::min<uint64_t>(kLeafBytes, bytes.size() - done));
    RETURN_IF_ERROR(CompareLeaf(segment, done, Sha256Of(piece), what, remedy));
  }
  return Status::Ok();
}

Status Digester::Compare(size_t index, uint64_t offset, std::span<const LeafDigest> leaves, std::string_view what,
                         std::string_view remedy) const {
  for (const LeafDigest& leaf : leaves) {
    RETURN_IF_ERROR(CompareLeaf(plan_.segments[index], offset, leaf.sha256, what, remedy));
    offset += kLeafBytes;
  }
  return Status::Ok();
}

Status Digester::CompareLeaf(const SourceSegment& segment, uint64_t offset, const Sha256& found, std::string_view what,
                             std::string_view remedy) const {
  const Sha256& captured = leaves_[LeafAt(segment, offset)];
  if (found == captured) return Status::Ok();
  return Status(Code::kDataLoss, StrCat("compare ", ExtentText(segment.extent),
                                        " with what was captured: ", std::min(kLeafBytes, segment.nbytes - offset),
                                        " bytes at its offset ", segment.extent_offset + offset, " have SHA-256 ",
                                        ToHex(found), " in ", what, ", ", ToHex(captured), " was captured"))
      .WithStage("digest")
      .WithRemedy(remedy);
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
  for (uint32_t i = 0; i < digests.size(); ++i) {
    digests[i].sha256t = TreeRoot(LeavesOfExtent(i));
    uint64_t rest = layout_.sources[i].nbytes;
    for (uint64_t leaf = first_leaf_[i]; leaf < first_leaf_[i + 1]; ++leaf) {
      const uint64_t nbytes = std::min(kLeafBytes, rest);
      // Most extents are small and have one leaf; to combine takes as long as to hash one.
      digests[i].crc32 = leaf == first_leaf_[i] ? crcs_[leaf] : Crc32Combine(digests[i].crc32, crcs_[leaf], nbytes);
      rest -= nbytes;
    }
  }
  return digests;
}

std::string Digester::ExtentText(uint32_t extent) const {
  // Tensors stand in name order, so the first is the one that orders the extent.
  const auto tensor = std::find_if(layout_.tensors.begin(), layout_.tensors.end(),
                                   [extent](const TensorRecord& each) { return each.extent == extent; });
  return StrCat("extent ", extent, " (", tensor == layout_.tensors.end() ? "" : tensor->name, ")");
}

}  // namespace coldsnap
