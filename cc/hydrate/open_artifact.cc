#include "cc/hydrate/open_artifact.h"

#include <algorithm>
#include <cerrno>
#include <new>

#include "cc/base/hex.h"
#include "cc/digest/sha256.h"

namespace coldsnap {
namespace {

// artifact.json lists shards and holds an identity: far below this. A manifest of 1,000,000 extents has about 300 MB.
constexpr uint64_t kMaxArtifactJsonBytes = 64 * kMiB;
constexpr uint64_t kMaxManifestBytes = 2 * kGiB;

Result<ArtifactRecord> ReadArtifactJson(int dir_fd) {
  Result<std::string> text = ReadSmallFile(dir_fd, kArtifactFile, kMaxArtifactJsonBytes);
  if (!text.ok() && text.status().native() == ENOENT) {
    return Status(Code::kFormatInvalid,
                  "there is no artifact.json, so the folder is no artifact, or the copy of one that is not finished")
        .WithRemedy("name the artifact's own folder, or copy it again with artifact.json last");
  }
  if (!text.ok()) return std::move(text).status();
  return ParseArtifact(*text);
}

Result<size_t> ChooseShard(const ArtifactRecord& record, const std::optional<std::string>& shard) {
  std::string known;
  for (size_t i = 0; i < record.shards.size(); ++i) {
    if (record.shards[i].name == shard) return i;
    known += (i == 0 ? "" : ", ") + record.shards[i].name;
  }
  if (!shard && record.shards.size() == 1) return size_t{0};
  return Status(Code::kRequestInvalid,
                shard ? StrCat("there is no shard \"", *shard, "\"; it has ", known)
                      : StrCat("it has ", record.shards.size(), " shards and none was named; they are ", known));
}

Status Missing(const std::string& shown) {
  return Status(Code::kFormatInvalid, StrCat("artifact.json lists ", shown, ", which is not there"))
      .WithNative(Domain::kErrno, ENOENT)
      .WithRemedy("copy the artifact again, with artifact.json last");
}

Status CheckSize(int dir_fd, const std::string& name, const std::string& shown, uint64_t expected) {
  Result<UniqueFd> fd = OpenFileAt(dir_fd, name);
  if (!fd.ok() && fd.status().native() == ENOENT) return Missing(shown);
  if (!fd.ok()) return std::move(fd).status();
  ASSIGN_OR_RETURN(const uint64_t nbytes, FileSize(fd->get(), shown));
  if (nbytes == expected) return Status::Ok();
  return Status(Code::kDataLoss, StrCat(shown, " has ", nbytes, " bytes, artifact.json says ", expected))
      .WithRemedy("copy the artifact again, or capture it again");
}

// How much an artifact says of itself is up to its writer; whether there is memory for it shows only here.
template <typename Read>
auto IfMemoryIsThere(Read read) -> decltype(read()) {
  try {
    return read();
  } catch (const std::bad_alloc&) {
    return Status(Code::kOutOfMemory, "there is not enough memory for what its artifact.json and manifests describe")
        .WithRemedy("raise the memory limit, or name another artifact");
  }
}

}  // namespace

Result<OpenArtifact> OpenArtifact::Open(const std::string& path, const std::optional<std::string>& shard) {
  const std::string doing = StrCat("open artifact ", path, ": ");
  Result<UniqueFd> dir = OpenDirectory(path);
  if (!dir.ok()) return std::move(dir).status().Prefixed(doing).WithStage("open");
  OpenArtifact artifact;
  artifact.path_ = path;
  const auto open = [&]() -> Status {
    ASSIGN_OR_RETURN(artifact.record_, ReadArtifactJson(dir->get()));
    ASSIGN_OR_RETURN(artifact.shard_index_, ChooseShard(artifact.record_, shard));
    RETURN_IF_ERROR(artifact.CheckSizes(dir->get()));
    return artifact.OpenShard(dir->get());
  };
  Status status = IfMemoryIsThere(open);
  if (!status.ok()) return std::move(status).Prefixed(doing).WithStage("open");
  return artifact;
}

Result<std::vector<std::string>> OpenArtifact::ShardNames(const std::string& path) {
  const auto read = [&path]() -> Result<ArtifactRecord> {
    ASSIGN_OR_RETURN(const UniqueFd dir, OpenDirectory(path));
    return ReadArtifactJson(dir.get());
  };
  Result<ArtifactRecord> record = IfMemoryIsThere(read);
  if (!record.ok()) return std::move(record).status().Prefixed(StrCat("open artifact ", path, ": ")).WithStage("open");
  std::vector<std::string> names;
  for (ShardRecord& shard : record->shards) names.push_back(std::move(shard.name));
  return names;
}

// Every shard's files, so that a copy which is short somewhere is refused by all ranks alike.
Status OpenArtifact::CheckSizes(int dir_fd) const {
  for (size_t i = 0; i < record_.shards.size(); ++i) {
    const ShardRecord& shard = record_.shards[i];
    Result<UniqueFd> opened = OpenDirectoryAt(dir_fd, shard.name);
    if (!opened.ok() && opened.status().native() == ENOENT) return Missing(shard.name);
    ASSIGN_OR_RETURN(const UniqueFd folder, std::move(opened));
    const auto shown = [&shard](const char* name) { return StrCat(shard.name, "/", name); };
    RETURN_IF_ERROR(CheckSize(folder.get(), kBlobFile, shown(kBlobFile), shard.blob_bytes));
    RETURN_IF_ERROR(CheckSize(folder.get(), kLeavesFile, shown(kLeavesFile), shard.leaves_bytes));
    RETURN_IF_ERROR(CheckSize(folder.get(), kManifestFile, shown(kManifestFile), shard.manifest_bytes));
    if (i == shard_index_) continue;  // OpenShard reads that one
    ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(folder.get(), kManifestFile, kMaxManifestBytes));
    if (Sha256Of(std::as_bytes(std::span(text))) != shard.manifest_sha256) {
      return Status(Code::kDataLoss, StrCat(shown(kManifestFile), " has another SHA-256 than artifact.json says"))
          .WithRemedy("copy the artifact again, or capture it again");
    }
  }
  return Status::Ok();
}

