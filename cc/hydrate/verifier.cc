#include "cc/hydrate/verifier.h"

#include <algorithm>

#include "cc/base/check.h"
#include "cc/base/hex.h"
#include "cc/digest/crc32.h"
#include "cc/digest/sha256.h"

namespace coldsnap {
namespace {

constexpr std::string_view kRemedy =
    "copy the artifact again, or capture it again; if it happens twice, suspect the drive or the memory";

std::string PieceText(const Extent& extent, uint64_t leaf) {
  const uint64_t offset = leaf * kLeafBytes;
  return StrCat("piece ", leaf, " (", std::min(kLeafBytes, extent.nbytes - offset), " bytes at offset ", offset,
                " of the extent, ", extent.file_offset + offset, " of ", kBlobFile, ")");
}

Status Damaged(std::string message) {
  return Status(Code::kDataLoss, std::move(message)).WithStage("digest").WithRemedy(kRemedy);
}

}  // namespace

Status Verifier::Check(size_t segment_index, uint64_t offset, std::span<const std::byte> bytes) {
  const Segment& segment = plan_.segments[segment_index];
  COLDSNAP_CHECK(IsAligned(offset, kLeafBytes) && offset + bytes.size() <= segment.nbytes);
  if (mode_ == Verify::kNone) return Status::Ok();
  uint32_t& crc = segment_crcs_[segment_index];
  for (uint64_t done = 0; done < bytes.size(); done += kLeafBytes) {
    const auto piece = bytes.subspan(done, std::min<uint64_t>(kLeafBytes, bytes.size() - done));
    crc = Crc32(crc, piece);
    if (mode_ == Verify::kCrc32Sha256) {
      RETURN_IF_ERROR(CheckLeaf(segment, (segment.extent_offset + offset + done) / kLeafBytes, Sha256Of(piece)));
    }
  }
  return Status::Ok();
}

Status Verifier::Compare(size_t segment_index, uint64_t offset, uint64_t nbytes, std::span<const LeafDigest> leaves) {
  const Segment& segment = plan_.segments[segment_index];
  COLDSNAP_CHECK(IsAligned(offset, kLeafBytes) && offset + nbytes <= segment.nbytes &&
                 leaves.size() == LeavesOf(nbytes));
  uint32_t& crc = segment_crcs_[segment_index];
  for (uint64_t done = 0; const LeafDigest& leaf : leaves) {
    const uint64_t leaf_bytes = std::min(kLeafBytes, nbytes - done);
    crc = offset + done == 0 ? leaf.crc32 : Crc32Combine(crc, leaf.crc32, leaf_bytes);
    if (mode_ == Verify::kCrc32Sha256) {
      RETURN_IF_ERROR(CheckLeaf(segment, (segment.extent_offset + offset + done) / kLeafBytes, leaf.sha256));
    }
    done += leaf_bytes;
  }
  return Status::Ok();
}

Status Verifier::CheckLeaf(const Segment& segment, uint64_t leaf, const Sha256& found) const {
  const Sha256& expected = artifact_.LeavesOfExtent(segment.extent)[leaf];
  if (found == expected) return Status::Ok();
  return Damaged(StrCat("verify ", artifact_.ExtentText(segment.extent), ": ",
                        PieceText(artifact_.manifest().extents[segment.extent], leaf), " has SHA-256 ", ToHex(found),
                        ", the artifact says ", ToHex(expected)));
}

Status Verifier::Finish() const {
  if (mode_ == Verify::kNone) return Status::Ok();
  // An extent's segments stand one after the other in the plan: extents are planned in order, each from its start.
  for (size_t i = 0; i < plan_.segments.size();) {
    const uint32_t extent = plan_.segments[i].extent;
    uint32_t crc = 0;
    for (bool first = true; i < plan_.segments.size() && plan_.segments[i].extent == extent; ++i, first = false) {
      // Most extents are small and have one segment; to combine takes as long as to hash one.
      crc = first ? segment_crcs_[i] : Crc32Combine(crc, segment_crcs_[i], plan_.segments[i].nbytes);
    }
    RETURN_IF_ERROR(CheckCrc(extent, crc));
  }
  return Status::Ok();
}

Status Verifier::CheckCrc(uint32_t extent, uint32_t crc) const {
  const uint32_t expected = artifact_.manifest().extents[extent].crc32;
  if (crc == expected) return Status::Ok();
  return Damaged(StrCat("verify ", artifact_.ExtentText(extent), ": its crc32 is ", ToHex(crc), ", the artifact says ",
                        ToHex(expected), "; ", LocateDamage(extent)));
}

std::string Verifier::LocateDamage(uint32_t extent_index) const {
  const Extent& extent = artifact_.manifest().extents[extent_index];
  const std::span<const Sha256> leaves = artifact_.LeavesOfExtent(extent_index);
  std::vector<std::byte> piece(kLeafBytes);
  for (uint64_t leaf = 0; leaf < leaves.size(); ++leaf) {
    const uint64_t offset = leaf * kLeafBytes;
    const std::span<std::byte> bytes = std::span(piece).first(std::min(kLeafBytes, extent.nbytes - offset));
    if (const Status status = ReadExact(artifact_.blob_fd(), bytes, extent.file_offset + offset, kBlobFile);
        !status.ok()) {
      return StrCat("reading it again to find the place fails: ", status.message());
    }
    if (Sha256Of(bytes) != leaves[leaf]) return StrCat("the damage is in ", PieceText(extent, leaf));
  }
  return "a second read of the file is right, so the bytes changed on their way from the drive to where they were "
         "verified";
}

}  // namespace coldsnap
