// Where digests are computed: on the host, from bytes that pass it, or on the device, over its own memory.
#pragma once

#include <string_view>

#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/device/gpu.h"

namespace coldsnap {

// As settings, receipts and the C ABI call them; another name is kRequestInvalid.
Result<Place> PlaceNamed(std::string_view name);
std::string_view PlaceName(Place place);

inline bool IsOnDevice(Place place) { return place == Place::kDevice || place == Place::kBoth; }
inline bool IsOnHost(Place place) { return place == Place::kHost || place == Place::kBoth; }

// The place that was asked for, or kRouteUnavailable where it can't be; for kAuto a device that can, but never host
// memory, which a processor reads anyway. `reason` is why kAuto is not on the device, where that would have been
// chosen.
Result<Place> ChoosePlace(Place asked, Gpu& gpu, Reason& reason);

}  // namespace coldsnap
