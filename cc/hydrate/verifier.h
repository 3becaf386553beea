// Compares every byte of a restore with the artifact's digests, segment by segment: bytes while they are in cache, or
// the digests that the device has computed over the final memory.
//
// sha256t: each 64 KiB leaf is compared at once with leaves.bin, whose roots OpenArtifact has checked, so a match of
// all leaves is a match of the root. crc32: each segment's CRC is kept and Finish() combines an extent's in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/hydrate/open_artifact.h"
#include "cc/hydrate/plan.h"

namespace coldsnap {

class Verifier {
 public:
  // Both must outlive the verifier.
  Verifier(const OpenArtifact& artifact, const ReadPlan& plan, Verify mode)
      : artifact_(artifact), plan_(plan), mode_(mode), segment_crcs_(plan.segments.size(), 0) {}

  Verify mode() const { return mode_; }

  // The bytes at `offset` of the segment, a multiple of kLeafBytes that ends at one or at the segment's end. A
  // segment's bytes come once and in order, from one thread at a time; segments in any order, from any thread.
  // kDataLoss names the extent and the piece of 64 KiB that differs.
  Status Check(size_t segment, uint64_t offset, std::span<const std::byte> bytes);
  // The same for `nbytes` bytes of which the device has computed the leaves' digests.
  Status Compare(size_t segment, uint64_t offset, uint64_t nbytes, std::span<const LeafDigest> leaves);

  // After every segment has been checked. kDataLoss names the extent whose CRC differs and, after reading it a second
  // time through the page cache, the piece.
  Status Finish() const;

 private:
  Status CheckLeaf(const Segment& segment, uint64_t leaf, const Sha256& found) const;
  Status CheckCrc(uint32_t extent, uint32_t crc) const;
  std::string LocateDamage(uint32_t extent) const;

  const OpenArtifact& artifact_;
  const ReadPlan& plan_;
  Verify mode_;
  std::vector<uint32_t> segment_crcs_;
};

}  // namespace coldsnap
