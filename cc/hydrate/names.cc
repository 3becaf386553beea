#include "cc/hydrate/names.h"

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

}  // namespace coldsnap
