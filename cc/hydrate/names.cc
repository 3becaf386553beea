#include "cc/hydrate/names.h"

#include <array>

namespace coldsnap {

Result<Backend> BackendNamed(std::string_view name) {
  if (name == "auto") return Backend::kAuto;
  if (name == "buffered") return Backend::kBuffered;
  if (name == "direct") return Backend::kDirect;
  if (name == "gds") return Backend::kGds;
  return Status(Code::kRequestInvalid, StrCat("backend is \"", name, "\", it must be auto, buffered, direct or gds"));
}

Result<Verify> VerifyNamed(std::string_view name) {
  if (name == "crc32") return Verify::kCrc32;
  if (name == "crc32+sha256") return Verify::kCrc32Sha256;
  if (name == "none") return Verify::kNone;
  return Status(Code::kRequestInvalid, StrCat("verify is \"", name, "\", it must be crc32, crc32+sha256 or none"));
}

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

}  // namespace coldsnap
