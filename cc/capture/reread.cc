#include "cc/capture/reread.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace coldsnap {
namespace {

Status Impossible(const std::string& name, std::string_view why) {
  return Status(Code::kRouteUnavailable, StrCat("read ", name, " again past the page cache: ", why))
      .WithStage("file")
      .WithRemedy("capture without preverified, or to a file system on a drive");
}

Status DropFromPageCache(int fd, uint64_t nbytes, const std::string& name) {
  const int error = ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  if (error != 0) return Status::FromErrno(error, StrCat("drop ", name, " from the page cache"));
  ASSIGN_OR_RETURN(const uint64_t resident, ResidentBytes(fd, nbytes, name));
  if (resident == 0) return Status::Ok();
  return Impossible(name, StrCat(resident, " of its ", nbytes, " bytes stay in the page cache"));
}

Status Differs(uint64_t offset, std::string_view what) {
  return Status(Code::kDataLoss, StrCat("compare the blob with what was captured: byte ", offset, " is not the ", what,
                                        " that was written"))
      .WithStage("digest")
      .WithRemedy(Reread::kRemedy);
}

}  // namespace

Result<Reread> Reread::Open(int dir_fd, const std::string& name, uint64_t nbytes) {
  ASSIGN_OR_RETURN(UniqueFd file, OpenFileAt(dir_fd, name));
  if (IsMemoryBacked(file.get())) return Impossible(name, "its file system lives in memory");
  Result<BlobReader> direct = BlobReader::Open(Route::kDirect, dir_fd, name, file.get());
  if (direct.ok()) return Reread(std::move(file), *std::move(direct));
  if (direct.status().code() != Code::kRouteUnavailable) return std::move(direct).status();
  RETURN_IF_ERROR(DropFromPageCache(file.get(), nbytes, name));
  ASSIGN_OR_RETURN(BlobReader buffered, BlobReader::Open(Route::kBuffered, dir_fd, name, file.get()));
  Reread reread(std::move(file), std::move(buffered));
  reread.reason_ = {"direct_refused_probe", direct.status().message()};
  return reread;
}

Status CheckUnhashed(const Layout& layout, const WritePlan& plan, const BlobWindow& window,
                     std::span<const std::byte> bytes) {
  if (window.segments == 0) {
    const auto header = std::as_bytes(std::span(layout.header)).subspan(window.file_offset, window.nbytes);
    const auto [found, expected] = std::mismatch(bytes.begin(), bytes.end(), header.begin());
    if (found == bytes.end()) return Status::Ok();
    return Differs(window.file_offset + static_cast<uint64_t>(found - bytes.begin()), "header");
  }
  uint64_t end = 0;
  const auto zero_to = [&](uint64_t offset) -> Status {
    for (; end < offset; ++end) {
      if (bytes[end] != std::byte{0}) return Differs(window.file_offset + end, "zero");
    }
    return Status::Ok();
  };
  for (const SourceSegment& segment : plan.SegmentsOf(window)) {
    RETURN_IF_ERROR(zero_to(segment.slot_offset));
    end = segment.slot_offset + segment.nbytes;
  }
  return zero_to(window.nbytes);
}

}  // namespace coldsnap
