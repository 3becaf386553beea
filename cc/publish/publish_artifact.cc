#include "cc/publish/publish_artifact.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <span>
#include <utility>

#include "cc/sys/files.h"
#include "cc/sys/new_file.h"

namespace coldsnap {
namespace {

// Another rank wrote the shard and sent its record: what stands here must at least be of that size.
Status CheckFiles(int folder_fd, const ShardRecord& shard) {
  struct File {
    const char* name;
    uint64_t nbytes;
  };
  ASSIGN_OR_RETURN(const UniqueFd shard_fd, OpenDirectoryAt(folder_fd, shard.name));
  for (const auto& [name, nbytes] :
       {File{"weights.safetensors", shard.blob_bytes}, File{"leaves.bin", shard.leaves_bytes},
        File{"manifest.json", shard.manifest_bytes}}) {
    ASSIGN_OR_RETURN(const UniqueFd fd, OpenFileAt(shard_fd.get(), name));
    ASSIGN_OR_RETURN(const uint64_t found, FileSize(fd.get(), name));
    if (found == nbytes) continue;
    return Status(Code::kRequestInvalid,
                  StrCat("check ", shard.name, "/", name, ": it has ", found, " bytes, its record says ", nbytes));
  }
  return Status::Ok();
}

// What is in the folder becomes the artifact, so nothing else may be.
Status CheckNoMore(const std::string& folder, const std::vector<ShardRecord>& shards) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error); !error && it != std::filesystem::directory_iterator();
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (std::ranges::find(shards, name, &ShardRecord::name) != shards.end()) continue;
    return Status(Code::kRequestInvalid, StrCat("check ", folder, ": it holds ", name, ", which no record lists"));
  }
  return error ? Status::FromErrno(error.value(), StrCat("list folder ", folder)) : Status::Ok();
}

Result<Sha256> Publish(Incoming incoming, std::vector<ShardRecord> shards, std::string_view identity_json,
                       std::string_view capture_json, const std::string& destination) {
  ASSIGN_OR_RETURN(const ArtifactRecord artifact, MakeArtifact(identity_json, capture_json, std::move(shards)));
  const std::string text = WriteArtifact(artifact);
  {
    ASSIGN_OR_RETURN(const UniqueFd folder, OpenDirectory(incoming.path()));
    RETURN_IF_ERROR(CheckNoMore(incoming.path(), artifact.shards));
    for (const ShardRecord& shard : artifact.shards) RETURN_IF_ERROR(CheckFiles(folder.get(), shard));
    RETURN_IF_ERROR(WriteNewFile(folder.get(), "artifact.json", std::as_bytes(std::span(text))));
    if (::fchmod(folder.get(), 0755) != 0) return Status::FromErrno(errno, "set the mode of the artifact's folder");
    RETURN_IF_ERROR(SyncFolder(folder.get(), incoming.path()));
  }
  RETURN_IF_ERROR(std::move(incoming).MoveTo(destination));
  return artifact.artifact_root;
}

}  // namespace

Result<Sha256> PublishArtifact(Incoming incoming, std::vector<ShardRecord> shards, std::string_view identity_json,
                               std::string_view capture_json, const std::string& destination) {
  Result<Sha256> root = Publish(std::move(incoming), std::move(shards), identity_json, capture_json, destination);
  if (root.ok()) return root;
  return std::move(root).status().Prefixed(StrCat("publish ", destination, ": ")).WithStage("publish");
}

}  // namespace coldsnap
