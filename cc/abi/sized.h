// The sized structs of the C ABIs: caller and library may know different numbers of fields of one struct.
#pragma once

#include <cstddef>
#include <string_view>

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

}  // namespace coldsnap::abi
