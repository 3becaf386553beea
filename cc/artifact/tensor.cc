#include "cc/artifact/tensor.h"

#include <algorithm>
#include <string_view>

#include "cc/artifact/dtype.h"
#include "cc/artifact/json_text.h"
#include "cc/artifact/limits.h"

namespace coldsnap {
namespace {

Status Invalid(std::string message) { return Status(Code::kRequestInvalid, std::move(message)); }

// value * times, or past kMaxInteger.
bool Multiply(uint64_t& value, uint64_t times) {
  return !__builtin_mul_overflow(value, times, &value) && value <= kMaxInteger;
}

bool HasElements(const TensorRecord& tensor) {
  return std::find(tensor.shape.begin(), tensor.shape.end(), 0) == tensor.shape.end();
}

std::string_view KeyOf(std::string_view attr) { return attr.substr(0, attr.find('=')); }

Status CheckAttrs(const std::vector<std::string>& attrs) {
  for (size_t i = 0; i < attrs.size(); ++i) {
    const std::string_view key = KeyOf(attrs[i]);
    if (key.empty() || key.size() == attrs[i].size()) {
      return Invalid(StrCat("attrs[", i, "] is ", Quoted(attrs[i]), ", not key=value"));
    }
    if (const Status status = CheckName(attrs[i]); !status.ok()) {
      return Status(status).Prefixed(StrCat("attrs[", i, "], held to the rules for names: "));
    }
    if (i == 0) continue;
    if (attrs[i] < attrs[i - 1]) {
      return Invalid(StrCat("attrs are not sorted: ", Quoted(attrs[i]), " stands after ", Quoted(attrs[i - 1])));
    }
    // Both begin with the key and '=', and so does whatever sorts between them: equal keys are neighbours.
    if (KeyOf(attrs[i - 1]) == key) return Invalid(StrCat("attrs have the key ", Quoted(key), " twice"));
  }
  return Status::Ok();
}

}  // namespace

Result<uint64_t> SpanBytes(const TensorRecord& tensor) {
  if (!HasElements(tensor)) return uint64_t{0};
  uint64_t elements = 1;
  bool fits = true;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    uint64_t reach = tensor.shape[i] - 1;
    fits = fits && Multiply(reach, tensor.strides[i]);
    elements += reach;
    fits = fits && elements <= kMaxInteger;
  }
  if (!fits || !Multiply(elements, FindDtype(tensor.dtype)->element_bytes)) {
    return Invalid("shape and strides reach past 2^53-1 bytes");
  }
  return elements;
}

bool IsContiguous(const TensorRecord& tensor) {
  uint64_t expected = 1;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] == 1) continue;
    if (tensor.strides[i] != expected) return false;
    if (!Multiply(expected, tensor.shape[i])) return false;
  }
  return true;
}

bool FitsHeader(const TensorRecord& tensor) {
  if (tensor.name.starts_with("__")) return false;
  if (!FindDtype(tensor.dtype)->in_header) return false;
  if (IsF4(tensor.dtype) && tensor.shape.empty()) return false;  // no last dimension to double
  // Readers multiply dimensions before they meet the zero, so an empty tensor may overflow them.
  uint64_t bytes = FindDtype(tensor.dtype)->element_bytes;
  for (const uint64_t dimension : tensor.shape) {
    if (dimension != 0 && !Multiply(bytes, dimension)) return false;
  }
  return true;
}

Status CheckRecord(const TensorRecord& tensor) {
  RETURN_IF_ERROR(CheckName(tensor.name));
  if (FindDtype(tensor.dtype) == nullptr) {
    return Invalid(StrCat("dtype ", Quoted(tensor.dtype), " is none of format 1; known: ", KnownDtypes()));
  }
  if (tensor.shape.size() > kMaxDimensions) {
    return Invalid(StrCat(tensor.shape.size(), " dimensions; at most ", kMaxDimensions, " are possible"));
  }
  if (tensor.strides.size() != tensor.shape.size()) {
    return Invalid(StrCat(tensor.shape.size(), " dimensions but ", tensor.strides.size(), " strides"));
  }
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] > kMaxInteger) return Invalid(StrCat("shape[", i, "] is ", tensor.shape[i], ", past 2^53-1"));
    if (tensor.strides[i] > kMaxInteger)
      return Invalid(StrCat("strides[", i, "] is ", tensor.strides[i], ", past 2^53-1"));
  }
  if (!tensor.role.empty()) {
    if (Status status = CheckName(tensor.role); !status.ok()) {
      return std::move(status).Prefixed("role, held to the rules for names: ");
    }
  }
  return CheckAttrs(tensor.attrs);
}

bool SameBytes(const TensorRecord& a, const TensorRecord& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.strides == b.strides && a.extent == b.extent &&
         a.offset == b.offset;
}

}  // namespace coldsnap
