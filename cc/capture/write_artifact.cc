#include "cc/capture/write_artifact.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>

#include "cc/artifact/artifact_json.h"
#include "cc/artifact/layout.h"
#include "cc/artifact/manifest.h"
#include "cc/digest/crc32.h"
#include "cc/digest/sha256.h"
#include "cc/sys/files.h"

namespace coldsnap {
namespace {

constexpr unsigned kRenameNoReplace = 1;  // RENAME_NOREPLACE, linux/fs.h

// The folder in which an artifact is built; gone again unless it was moved away.
class Incoming {
 public:
  static Result<Incoming> Create(const std::string& path) {
    Incoming incoming;
    std::string made = path + ".incoming-XXXXXX";
    if (::mkdtemp(made.data()) == nullptr) {
      const int error = errno;
      Status status = Status::FromErrno(error, StrCat("create a folder beside ", path));
      if (error != ENOENT && error != ENOTDIR) return status;
      return Status(Code::kRequestInvalid, status.message()).WithRemedy("name a path whose parent folder exists");
    }
    incoming.path_ = std::move(made);
    return incoming;
  }
  Incoming(Incoming&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  Incoming& operator=(Incoming&&) = delete;
  ~Incoming() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

  // Where the file system can't refuse to replace, the move is refused: an artifact is never overwritten.
  Status MoveTo(const std::string& path) && {
    if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, path.c_str(), kRenameNoReplace) != 0) {
      return Status::FromErrno(errno, StrCat("move the finished artifact to ", path));
    }
    path_.clear();
    return Status::Ok();
  }

 private:
  Incoming() = default;
  std::string path_;
};

// Of a call that may answer -1 and EINTR, which open() and fsync() do on network file systems: an engine's signals
// (profilers, child processes) are no reason to give up a capture.
template <typename Call>
int Uninterrupted(Call call) {
  int result = 0;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

Status SyncFolder(const std::string& path) {
  ASSIGN_OR_RETURN(const UniqueFd fd, OpenDirectory(path));
  if (Uninterrupted([&] { return ::fsync(fd.get()); }) != 0)
    return Status::FromErrno(errno, StrCat("sync folder ", path));
  return Status::Ok();
}

// A file that is not there yet, with what is written to it on the drive when Finish() has returned.
class NewFile {
 public:
  static Result<NewFile> Create(const std::string& folder, const std::string& name) {
    const std::string path = folder + "/" + name;
    const int fd =
        Uninterrupted([&] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600); });
    if (fd < 0) return Status::FromErrno(errno, StrCat("create ", name));
    return NewFile(UniqueFd(fd), name);
  }
  // Before a byte is written: a full drive is noticed here, not in the middle.
  Status Reserve(uint64_t nbytes) {
    int error = 0;
    do {
      error = nbytes == 0 ? 0 : ::posix_fallocate(fd_.get(), 0, static_cast<off_t>(nbytes));
    } while (error == EINTR);
    if (error == 0 || error == EOPNOTSUPP || error == EINVAL) return Status::Ok();
    return Status::FromErrno(error, StrCat("reserve ", nbytes, " bytes for ", name_));
  }
  Status Write(std::span<const std::byte> bytes, uint64_t offset) {
    return WriteExact(fd_.get(), bytes, offset, name_);
  }
  Status Finish() && {
    if (::fchmod(fd_.get(), 0444) != 0) return Status::FromErrno(errno, StrCat("set the mode of ", name_));
    if (Uninterrupted([&] { return ::fsync(fd_.get()); }) != 0) return Status::FromErrno(errno, StrCat("sync ", name_));
    return std::move(fd_).Close();
  }

 private:
  NewFile(UniqueFd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}
  UniqueFd fd_;
  std::string name_;
};

Status WriteFile(const std::string& folder, const std::string& name, std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(NewFile file, NewFile::Create(folder, name));
  RETURN_IF_ERROR(file.Write(bytes, 0));
  return std::move(file).Finish();
}

struct Written {
  std::vector<ExtentDigests> digests;
  std::vector<Sha256> leaves;
};

