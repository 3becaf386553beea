// Opens an artifact for reading: every file found without following links, everything but the data itself checked.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cc/artifact/artifact_json.h"
#include "cc/artifact/manifest.h"
#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/sys/files.h"

namespace coldsnap {

// The files of a shard.
inline constexpr const char* kArtifactFile = "artifact.json";
inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr const char* kBlobFile = "weights.safetensors";
inline constexpr const char* kLeavesFile = "leaves.bin";

// One shard of an artifact, open. What holds when Open() succeeds: artifact.json and the manifests of all shards match
// in size and digest, every shard's files have their sizes, and of this shard the header, the leaves and each extent's
// root over them agree with the manifest. Only the extents' data is unread.
class OpenArtifact {
 public:
  // `shard` may be left out where there is only one. No such path or shard: kRequestInvalid. A folder that is no
  // (complete) artifact: kFormatInvalid. A file that is shorter, longer or other than it should be: kDataLoss.
  static Result<OpenArtifact> Open(const std::string& path, const std::optional<std::string>& shard);
  // The shards that artifact.json lists, which Open() may be given; nothing but that file is read.
  static Result<std::vector<std::string>> ShardNames(const std::string& path);

  const std::string& path() const { return path_; }
  const ArtifactRecord& record() const { return record_; }
  const ShardRecord& shard() const { return record_.shards[shard_index_]; }
  const Manifest& manifest() const { return manifest_; }
  uint64_t payload_bytes() const { return payload_bytes_; }

  std::span<const Sha256> LeavesOfExtent(size_t extent) const;
  // "extent 7 (model.layers.3.mlp.weight)": the extent with the smallest name that it holds.
  std::string ExtentText(size_t extent) const;

  int blob_fd() const { return blob_.get(); }
  int shard_dir_fd() const { return shard_dir_.get(); }

 private:
  OpenArtifact() = default;
  Status OpenShard(int dir_fd);
  Status CheckSizes(int dir_fd) const;
  Status CheckHeader() const;
  Status ReadLeaves();

  std::string path_;
  ArtifactRecord record_;
  size_t shard_index_ = 0;
  Manifest manifest_;
  uint64_t payload_bytes_ = 0;
  std::vector<Sha256> leaves_;         // of all extents, in order
  std::vector<uint64_t> leaf_starts_;  // of each extent, and one more for the end
  UniqueFd shard_dir_;
  UniqueFd blob_;
};

}  // namespace coldsnap
