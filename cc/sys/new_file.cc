#include "cc/sys/new_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <optional>

namespace coldsnap {
namespace {

// What an ordinary user may still write to the file system; none where it can't be asked, and where it doesn't count,
// as ramfs does not.
std::optional<uint64_t> AvailableBytes(int fd) {
  struct statvfs info{};
  if (Uninterrupted([&] { return ::fstatvfs(fd, &info); }) != 0 || info.f_blocks == 0) return std::nullopt;
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

Status NoRoom(int error, uint64_t nbytes, const std::string& name, std::optional<uint64_t> available) {
  const std::string has = available ? StrCat(" (the file system has ", *available, " bytes available)") : "";
  return Status::FromErrno(error, StrCat("reserve ", nbytes, " bytes for ", name, has))
      .WithRemedy("make room there or raise the quota, or name a path on another file system");
}

}  // namespace

Status SyncFolder(int dir_fd, const std::string& what) {
  if (Uninterrupted([&] { return ::fsync(dir_fd); }) == 0) return Status::Ok();
  return Status::FromErrno(errno, StrCat("sync folder ", what));
}

Result<NewFile> NewFile::Create(int dir_fd, const std::string& name) {
  const int fd = Uninterrupted(
      [&] { return ::openat(dir_fd, name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600); });
  if (fd < 0) return Status::FromErrno(errno, StrCat("create ", name));
  return NewFile(UniqueFd(fd), name);
}

Result<NewFile> NewFile::Reopen(int dir_fd, const std::string& name, uint64_t nbytes) {
  NewFile file(UniqueFd(Uninterrupted(
                   [&] { return ::openat(dir_fd, name.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); })),
               name);
  if (!file.fd_) return Status::FromErrno(errno, StrCat("open ", name, " again"));
  struct stat info{};
  if (::fstat(file.fd(), &info) != 0) return Status::FromErrno(errno, StrCat("stat ", name));
  if (S_ISREG(info.st_mode) && info.st_nlink == 1 && static_cast<uint64_t>(info.st_size) == nbytes) return file;
  return Status(Code::kIo, StrCat("open ", name, " again: it has mode ", info.st_mode, ", ", info.st_nlink,
                                  " links and ", info.st_size, " bytes, not ", nbytes));
}

Status NewFile::Reserve(uint64_t nbytes) {
  if (nbytes == 0 || Uninterrupted([&] { return ::fallocate(fd_.get(), 0, 0, static_cast<off_t>(nbytes)); }) == 0) {
    return Status::Ok();
  }
  const int error = errno;
  if (error == EOPNOTSUPP || error == EINVAL || error == ENOSYS) return ReserveBySize(nbytes);
  return NoRoom(error, nbytes, name_, AvailableBytes(fd_.get()));
}

Status NewFile::ReserveBySize(uint64_t nbytes) {
  const std::optional<uint64_t> available = AvailableBytes(fd_.get());
  if (available && *available < nbytes) return NoRoom(ENOSPC, nbytes, name_, available);
  if (Uninterrupted([&] { return ::ftruncate(fd_.get(), static_cast<off_t>(nbytes)); }) == 0) return Status::Ok();
  return NoRoom(errno, nbytes, name_, available);
}

Status NewFile::Sync() const {
  if (::fchmod(fd_.get(), 0444) != 0) return Status::FromErrno(errno, StrCat("set the mode of ", name_));
  // fsync rather than fdatasync: the mode has to be there after a power cut, too.
  if (Uninterrupted([&] { return ::fsync(fd_.get()); }) == 0) return Status::Ok();
  return Status::FromErrno(errno, StrCat("sync ", name_));
}

Status NewFile::Close() && { return std::move(fd_).Close().Prefixed(StrCat("close ", name_, ": ")); }

Status WriteNewFile(int dir_fd, const std::string& name, std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(NewFile file, NewFile::Create(dir_fd, name));
  RETURN_IF_ERROR(file.Write(bytes, 0));
  RETURN_IF_ERROR(file.Sync());
  return std::move(file).Close();
}

}  // namespace coldsnap
