// Inside cc/artifact: the canonical text of a manifest and of the objects that its digests cover.
#pragma once

#include <cstddef>

#include "cc/artifact/manifest.h"
#include "cc/artifact/text_sink.h"

namespace coldsnap {

// Where the values of `extents` and `tensors` stand in the text.
struct ManifestSlices {
  size_t extents_begin = 0, extents_end = 0;
  size_t tensors_begin = 0, tensors_end = 0;
};
ManifestSlices WriteManifestText(const Manifest& manifest, TextSink& sink);

// SHA-256 of {"scalars":...,"tensors":...} and of {"extents":...}.
Sha256 LayoutDigest(const Manifest& manifest);
Sha256 ExtentsDigest(const Manifest& manifest);
// The same when the values' text is at hand.
Sha256 LayoutDigestOfText(std::string_view scalars, std::string_view tensors);
Sha256 ExtentsDigestOfText(std::string_view extents);

// From the manifest's blob_bytes and digests.
Sha256 ShardRoot(const Manifest& manifest, const Sha256& extents_digest);

}  // namespace coldsnap
