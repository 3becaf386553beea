// From tensors somewhere in memory to the layout of their blob: merge storages, order extents, place them, write the
// header. The same tensors give the same layout, whatever their order and addresses.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cc/artifact/limits.h"
#include "cc/artifact/tensor.h"
#include "cc/base/status.h"
#include "cc/base/types.h"

namespace coldsnap {

struct Layout {
  std::vector<TensorRecord> tensors;   // in name order
  std::vector<DeviceRange> sources;    // where each extent's bytes are now, in extent order
  std::vector<uint64_t> file_offsets;  // where they go, absolute in the blob
  std::string header;                  // the blob's first `data_start` bytes
  uint64_t data_start = 0;
  uint64_t blob_bytes = 0;
  uint64_t uncovered_bytes = 0;  // of the extents, outside every tensor's first to last byte
};

// kRequestInvalid, with the tensor's name, for what format 1 can't hold: a name that is bad or stands twice, an
// unknown type, negative strides, a tensor that reaches outside its storage, a blob past 2^53-1 bytes, a header past
// `header_limit` (only tests use another than the format's).
Result<Layout> PlanLayout(std::vector<TensorSpec> tensors, uint64_t header_limit = kMaxHeaderBytes);

}  // namespace coldsnap
