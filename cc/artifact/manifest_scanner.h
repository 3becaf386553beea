// Inside cc/artifact: the short way through a manifest. Nearly every one that is read is as WriteManifest wrote it, and
// then no general parser is needed: what comes next is known.
#pragma once

#include <future>
#include <optional>
#include <string_view>
#include <utility>

#include "cc/artifact/manifest.h"
#include "cc/artifact/manifest_text.h"
#include "cc/base/units.h"

namespace coldsnap {

struct ScannedManifest {
  Manifest manifest;
  Sha256 extents_digest{};        // of the text that stands there
  std::string_view tensors_text;  // the value of `tensors`
};

// Takes nothing but what WriteManifestText writes: the text of what is returned is `text`, byte for byte. The fields
// have the right type, each tensor's dtype is known, its extent is there, and it has a stride for each dimension; what
// they mean together is ParseManifest's business.
//
// Nothing for any other text, and for strings with escapes. ReadManifestFields reads those, or says what is wrong.
std::optional<ScannedManifest> ScanManifest(std::string_view text);

// `half` of the work on a text of that many bytes, to be waited for by get(). A thread is worth its start from some
// 10,000 tensors on; where none can be had, and for less, get() does the work.
template <typename Half>
auto StartBeside(size_t text_bytes, Half half) {
  constexpr size_t kManyBytes = 2 * kMiB;
  const auto policy = text_bytes < kManyBytes ? std::launch::deferred : std::launch::async | std::launch::deferred;
  return std::async(policy, std::move(half));
}

}  // namespace coldsnap
