#include "cc/device/place.h"

#include <array>

namespace coldsnap {

Result<Place> PlaceNamed(std::string_view name) {
  for (const Place place : {Place::kAuto, Place::kHost, Place::kDevice, Place::kBoth}) {
    if (name == PlaceName(place)) return place;
  }
  return Status(Code::kRequestInvalid, StrCat("place is \"", name, "\", it must be auto, host, device or both"));
}

std::string_view PlaceName(Place place) {
  constexpr std::array<std::string_view, 4> kNames = {"auto", "host", "device", "both"};
  return kNames[static_cast<size_t>(place)];
}

Result<Place> ChoosePlace(Place asked, Gpu& gpu, Reason& reason) {
  if (asked == Place::kHost || (asked == Place::kAuto && gpu.IsHost())) return Place::kHost;
  const Status can = gpu.CanHashLeaves();
  if (asked != Place::kAuto) {
    if (!can.ok()) return Status(can).WithStage("device");
    return asked;
  }
  if (can.ok()) return Place::kDevice;
  reason = {"device_digests_unavailable", can.message()};
  return Place::kHost;
}

}  // namespace coldsnap
