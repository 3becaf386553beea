#include "cc/sys/files.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/stat.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

#include "cc/base/units.h"

namespace coldsnap {
namespace {

// glibc 2.34, the oldest we install on, knows neither the field nor the system call; the numbers are the kernel's ABI.
constexpr unsigned kStatxDioAlign = 0x2000;       // STATX_DIOALIGN, Linux 6.1
constexpr size_t kStatxDioMemAlignOffset = 0x98;  // struct statx: stx_dio_mem_align, then stx_dio_offset_align
constexpr long kCachestat = 451;                  // __NR_cachestat, Linux 6.5
constexpr long kRamfsMagic = 0x858458f6;          // RAMFS_MAGIC
constexpr long kHugetlbfsMagic = 0x958458f6;      // HUGETLBFS_MAGIC
constexpr long kOverlayMagic = 0x794c7630;        // OVERLAYFS_SUPER_MAGIC

Result<UniqueFd> OpenAt(int dir_fd, const std::string& name, int flags, std::string_view what) {
  int fd = -1;
  do {
    fd = ::openat(dir_fd, name.c_str(), flags | O_CLOEXEC);
  } while (fd < 0 && errno == EINTR);
  if (fd >= 0) return UniqueFd(fd);
  const int error = errno;
  Status status = Status::FromErrno(error, StrCat("open ", what, " ", name));
  if (error == ELOOP)
    return std::move(status).WithRemedy("links inside an artifact are refused; put the file itself there");
  return status;
}

std::string_view KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  return S_ISCHR(mode) || S_ISBLK(mode) ? "a device" : "something else";
}

Result<uint64_t> ResidentByMincore(int fd, uint64_t offset, uint64_t nbytes, std::string_view name) {
  const auto page_bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  constexpr uint64_t kWindow = 256 * kMiB;  // bounds the vector, not the answer
  std::vector<unsigned char> pages(kWindow / page_bytes);
  uint64_t resident = 0;
  for (uint64_t done = 0; done < nbytes; done += kWindow) {
    const uint64_t length = std::min(kWindow, nbytes - done);
    void* map = ::mmap(nullptr, length, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(offset + done));
    if (map == MAP_FAILED)
      return Status::FromErrno(errno, StrCat("map ", length, " bytes of ", name, " to see its residency"));
    const int failed = ::mincore(map, length, pages.data());
    const int error = errno;
    ::munmap(map, length);
    if (failed != 0) return Status::FromErrno(error, StrCat("mincore over ", length, " bytes of ", name));
    for (uint64_t page = 0; page * page_bytes < length; ++page) {
      if ((pages[page] & 1) != 0) resident += std::min(page_bytes, length - page * page_bytes);
    }
  }
  return resident;
}

long FileSystemOf(int fd) {
  struct statfs info{};
  return ::fstatfs(fd, &info) == 0 ? static_cast<long>(info.f_type) : 0;
}

// Whether mincore tells the truth about a file: to others than who owns it or may write to it, it calls every page
// resident.
bool MincoreTells(int fd) {
  struct stat info{};
  if (::geteuid() == 0 || (::fstat(fd, &info) == 0 && info.st_uid == ::geteuid())) return true;
  return ::faccessat(AT_FDCWD, StrCat("/proc/self/fd/", fd).c_str(), W_OK, AT_EACCESS) == 0;
}

}  // namespace

Status FdTraits::Release(int fd) {
  // Never repeated, not even after EINTR: Linux has closed the descriptor by then.
  if (::close(fd) != 0 && errno != EINTR) return Status::FromErrno(errno, StrCat("close descriptor ", fd));
  return Status::Ok();
}

Result<UniqueFd> OpenDirectory(const std::string& path) {
  Result<UniqueFd> fd = OpenAt(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, "directory");
  if (fd.ok()) return fd;
  const Status status = fd.status();
  if (status.native() == ENOENT || status.native() == ENOTDIR) {
    return Status(Code::kRequestInvalid, status.message()).WithNative(Domain::kErrno, status.native());
  }
  return status;
}

Result<UniqueFd> OpenDirectoryAt(int dir_fd, const std::string& name) {
  return OpenAt(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, "directory");
}

Result<UniqueFd> OpenFileAt(int dir_fd, const std::string& name, int extra_flags) {
  // O_NONBLOCK: opening a FIFO must not wait for its writer; it has no effect on a regular file.
  ASSIGN_OR_RETURN(UniqueFd fd, OpenAt(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | extra_flags, "file"));
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) return Status::FromErrno(errno, StrCat("stat ", name));
  if (!S_ISREG(info.st_mode)) {
    return Status(Code::kFormatInvalid,
                  StrCat("open file ", name, ": it is ", KindOf(info.st_mode), ", no regular file"));
  }
  return fd;
}

Result<UniqueFd> ReopenFile(int fd, int flags, std::string_view name) {
  const std::string path = StrCat("/proc/self/fd/", fd);
  for (;;) {
    const int opened = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
    if (opened >= 0) return UniqueFd(opened);
    if (errno != EINTR) return Status::FromErrno(errno, StrCat("open ", name, " again as ", path));
  }
}

