// Inside cc/artifact: the fields of manifest.json as they stand in the text, each of the right type. What they mean
// together is ParseManifest's business.
#pragma once

#include <string_view>

#include "cc/artifact/manifest.h"
#include "cc/base/status.h"

namespace coldsnap {

// Every field once, no other field, columns of equal length, format 1, no required feature. kFormatInvalid otherwise.
Result<Manifest> ReadManifestFields(std::string_view text);

}  // namespace coldsnap
