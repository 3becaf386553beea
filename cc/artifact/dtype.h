// The element types of format 1, by the names that safetensors gives them, and C128, which only we have.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace coldsnap {

struct Dtype {
  std::string_view name;
  // Of one element in the manifest's shape. F4 and F6 are packed: their element is one byte of storage, as in torch.
  uint64_t element_bytes;
  // Whether a blob entry may have this type. F6 may not: safetensors counts its elements in 6 bits each, and no
  // framework has a tensor that says so.
  bool in_header;
};

const Dtype* FindDtype(std::string_view name);  // nullptr: not a type of format 1
std::string KnownDtypes();                      // "BF16, F32, ...", for messages

// The packed type whose last dimension counts twice in the blob's header.
inline bool IsF4(std::string_view dtype) { return dtype == "F4"; }

}  // namespace coldsnap
