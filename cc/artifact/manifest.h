// manifest.json: what a shard's blob holds, where, with which digests. One writer, one strict reader (docs/format.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cc/artifact/layout.h"
#include "cc/artifact/tensor.h"
#include "cc/base/status.h"
#include "cc/base/types.h"

namespace coldsnap {

struct Manifest {
  std::vector<Extent> extents;        // in data order
  std::vector<TensorRecord> tensors;  // in name order
  std::string scalars = "{}";         // canonical JSON objects
  std::string identity = "{}";
  std::string extensions;  // empty: none
  uint64_t data_start = 0;
  uint64_t blob_bytes = 0;
  Sha256 header_sha256{};  // over the blob's bytes [0, data_start)
  Sha256 layout_digest{};  // of {scalars, tensors}
  Sha256 leaves_sha256{};  // of leaves.bin
  Sha256 shard_root{};     // of {blob_bytes, extents_digest, header_sha256, layout_digest, leaves_sha256}
};

struct ExtentDigests {
  uint32_t crc32 = 0;
  Sha256 sha256t{};
};

// `digests` in extent order, as many as there are extents, or kRequestInvalid. The two texts are JSON objects; what
// canonical JSON can't hold is kRequestInvalid with its place.
Result<Manifest> MakeManifest(Layout layout, std::span<const ExtentDigests> digests, const Sha256& leaves_sha256,
                              std::string_view identity_json, std::string_view scalars_json);

std::string WriteManifest(const Manifest& manifest);

// Accepts exactly what WriteManifest writes: after the fields are read, the order and place of the extents, the header
// and every digest but those of the data are derived again and compared, and the text must equal the canonical one.
// Everything else is kFormatInvalid with the place in the text and both numbers.
Result<Manifest> ParseManifest(std::string_view text);

// The blob's first data_start bytes, of a manifest that one of the two functions above returned.
std::string ExpectedHeader(const Manifest& manifest);

// The size of leaves.bin: 32 bytes for each leaf of each extent.
uint64_t LeavesBytes(std::span<const Extent> extents);

}  // namespace coldsnap
