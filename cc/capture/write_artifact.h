// Writes an artifact of one shard from tensors in host memory: the writer behind tests and calibration.
//
// The files are built beside `path` and moved there once, with artifact.json written last: at no time is there a folder
// at `path` that is no complete artifact. Whatever fails, nothing stays.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cc/artifact/tensor.h"
#include "cc/base/status.h"
#include "cc/base/types.h"

namespace coldsnap {

struct WriteRequest {
  std::string path;  // must not exist; its parent must
  std::vector<TensorSpec> tensors;
  std::string identity_json = "{}";
  std::string scalars_json = "{}";
  std::string capture_json = "{}";
};

struct WriteReport {
  Sha256 artifact_root{};
  uint64_t payload_bytes = 0;
  uint64_t blob_bytes = 0;
  uint64_t extents = 0;
  uint64_t uncovered_bytes = 0;  // of storages, outside every tensor
};

Result<WriteReport> WriteHostArtifact(WriteRequest request);

}  // namespace coldsnap
