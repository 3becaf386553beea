// An artifact of one shard at a path of its own: capture, then publish.
//
// The files are built beside `path` and moved there once, with artifact.json written last: at no time is there a folder
// at `path` that is no complete artifact. Whatever fails, nothing stays; what a killed capture left is taken up or
// removed by the next one to the same path.
#pragma once

#include <string>
#include <vector>

#include "cc/artifact/tensor.h"
#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/capture/capture.h"
#include "cc/device/gpu.h"

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
  CaptureReport shard;  // with the time of publishing
};

// kExists if something is at the path; kPolicyRefused while another capture to it is under way.
Result<WriteReport> CaptureArtifact(WriteRequest request, Gpu& gpu, const CaptureOptions& options);

// From host memory, through the page cache: the writer behind tests and calibration.
Result<WriteReport> WriteHostArtifact(WriteRequest request);

}  // namespace coldsnap
