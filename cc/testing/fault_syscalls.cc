// Stand-ins for the system calls of the core: `__wrap_X` is called wherever the program says X, `__real_X` is X.
//
// glibc's checked forms (__openat_2, __open_2, __pread_chk) are the same calls in a build with _FORTIFY_SOURCE.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <system_error>

#include "cc/testing/fault.h"

// The names and types are the linker's and the C library's, not ours.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
namespace {

using coldsnap::CountCall;
using coldsnap::Fault;
using coldsnap::FaultKind;
using coldsnap::FaultPoint;

// The call, or the fault that is due in its place, in the usual form: -1 and errno.
template <typename Call>
auto CallOr(FaultPoint point, Call call) -> decltype(call()) {
  const std::optional<Fault> fault = CountCall(point);
  if (!fault) return call();
  if (fault->kind == FaultKind::kErrorAfter) static_cast<void>(call());
  errno = fault->error;
  return -1;
}

// How many of `nbytes` a short transfer moves. Under O_DIRECT the kernel stops at whole blocks, so that the rest can
// be asked for; a single byte there would be a fault that no kernel makes.
size_t Shortened(const Fault& fault, int fd, size_t nbytes) {
  if (fault.kind == FaultKind::kNothing || nbytes == 0) return 0;
  const size_t wanted = fault.kind == FaultKind::kOneByte ? 1 : (nbytes + 1) / 2;
  if ((::fcntl(fd, F_GETFL) & O_DIRECT) == 0) return wanted;
  constexpr size_t kBlock = 4096;
  const size_t whole = (wanted + kBlock - 1) / kBlock * kBlock;
  return whole < nbytes ? whole : nbytes;
}

// `into`: where a read puts its bytes; null for a write.
template <typename Call>
ssize_t TransferOr(FaultPoint point, int fd, void* into, size_t nbytes, Call call) {
  const std::optional<Fault> fault = CountCall(point);
  if (!fault) return call(nbytes);
  if (fault->kind == FaultKind::kFlipped) {
    const ssize_t got = call(nbytes);
    if (got > 0 && into != nullptr) *static_cast<unsigned char*>(into) ^= 1U;
    return got;
  }
  if (fault->kind != FaultKind::kError && fault->kind != FaultKind::kErrorAfter) {
    const size_t moved = Shortened(*fault, fd, nbytes);
    return moved == 0 ? 0 : call(moved);
  }
  if (fault->kind == FaultKind::kErrorAfter) static_cast<void>(call(nbytes));
  errno = fault->error;
  return -1;
}

}  // namespace

extern "C" {

int __real_openat(int dir_fd, const char* path, int flags, mode_t mode);
int __wrap_openat(int dir_fd, const char* path, int flags, mode_t mode) {
  return CallOr(FaultPoint::kOpenat, [&] { return __real_openat(dir_fd, path, flags, mode); });
}
int __wrap___openat_2(int dir_fd, const char* path, int flags) { return __wrap_openat(dir_fd, path, flags, 0); }

int __real_open(const char* path, int flags, mode_t mode);
int __wrap_open(const char* path, int flags, mode_t mode) {
  return CallOr(FaultPoint::kOpen, [&] { return __real_open(path, flags, mode); });
}
int __wrap___open_2(const char* path, int flags) { return __wrap_open(path, flags, 0); }

int __real_fstat(int fd, struct stat* info);
int __wrap_fstat(int fd, struct stat* info) {
  return CallOr(FaultPoint::kFstat, [&] { return __real_fstat(fd, info); });
}

int __real_fstatfs(int fd, struct statfs* info);
int __wrap_fstatfs(int fd, struct statfs* info) {
  return CallOr(FaultPoint::kFstatfs, [&] { return __real_fstatfs(fd, info); });
}

ssize_t __real_pread(int fd, void* into, size_t nbytes, off_t offset);
ssize_t __wrap_pread(int fd, void* into, size_t nbytes, off_t offset) {
  return TransferOr(FaultPoint::kPread, fd, into, nbytes,
                    [&](size_t some) { return __real_pread(fd, into, some, offset); });
}
ssize_t __wrap___pread_chk(int fd, void* into, size_t nbytes, off_t offset, size_t /*room*/) {
  return __wrap_pread(fd, into, nbytes, offset);
}

ssize_t __real_pwrite(int fd, const void* from, size_t nbytes, off_t offset);
ssize_t __wrap_pwrite(int fd, const void* from, size_t nbytes, off_t offset) {
  return TransferOr(FaultPoint::kPwrite, fd, nullptr, nbytes,
                    [&](size_t some) { return __real_pwrite(fd, from, some, offset); });
}

// The core asks for two calls by number. Six arguments are always handed on: the kernel looks at those it knows.
long __real_syscall(long number, ...);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f) {
  constexpr long kCachestat = 451;
  const auto real = [&] { return __real_syscall(number, a, b, c, d, e, f); };
  if (number == SYS_statx) return CallOr(FaultPoint::kStatx, real);
  if (number == kCachestat) return CallOr(FaultPoint::kCachestat, real);
  return real();
}

