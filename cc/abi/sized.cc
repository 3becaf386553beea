#include "cc/abi/sized.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace coldsnap::abi {
namespace {

// Every field has this many bytes, so no size ends within one.
constexpr size_t kFieldBytes = 8;
// No struct comes near it; reading as far as an unset size says could leave the caller's memory.
constexpr size_t kMaxStructBytes = 4096;

}  // namespace

Result<size_t> StructSize(const void* theirs, std::string_view name) {
  if (theirs == nullptr) return Status(Code::kRequestInvalid, StrCat("read ", name, ": it is NULL"));
  size_t size = 0;
  std::memcpy(&size, theirs, sizeof(size));
  if (size >= kFieldBytes && size <= kMaxStructBytes && size % kFieldBytes == 0) return size;
  return Status(Code::kRequestInvalid, StrCat("read ", name, ": struct_size is ", size, ", no multiple of ",
                                              kFieldBytes, " from ", kFieldBytes, " to ", kMaxStructBytes))
      .WithRemedy("set it to the struct's sizeof");
}

Status CopyIn(const void* theirs, std::string_view name, void* ours, size_t our_size) {
  ASSIGN_OR_RETURN(const size_t size, StructSize(theirs, name));
  const std::span bytes(static_cast<const std::byte*>(theirs), size);
  const std::span beyond = bytes.subspan(std::min(size, our_size));
  const auto set = std::ranges::find_if(beyond, [](std::byte byte) { return byte != std::byte{0}; });
  if (set != beyond.end()) {
    return Status(Code::kRequestInvalid,
                  StrCat("read ", name, ": byte ", our_size + static_cast<size_t>(set - beyond.begin()), " of ", size,
                         " is set, and this library knows ", our_size, " bytes of it"))
        .WithRemedy("leave the newer fields zero, or use a newer library");
  }
  std::memcpy(ours, theirs, std::min(size, our_size));
  return Status::Ok();
}

Status CopyOut(const void* ours, size_t our_size, std::string_view name, void* theirs) {
  ASSIGN_OR_RETURN(const size_t size, StructSize(theirs, name));
  const size_t known = std::min(size, our_size);
  auto* const to = static_cast<std::byte*>(theirs);
  std::memcpy(to + kFieldBytes, static_cast<const std::byte*>(ours) + kFieldBytes, known - kFieldBytes);
  std::memset(to + known, 0, size - known);
  return Status::Ok();
}

}  // namespace coldsnap::abi
