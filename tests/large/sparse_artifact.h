// An artifact of many gigabytes that takes a few megabytes of disk: zeros, but for marked leaves at chosen places.
//
// Its digests are put together from those of single leaves, so that nothing of that size is ever hashed to write it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cc/testing/temp_dir.h"

namespace coldsnap {

// A leaf that holds PatternBytes(its size, seed) instead of zeros.
struct Marked {
  uint64_t leaf = 0;  // its number in the tensor
  uint64_t seed = 0;
};

struct SparseTensor {
  uint64_t nbytes = 0;
  std::vector<Marked> marks;
};

class SparseArtifact {
 public:
  // Tensor i is called "t<i>" and is an extent of its own.
  explicit SparseArtifact(std::vector<SparseTensor> tensors);

  std::string path() const { return temp_.path(); }
  std::string blob_path() const;
  void FlipBit(uint64_t offset) const;  // of the blob; a second time: as it was
  uint64_t disk_bytes() const;          // that the blob takes

 private:
  TempDir temp_;
};

}  // namespace coldsnap