void* __real_mmap(void* address, size_t nbytes, int protection, int flags, int fd, off_t offset);
void* __wrap_mmap(void* address, size_t nbytes, int protection, int flags, int fd, off_t offset) {
  if (const std::optional<Fault> fault = CountCall(FaultPoint::kMmap)) {
    errno = fault->error;
    return MAP_FAILED;
  }
  void* const mapped = __real_mmap(address, nbytes, protection, flags, fd, offset);
  if (mapped != MAP_FAILED) coldsnap::AddMappedBytes(static_cast<int64_t>(nbytes));
  return mapped;
}

int __real_munmap(void* address, size_t nbytes);
int __wrap_munmap(void* address, size_t nbytes) {
  return CallOr(FaultPoint::kMunmap, [&] {
    const int failed = __real_munmap(address, nbytes);
    if (failed == 0) coldsnap::AddMappedBytes(-static_cast<int64_t>(nbytes));
    return failed;
  });
}

int __real_madvise(void* address, size_t nbytes, int advice);
int __wrap_madvise(void* address, size_t nbytes, int advice) {
  return CallOr(FaultPoint::kMadvise, [&] { return __real_madvise(address, nbytes, advice); });
}

int __real_mincore(void* address, size_t nbytes, unsigned char* pages);
int __wrap_mincore(void* address, size_t nbytes, unsigned char* pages) {
  return CallOr(FaultPoint::kMincore, [&] { return __real_mincore(address, nbytes, pages); });
}

int __real_access(const char* path, int mode);
int __wrap_access(const char* path, int mode) {
  return CallOr(FaultPoint::kAccess, [&] { return __real_access(path, mode); });
}

int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation) {
  return CallOr(FaultPoint::kFlock, [&] { return __real_flock(fd, operation); });
}

int __real_mkdir(const char* path, mode_t mode);
int __wrap_mkdir(const char* path, mode_t mode) {
  return CallOr(FaultPoint::kMkdir, [&] { return __real_mkdir(path, mode); });
}

int __real_fchmod(int fd, mode_t mode);
int __wrap_fchmod(int fd, mode_t mode) {
  return CallOr(FaultPoint::kFchmod, [&] { return __real_fchmod(fd, mode); });
}

int __real_fallocate(int fd, int mode, off_t offset, off_t nbytes);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t nbytes) {
  return CallOr(FaultPoint::kFallocate, [&] { return __real_fallocate(fd, mode, offset, nbytes); });
}

int __real_fstatvfs(int fd, struct statvfs* info);
int __wrap_fstatvfs(int fd, struct statvfs* info) {
  return CallOr(FaultPoint::kFstatvfs, [&] { return __real_fstatvfs(fd, info); });
}

int __real_ftruncate(int fd, off_t nbytes);
int __wrap_ftruncate(int fd, off_t nbytes) {
  return CallOr(FaultPoint::kFtruncate, [&] { return __real_ftruncate(fd, nbytes); });
}

int __real_sync_file_range(int fd, off_t offset, off_t nbytes, unsigned flags);
int __wrap_sync_file_range(int fd, off_t offset, off_t nbytes, unsigned flags) {
  return CallOr(FaultPoint::kSyncFileRange, [&] { return __real_sync_file_range(fd, offset, nbytes, flags); });
}

int __real_fsync(int fd);
int __wrap_fsync(int fd) {
  return CallOr(FaultPoint::kFsync, [&] { return __real_fsync(fd); });
}

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd) {
  return CallOr(FaultPoint::kFdatasync, [&] { return __real_fdatasync(fd); });
}

int __real_unlinkat(int dir_fd, const char* path, int flags);
int __wrap_unlinkat(int dir_fd, const char* path, int flags) {
  return CallOr(FaultPoint::kUnlinkat, [&] { return __real_unlinkat(dir_fd, path, flags); });
}

int __real_renameat2(int from_dir, const char* from, int to_dir, const char* to, unsigned flags);
int __wrap_renameat2(int from_dir, const char* from, int to_dir, const char* to, unsigned flags) {
  return CallOr(FaultPoint::kRenameat2, [&] { return __real_renameat2(from_dir, from, to_dir, to, flags); });
}

int __real_close(int fd);
int __wrap_close(int fd) {
  return CallOr(FaultPoint::kClose, [&] { return __real_close(fd); });
}

// std::thread's constructor calls this member of libstdc++, which calls pthread_create in a library where --wrap has
// no effect and throws what we throw. `state` is a unique_ptr that travels by reference and stays the caller's.
#define COLDSNAP_START_THREAD(prefix) \
  prefix##_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE
void COLDSNAP_START_THREAD(__real_)(void* thread, void* state, void (*depend)());
void COLDSNAP_START_THREAD(__wrap_)(void* thread, void* state, void (*depend)()) {
  if (const std::optional<Fault> fault = CountCall(FaultPoint::kStartThread)) {
    throw std::system_error(fault->error, std::generic_category());
  }
  COLDSNAP_START_THREAD(__real_)(thread, state, depend);
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
