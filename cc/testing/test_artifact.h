// An artifact of contiguous U8 tensors with pattern bytes, in a folder of its own.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cc/capture/write_artifact.h"
#include "cc/hydrate/hydrate.h"
#include "cc/hydrate/open_artifact.h"
#include "cc/testing/temp_dir.h"
#include "cc/testing/test_device.h"

namespace coldsnap {

class TestArtifact {
 public:
  // Tensor i is called "t<i>" and holds PatternBytes(sizes[i], i + 1).
  explicit TestArtifact(std::vector<uint64_t> sizes);

  std::string path() const { return temp_.path() + "/artifact"; }
  std::string blob_path() const { return path() + "/shard-00-00-00/weights.safetensors"; }
  OpenArtifact Open() const;
  void FlipBit(uint64_t offset) const;   // of the blob
  void Truncate(uint64_t nbytes) const;  // the blob to that size

  // A destination for each extent; which tensor it holds tells its seed.
  struct Destination {
    ExtentTarget target;
    uint64_t seed = 0;
    std::string name;
  };
  std::vector<Destination> Allocate(const OpenArtifact& artifact, TestDevice& device) const;

 private:
  TempDir temp_;
  std::vector<uint64_t> sizes_;
};

std::vector<ExtentTarget> TargetsOf(const std::vector<TestArtifact::Destination>& destinations);

}  // namespace coldsnap