Result<uint64_t> FileSize(int fd, std::string_view name) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) return Status::FromErrno(errno, StrCat("stat ", name));
  return static_cast<uint64_t>(info.st_size);
}

Result<bool> SameFile(int a, int b, std::string_view name) {
  struct stat first{};
  struct stat second{};
  if (::fstat(a, &first) != 0 || ::fstat(b, &second) != 0) return Status::FromErrno(errno, StrCat("stat ", name));
  return first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

Status ReadExact(int fd, std::span<std::byte> into, uint64_t offset, std::string_view name) {
  size_t done = 0;
  while (done < into.size()) {
    const ssize_t got = ::pread(fd, into.data() + done, into.size() - done, static_cast<off_t>(offset + done));
    if (got > 0) {
      done += static_cast<size_t>(got);
      continue;
    }
    const int error = errno;  // read before anything else can set it
    if (got < 0 && error == EINTR) continue;
    const std::string doing = StrCat("read ", into.size(), " bytes at offset ", offset, " of ", name);
    if (got < 0) return Status::FromErrno(error, doing);
    return Status(Code::kDataLoss, StrCat(doing, ": the file ends after ", done, " of them"));
  }
  return Status::Ok();
}

Status WriteExact(int fd, std::span<const std::byte> bytes, uint64_t offset, std::string_view name) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t put = ::pwrite(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (put > 0) {
      done += static_cast<size_t>(put);
      continue;
    }
    const int error = put < 0 ? errno : EIO;  // a write of nothing that reports no error would repeat for ever
    if (error == EINTR) continue;
    return Status::FromErrno(error, StrCat("write ", bytes.size(), " bytes at offset ", offset, " of ", name, " (",
                                           done, " of them written)"));
  }
  return Status::Ok();
}

Result<std::string> ReadSmallFile(int dir_fd, const std::string& name, uint64_t max_bytes) {
  ASSIGN_OR_RETURN(const UniqueFd fd, OpenFileAt(dir_fd, name));
  ASSIGN_OR_RETURN(const uint64_t nbytes, FileSize(fd.get(), name));
  if (nbytes > max_bytes) {
    return Status(Code::kFormatInvalid,
                  StrCat("read ", name, ": it has ", nbytes, " bytes, at most ", max_bytes, " are allowed"));
  }
  std::string text(nbytes, '\0');
  RETURN_IF_ERROR(ReadExact(fd.get(), std::as_writable_bytes(std::span(text)), 0, name));
  return text;
}

std::optional<DirectAlignment> DirectAlignmentOf(int fd) {
  alignas(struct statx) std::array<unsigned char, 512> answer{};  // the kernel fills 256 of them
  const long failed = ::syscall(SYS_statx, fd, "", AT_EMPTY_PATH, kStatxDioAlign, answer.data());
  const auto field = [&answer](size_t offset) {
    uint32_t value = 0;
    std::copy_n(answer.data() + offset, sizeof(value), reinterpret_cast<unsigned char*>(&value));
    return value;
  };
  if (failed != 0 || (field(0) & kStatxDioAlign) == 0) return DirectAlignment{};
  const DirectAlignment alignment{.memory_bytes = field(kStatxDioMemAlignOffset),
                                  .offset_bytes = field(kStatxDioMemAlignOffset + 4)};
  // Zero is the kernel's way to say that this file can't do direct I/O.
  if (alignment.memory_bytes == 0 || alignment.offset_bytes == 0) return std::nullopt;
  return alignment;
}

Result<uint64_t> ResidentBytes(int fd, uint64_t offset, uint64_t nbytes, std::string_view name) {
  const auto page_bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::array<uint64_t, 2> range{offset, nbytes};  // struct cachestat_range: off, len
  std::array<uint64_t, 5> counts{};                     // struct cachestat: cached, dirty, writeback, evicted, recent
  if (nbytes == 0) return uint64_t{0};
  // cachestat is asked about the overlay's own cache, which is empty: pages are those of the file below, which mincore
  // sees.
  if (FileSystemOf(fd) == kOverlayMagic) {
    if (MincoreTells(fd)) return ResidentByMincore(fd, offset, nbytes, name);
    return Status(Code::kIo, StrCat("see the residency of ", name,
                                    ": it is in an overlay, where the kernel tells only who may write to the file"));
  }
  if (::syscall(kCachestat, fd, range.data(), counts.data(), 0) == 0) return std::min(nbytes, counts[0] * page_bytes);
  return ResidentByMincore(fd, offset, nbytes, name);  // an older kernel, hugetlbfs, or a seccomp filter
}

Result<uint64_t> ResidentBytes(int fd, uint64_t file_bytes, std::string_view name) {
  return ResidentBytes(fd, 0, file_bytes, name);
}

void ExpectJumps(int fd, bool jumps) {
  static_cast<void>(::posix_fadvise(fd, 0, 0, jumps ? POSIX_FADV_RANDOM : POSIX_FADV_NORMAL));
}

bool IsMemoryBacked(int fd) {
  const long type = FileSystemOf(fd);
  return type == TMPFS_MAGIC || type == kRamfsMagic || type == kHugetlbfsMagic;
}

}  // namespace coldsnap
