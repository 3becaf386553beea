#include "cc/file/blob_reader.h"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "cc/sys/memory.h"

namespace coldsnap {
namespace {

Status DirectRefused(const std::string& name, std::string_view why, const Status& cause = {}) {
  return Status(Code::kRouteUnavailable, StrCat("read ", name, " with direct I/O: ", why))
      .WithNative(cause.domain(), cause.native())
      .WithStage("file")
      .WithRemedy("use backend buffered or auto, or put the artifact on a file system with direct I/O");
}

}  // namespace

Result<BlobReader> BlobReader::Open(Route route, int dir_fd, const std::string& name, int blob_fd) {
  BlobReader reader(route, name, blob_fd);
  if (route == Route::kBuffered) return reader;

  Result<UniqueFd> direct = OpenFileAt(dir_fd, name, O_DIRECT);
  if (!direct.ok()) return DirectRefused(name, direct.status().message(), direct.status());
  reader.direct_ = *std::move(direct);
  reader.fd_ = reader.direct_.get();
  ASSIGN_OR_RETURN(const bool same, SameFile(reader.fd_, blob_fd, name));
  if (!same)
    return Status(Code::kDataLoss, StrCat("open ", name, " for direct reads: it was replaced since it was checked"));

  const std::optional<DirectAlignment> alignment = DirectAlignmentOf(reader.fd_);
  if (!alignment) return DirectRefused(name, "the file system says that this file can't (statx: alignment 0)");
  reader.alignment_bytes_ = std::bit_ceil(std::max(alignment->memory_bytes, alignment->offset_bytes));
  if (reader.alignment_bytes_ > kLeafBytes) {
    return DirectRefused(
        name, StrCat("it needs an alignment of ", reader.alignment_bytes_, " bytes, extents have ", kLeafBytes));
  }
  RETURN_IF_ERROR(reader.ProveDirect(blob_fd));
  return reader;
}

// One real read of the first 64 KiB, which every blob has, compared with what the buffered descriptor gives.
Status BlobReader::ProveDirect(int blob_fd) {
  ASSIGN_OR_RETURN(const Mapping memory, MapTouched(kLeafBytes));
  const std::span<std::byte> first = BytesOf(memory).first(kLeafBytes);
  if (const Status status = ReadExact(fd_, first, 0, name_); !status.ok()) {
    return DirectRefused(name_, StrCat("the file opens, but a trial read fails: ", status.message()), status);
  }
  std::vector<std::byte> expected(kLeafBytes);
  RETURN_IF_ERROR(ReadExact(blob_fd, expected, 0, name_));
  if (!std::equal(first.begin(), first.end(), expected.begin())) {
    return Status(Code::kDataLoss, StrCat("read ", name_, " with direct I/O: the first ", kLeafBytes,
                                          " bytes differ from what the page cache has"))
        .WithStage("file");
  }
  return Status::Ok();
}

Status BlobReader::Read(std::span<std::byte> into, uint64_t offset) const {
  return ReadExact(fd_, into, offset, name_);
}

}  // namespace coldsnap
