// Inside cc/artifact: the short way through a manifest. Nearly every one that is read is as WriteManifest wrote it, and
// then no general parser is needed: what comes next is known.
#pragma once

#include <optional>
#include <string_view>

#include "cc/artifact/manifest.h"
#include "cc/artifact/manifest_text.h"

namespace coldsnap {

struct ScannedManifest {
  Manifest manifest;
  ManifestSlices slices;
};

// Takes nothing but what WriteManifestText writes: the text of what is returned is `text`, byte for byte. The fields
// have the right type and no more; what they mean together is ParseManifest's business.
//
// Nothing for any other text, and for strings with escapes. ReadManifestFields reads those, or says what is wrong.
std::optional<ScannedManifest> ScanManifest(std::string_view text);

}  // namespace coldsnap
