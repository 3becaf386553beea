// The names of backends and verify modes: settings, receipts, the extension module and the C ABI share them.
#pragma once

#include <string_view>

#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/hydrate/route.h"

namespace coldsnap {

// Another name is kRequestInvalid, with the known ones.
Result<Backend> BackendNamed(std::string_view name);
Result<Verify> VerifyNamed(std::string_view name);

}  // namespace coldsnap
