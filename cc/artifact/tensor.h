// A tensor as a caller describes it and as the manifest records it, and the arithmetic of the bytes it touches.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cc/base/status.h"

namespace coldsnap {

// What a caller wants captured. Addresses of one capture lie in one address space (one device, or unified addressing).
struct TensorSpec {
  std::string name;  // 1..4096 bytes of UTF-8 without NUL; unique
  std::string dtype;
  std::vector<uint64_t> shape;   // in elements; F4 packed, as torch has it
  std::vector<int64_t> strides;  // in elements, as many as dimensions
  uint64_t address = 0;          // of element 0; not looked at when there is none
  uint64_t storage_address = 0;  // the whole storage that the tensor is a view of
  uint64_t storage_nbytes = 0;
  uint64_t object = 0;  // equal for names of the same Python object, whatever the number
  std::string role;
  std::vector<std::string> attrs;  // "key=value", any order, no key twice
};

// What the manifest says of it.
struct TensorRecord {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> strides;   // in elements
  std::optional<uint32_t> extent;  // none: the storage has no bytes
  uint64_t offset = 0;             // of element 0, in bytes into the extent; 0 when there is none
  uint64_t object = 0;             // running number, by first appearance in name order
  std::string role;
  std::vector<std::string> attrs;  // sorted by bytes
};

// From element 0 to the end of the last byte touched; 0 when there is no element. Past 2^53-1: kRequestInvalid.
// `dtype` is a type of format 1 and there are as many strides as dimensions.
Result<uint64_t> SpanBytes(const TensorRecord& tensor);

// Whether the elements lie one after the other in row-major order. Strides of dimensions of size 1 mean nothing.
bool IsContiguous(const TensorRecord& tensor);

// Whether the blob's header may have an entry with this name, type and shape.
bool FitsHeader(const TensorRecord& tensor);

// The rules for one record by itself: name, type, dimensions, role, attrs. kRequestInvalid, without the tensor's name.
Status CheckRecord(const TensorRecord& tensor);

// Whether the two records differ only in name, role and attrs, as names of one object must.
bool SameBytes(const TensorRecord& a, const TensorRecord& b);

}  // namespace coldsnap