Status OpenArtifact::OpenShard(int dir_fd) {
  ASSIGN_OR_RETURN(shard_dir_, OpenDirectoryAt(dir_fd, shard().name));
  ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(shard_dir_.get(), kManifestFile, kMaxManifestBytes));
  ASSIGN_OR_RETURN(manifest_, ParseShardManifest(record_, shard_index_, text));
  ASSIGN_OR_RETURN(blob_, OpenFileAt(shard_dir_.get(), kBlobFile));
  for (const Extent& extent : manifest_.extents) payload_bytes_ += extent.nbytes;
  RETURN_IF_ERROR(CheckHeader());
  return ReadLeaves();
}

Status OpenArtifact::CheckHeader() const {
  std::vector<std::byte> header(manifest_.data_start);
  RETURN_IF_ERROR(ReadExact(blob_.get(), header, 0, kBlobFile));
  if (Sha256Of(header) == manifest_.header_sha256) return Status::Ok();
  return Status(Code::kDataLoss, StrCat("the header of ", kBlobFile, " (its first ", header.size(),
                                        " bytes) has another SHA-256 than the manifest says"))
      .WithRemedy("copy the artifact again, or capture it again");
}

Status OpenArtifact::ReadLeaves() {
  uint64_t count = 0;
  for (const Extent& extent : manifest_.extents) {
    leaf_starts_.push_back(count);
    count += LeavesOf(extent.nbytes);
  }
  leaf_starts_.push_back(count);
  leaves_.resize(count);
  ASSIGN_OR_RETURN(const UniqueFd fd, OpenFileAt(shard_dir_.get(), kLeavesFile));
  RETURN_IF_ERROR(ReadExact(fd.get(), std::as_writable_bytes(std::span(leaves_)), 0, kLeavesFile));
  if (Sha256Of(std::as_bytes(std::span(leaves_))) != manifest_.leaves_sha256) {
    return Status(Code::kDataLoss, StrCat(kLeavesFile, " has another SHA-256 than the manifest says"))
        .WithRemedy("copy the artifact again, or capture it again");
  }
  // From here on a leaf that matches stands for its part of the root: a restore need only compare leaves.
  for (size_t i = 0; i < manifest_.extents.size(); ++i) {
    if (TreeRoot(LeavesOfExtent(i)) == manifest_.extents[i].sha256t) continue;
    return Status(Code::kFormatInvalid, StrCat("the leaves of ", ExtentText(i), " don't give its sha256t ",
                                               ToHex(manifest_.extents[i].sha256t)));
  }
  return Status::Ok();
}

std::span<const Sha256> OpenArtifact::LeavesOfExtent(size_t extent) const {
  return std::span(leaves_).subspan(leaf_starts_[extent], leaf_starts_[extent + 1] - leaf_starts_[extent]);
}

std::string OpenArtifact::ExtentText(size_t extent) const {
  const auto smallest = std::find_if(manifest_.tensors.begin(), manifest_.tensors.end(),
                                     [extent](const TensorRecord& tensor) { return tensor.extent == extent; });
  return StrCat("extent ", extent, " (", smallest == manifest_.tensors.end() ? "" : smallest->name, ")");
}

}  // namespace coldsnap
