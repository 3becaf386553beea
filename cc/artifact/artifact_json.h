// artifact.json: which shards make up an artifact, with the sizes and digests of their files. Written last, so that its
// presence says that the rest is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cc/artifact/manifest.h"
#include "cc/base/status.h"
#include "cc/base/types.h"

namespace coldsnap {

struct ShardRecord {
  std::string name;  // shard-<pp>-<tp>-<ep>, also the folder's name
  uint64_t blob_bytes = 0;
  uint64_t leaves_bytes = 0;
  uint64_t manifest_bytes = 0;
  Sha256 manifest_sha256{};
  Sha256 shard_root{};
};

struct ArtifactRecord {
  std::string identity = "{}";      // canonical JSON objects
  std::string capture = "{}";       // the account of the capture; no digest covers it
  std::string extensions;           // empty: none
  std::vector<ShardRecord> shards;  // by name
  Sha256 artifact_root{};
};

// "shard-00-00-00" for (0, 0, 0); every number has at least two digits.
std::string ShardName(uint32_t pp, uint32_t tp, uint32_t ep);

// SHA-256 of a canonical identity object.
Sha256 IdentityDigest(std::string_view canonical_identity);

// `manifest_text` is what WriteManifest(manifest) gave.
ShardRecord MakeShardRecord(std::string name, const Manifest& manifest, std::string_view manifest_text);

// kRequestInvalid for a text that is no canonicalisable object, no shard, a bad shard name or the same twice.
Result<ArtifactRecord> MakeArtifact(std::string_view identity_json, std::string_view capture_json,
                                    std::vector<ShardRecord> shards);

std::string WriteArtifact(const ArtifactRecord& artifact);

// Accepts exactly what WriteArtifact writes; artifact_root is derived again. kFormatInvalid otherwise.
Result<ArtifactRecord> ParseArtifact(std::string_view text);

// The manifest of shards[shard], from the text of its file: size and digest as artifact.json has them, then
// ParseManifest, then everything that both state must be equal. kDataLoss where size or digest differ.
Result<Manifest> ParseShardManifest(const ArtifactRecord& artifact, size_t shard, std::string_view manifest_text);

}  // namespace coldsnap
