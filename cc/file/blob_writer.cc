#include "cc/file/blob_writer.h"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <optional>
#include <utility>

#include "cc/base/units.h"
#include "cc/sys/memory.h"

namespace coldsnap {
namespace {

// Of one thread, on its way to the drive. Enough for a drive to work on while the thread writes the next piece, little
// against what a machine may keep dirty (10 % of its memory by default).
constexpr uint64_t kMostDirtyBytes = 32 * kMiB;

Status DirectRefused(const std::string& name, std::string_view why, const Status& cause = {}) {
  return Status(Code::kRouteUnavailable, StrCat("write ", name, " with direct I/O: ", why))
      .WithNative(cause.domain(), cause.native())
      .WithStage("file")
      .WithRemedy("use backend buffered or auto, or name a path on a file system with direct I/O");
}

// Other errors are the machine's: a full drive is full for every route.
bool RefusesDirect(const Status& status) { return status.native() == EINVAL || status.native() == EOPNOTSUPP; }

}  // namespace

Result<BlobWriter> BlobWriter::Create(int dir_fd, const std::string& name, uint64_t nbytes) {
  ASSIGN_OR_RETURN(NewFile file, NewFile::Create(dir_fd, name));
  RETURN_IF_ERROR(file.Reserve(nbytes));
  return BlobWriter(std::move(file));
}

Result<BlobWriter> BlobWriter::Reopen(int dir_fd, const std::string& name, uint64_t nbytes) {
  ASSIGN_OR_RETURN(NewFile file, NewFile::Reopen(dir_fd, name, nbytes));
  return BlobWriter(std::move(file));
}

// Opened once more rather than created so: some file systems create the file and then refuse the flag.
Status BlobWriter::UseDirect(int dir_fd) {
  const std::string& name = file_.name();
  UniqueFd direct(
      Uninterrupted([&] { return ::openat(dir_fd, name.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC | O_NOFOLLOW); }));
  if (!direct) {
    const Status why = Status::FromErrno(errno, StrCat("open ", name, " for direct writes"));
    return RefusesDirect(why) ? DirectRefused(name, why.message(), why) : why;
  }
  ASSIGN_OR_RETURN(const bool same, SameFile(direct.get(), file_.fd(), name));
  if (!same) return Status(Code::kDataLoss, StrCat("open ", name, " for direct writes: it was replaced meanwhile"));
  const std::optional<DirectAlignment> alignment = DirectAlignmentOf(direct.get());
  if (!alignment) return DirectRefused(name, "the file system says that this file can't (statx: alignment 0)");
  const uint64_t needed = std::bit_ceil(std::max(alignment->memory_bytes, alignment->offset_bytes));
  if (needed > kLeafBytes) {
    return DirectRefused(name, StrCat("it needs an alignment of ", needed, " bytes, groups have ", kLeafBytes));
  }
  ASSIGN_OR_RETURN(const Mapping zeros, MapTouched(kLeafBytes));
  // The header's place: every blob has it, and it is written again.
  if (Status trial = WriteExact(direct.get(), BytesOf(zeros).first(kLeafBytes), 0, name); !trial.ok()) {
    if (!RefusesDirect(trial)) return trial;
    return DirectRefused(name, StrCat("the file opens, but a trial write fails: ", trial.message()), trial);
  }
  direct_ = std::move(direct);
  return Status::Ok();
}

Status BlobWriter::Hand::Write(std::span<const std::byte> bytes, uint64_t offset) {
  if (writer_.direct_) return WriteExact(writer_.direct_.get(), bytes, offset, writer_.file_.name());
  RETURN_IF_ERROR(writer_.file_.Write(bytes, offset));
  RETURN_IF_ERROR(writer_.WriteBack(offset, bytes.size(), false));
  dirty_.push_back({.offset = offset, .nbytes = bytes.size()});
  dirty_bytes_ += bytes.size();
  while (dirty_bytes_ > kMostDirtyBytes) {
    const Range oldest = dirty_.front();
    dirty_.pop_front();
    dirty_bytes_ -= oldest.nbytes;
    RETURN_IF_ERROR(writer_.WriteBack(oldest.offset, oldest.nbytes, true));
  }
  return Status::Ok();
}

// The clean pages stay: they cost nothing that the kernel can't take back, and the next start reads them. An error that
// is reported here is not reported again by fsync, so only what says that the call is not to be had is no failure.
Status BlobWriter::WriteBack(uint64_t offset, uint64_t nbytes, bool wait) const {
  constexpr unsigned kStart = SYNC_FILE_RANGE_WRITE;
  constexpr unsigned kWait = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  const int failed = Uninterrupted([&] {
    return ::sync_file_range(file_.fd(), static_cast<off_t>(offset), static_cast<off_t>(nbytes), wait ? kWait : kStart);
  });
  if (failed == 0) return Status::Ok();
  const int error = errno;
  if (error == ENOSYS || error == EINVAL || error == EOPNOTSUPP || error == EPERM || error == ESPIPE) {
    return Status::Ok();
  }
  return Status::FromErrno(error, StrCat("write back ", nbytes, " bytes at offset ", offset, " of ", file_.name()));
}

Status BlobWriter::Close() && {
  RETURN_IF_ERROR(std::move(direct_).Close().Prefixed(StrCat("close ", file_.name(), ": ")));
  return std::move(file_).Close();
}

}  // namespace coldsnap
