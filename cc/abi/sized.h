// The sized structs of the C ABIs: caller and library may know different numbers of fields of one struct.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "cc/base/status.h"

namespace coldsnap::abi {

// The first field of a caller's struct. Refused where it can't be a sizeof: nobody set it, most likely.
Result<size_t> StructSize(const void* theirs, std::string_view name);
Status CopyIn(const void* theirs, std::string_view name, void* ours, size_t our_size);
Status CopyOut(const void* ours, size_t our_size, std::string_view name, void* theirs);

// The caller's struct as ours: what theirs is too short for is zero; what ours is too short for must be zero.
template <typename T>
Result<T> ReadSized(const T* theirs, std::string_view name) {
  T ours{};
  RETURN_IF_ERROR(CopyIn(theirs, name, &ours, sizeof(T)));
  return ours;
}

// Fills as much of the caller's struct as there is of it, all but struct_size; what ours is too short for becomes zero.
template <typename T>
Status WriteSized(const T& ours, std::string_view name, T* theirs) {
  return CopyOut(&ours, sizeof(T), name, theirs);
}

// The caller's array of structs, whose elements may be longer or shorter than ours but are all alike.
template <typename T>
Result<std::vector<T>> ReadArray(const T* theirs, size_t count, std::string_view name) {
  std::vector<T> ours;
  if (count == 0) return ours;
  ASSIGN_OR_RETURN(const size_t step, StructSize(theirs, StrCat(name, " 0")));
  ours.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const auto* at = reinterpret_cast<const std::byte*>(theirs) + i * step;
    ASSIGN_OR_RETURN(const T element, ReadSized(reinterpret_cast<const T*>(at), name));
    if (element.struct_size != step) {
      return Status(Code::kRequestInvalid, StrCat("read ", name, " ", i, " of ", count, ": its struct_size is ",
                                                  element.struct_size, ", the first has ", step));
    }
    ours.push_back(element);
  }
  return ours;
}

}  // namespace coldsnap::abi