Result<Written> WriteBlob(const std::string& folder, const Layout& layout) {
  ASSIGN_OR_RETURN(NewFile file, NewFile::Create(folder, "weights.safetensors"));
  RETURN_IF_ERROR(file.Reserve(layout.blob_bytes));
  RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(layout.header)), 0));
  Written written;
  uint64_t end = layout.data_start;
  const std::vector<std::byte> zeros(kLeafBytes);
  const auto pad_to = [&](uint64_t offset) {
    const uint64_t gap = offset - end;  // less than a leaf, by the format
    return file.Write(std::span(zeros).first(gap), end);
  };
  for (size_t i = 0; i < layout.sources.size(); ++i) {
    const auto* const start =
        reinterpret_cast<const std::byte*>(layout.sources[i].address);  // NOLINT(performance-no-int-to-ptr)
    const std::span<const std::byte> bytes(start, layout.sources[i].nbytes);
    RETURN_IF_ERROR(pad_to(layout.file_offsets[i]));
    RETURN_IF_ERROR(file.Write(bytes, layout.file_offsets[i]));
    end = layout.file_offsets[i] + bytes.size();
    const std::vector<Sha256> leaves = LeafDigests(bytes);
    written.digests.push_back({.crc32 = Crc32(0, bytes), .sha256t = TreeRoot(leaves)});
    written.leaves.insert(written.leaves.end(), leaves.begin(), leaves.end());
  }
  RETURN_IF_ERROR(pad_to(layout.blob_bytes));
  RETURN_IF_ERROR(std::move(file).Finish());
  return written;
}

Result<WriteReport> Write(WriteRequest request) {
  if (::access(request.path.c_str(), F_OK) == 0)
    return Status(Code::kExists, "it is there already").WithRemedy("name a new path");
  ASSIGN_OR_RETURN(Layout layout, PlanLayout(std::move(request.tensors)));
  WriteReport report{
      .blob_bytes = layout.blob_bytes, .extents = layout.sources.size(), .uncovered_bytes = layout.uncovered_bytes};
  for (const DeviceRange& source : layout.sources) report.payload_bytes += source.nbytes;

  ASSIGN_OR_RETURN(Incoming incoming, Incoming::Create(request.path));
  const std::string shard_name = ShardName(0, 0, 0);
  const std::string folder = incoming.path() + "/" + shard_name;
  if (::mkdir(folder.c_str(), 0755) != 0) return Status::FromErrno(errno, StrCat("create folder ", shard_name));
  ASSIGN_OR_RETURN(const Written written, WriteBlob(folder, layout));
  const auto leaves = std::as_bytes(std::span(written.leaves));
  RETURN_IF_ERROR(WriteFile(folder, "leaves.bin", leaves));
  ASSIGN_OR_RETURN(const Manifest manifest, MakeManifest(std::move(layout), written.digests, Sha256Of(leaves),
                                                         request.identity_json, request.scalars_json));
  const std::string manifest_text = WriteManifest(manifest);
  RETURN_IF_ERROR(WriteFile(folder, "manifest.json", std::as_bytes(std::span(manifest_text))));
  RETURN_IF_ERROR(SyncFolder(folder));

  ASSIGN_OR_RETURN(const ArtifactRecord artifact, MakeArtifact(request.identity_json, request.capture_json,
                                                               {MakeShardRecord(shard_name, manifest, manifest_text)}));
  const std::string artifact_text = WriteArtifact(artifact);
  RETURN_IF_ERROR(WriteFile(incoming.path(), "artifact.json", std::as_bytes(std::span(artifact_text))));
  if (::chmod(incoming.path().c_str(), 0755) != 0)
    return Status::FromErrno(errno, "set the mode of the artifact's folder");
  RETURN_IF_ERROR(SyncFolder(incoming.path()));
  RETURN_IF_ERROR(std::move(incoming).MoveTo(request.path));
  const std::string parent = std::filesystem::path(request.path).parent_path().string();
  if (Status status = SyncFolder(parent.empty() ? "." : parent); !status.ok()) {
    // A power cut could undo the move: that is no artifact to rely on. It is complete, so it goes whole.
    std::error_code ignored;
    std::filesystem::remove_all(request.path, ignored);
    return status;
  }
  report.artifact_root = artifact.artifact_root;
  return report;
}

}  // namespace

Result<WriteReport> WriteHostArtifact(WriteRequest request) {
  while (request.path.size() > 1 && request.path.ends_with('/')) request.path.pop_back();
  const std::string doing = StrCat("write artifact ", request.path, ": ");
  Result<WriteReport> report = Write(std::move(request));
  if (report.ok()) return report;
  return std::move(report).status().Prefixed(doing).WithStage("capture");
}

}  // namespace coldsnap
