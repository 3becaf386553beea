#include "cc/artifact/dtype.h"

namespace coldsnap {
namespace {

// The most frequent first: a manifest looks up every tensor's type. What safetensors 0.8 accepts is held against its
// own parser by tests/format/safetensors_test.py.
constexpr Dtype kDtypes[] = {
    {"BF16", 2, true},     {"F32", 4, true},         {"U8", 1, true},     {"F16", 2, true},
    {"F8_E4M3", 1, true},  {"F4", 1, true},          {"I32", 4, true},    {"I64", 8, true},
    {"F8_E8M0", 1, true},  {"F8_E5M2", 1, true},     {"I8", 1, true},     {"BOOL", 1, true},
    {"F64", 8, true},      {"U16", 2, true},         {"I16", 2, true},    {"U32", 4, true},
    {"U64", 8, true},      {"F8_E4M3FNUZ", 1, true}, {"C64", 8, true},    {"F8_E5M2FNUZ", 1, true},
    {"F6_E2M3", 1, false}, {"F6_E3M2", 1, false},    {"C128", 16, false},
};

}  // namespace

const Dtype* FindDtype(std::string_view name) {
  for (const Dtype& dtype : kDtypes) {
    if (dtype.name == name) return &dtype;
  }
  return nullptr;
}

std::string KnownDtypes() {
  std::string out;
  for (const Dtype& dtype : kDtypes) {
    if (!out.empty()) out.append(", ");
    out.append(dtype.name);
  }
  return out;
}

}  // namespace coldsnap
