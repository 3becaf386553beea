// Digests of what is captured: leaf by leaf, of the staged bytes or from the device, put together by extent at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cc/artifact/layout.h"
#include "cc/artifact/manifest.h"
#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/capture/plan.h"

namespace coldsnap {

class Digester {
 public:
  // Both must outlive the digester.
  Digester(const Layout& layout, const WritePlan& plan);

  // Of segment `index` of the plan. Each once; safe from many threads for different segments.
  void Add(size_t index, std::span<const std::byte> bytes);
  // Leaves of the segment that the device has digested, from `offset` in it, a multiple of kLeafBytes.
  void Put(size_t index, uint64_t offset, std::span<const LeafDigest> leaves);
  // Whether the bytes are those that were added: kDataLoss with the first piece that differs, which `what` and `remedy`
  // explain ("the source now", "the file").
  Status Compare(size_t index, std::span<const std::byte> bytes, std::string_view what, std::string_view remedy) const;
  // The same of leaves that the device has digested, from `offset` in the segment.
  Status Compare(size_t index, uint64_t offset, std::span<const LeafDigest> leaves, std::string_view what,
                 std::string_view remedy) const;

  // Of a window whose segments were added: the digest of their leaves' digests.
  Sha256 WindowDigest(const BlobWindow& window) const;

  // After every segment was added: in extent order.
  std::vector<ExtentDigests> Extents() const;
  std::span<const Sha256> leaves() const { return leaves_; }

  // "extent 7 (model.layers.3.mlp.weight)"
  std::string ExtentText(uint32_t extent) const;

 private:
  std::span<const Sha256> LeavesOfExtent(uint32_t extent) const;
  uint64_t LeafAt(const SourceSegment& segment, uint64_t offset) const;
  Status CompareLeaf(const SourceSegment& segment, uint64_t offset, const Sha256& found, std::string_view what,
                     std::string_view remedy) const;

  const Layout& layout_;
  const WritePlan& plan_;
  std::vector<uint64_t> first_leaf_;  // by extent, and the end
  std::vector<Sha256> leaves_;        // extent by extent
  std::vector<uint32_t> crcs_;        // of the leaves
};

}  // namespace coldsnap
