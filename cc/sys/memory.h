// Anonymous memory that a drive and a GPU can transfer to: page-aligned, pre-touched, unmapped when its owner goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cc/base/status.h"
#include "cc/sys/owned.h"

namespace coldsnap {

struct MappedRange {
  void* address = nullptr;
  uint64_t nbytes = 0;
  bool operator==(const MappedRange&) const = default;
};
struct MappingTraits {
  using Handle = MappedRange;
  static constexpr Handle kNone{};
  static Status Release(const Handle& handle);
};
using Mapping = Owned<MappingTraits>;

// `nbytes` of zeroed memory at a 2 MiB boundary, every page touched: a first touch inside a timed transfer would be
// charged to the transfer (about 2.7 GB/s on a fresh virtual machine). Huge pages are asked for, not needed.
Result<Mapping> MapTouched(uint64_t nbytes);

inline std::span<std::byte> BytesOf(const Mapping& mapping) {
  return {static_cast<std::byte*>(mapping.get().address), mapping.get().nbytes};
}

}  // namespace coldsnap
