// Files as the data path needs them: opened without following links, read and written exactly, and honest about what
// the file system does underneath (direct I/O, residency in the page cache).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cc/base/status.h"
#include "cc/sys/owned.h"

namespace coldsnap {

struct FdTraits {
  using Handle = int;
  static constexpr int kNone = -1;
  static Status Release(int fd);
};
using UniqueFd = Owned<FdTraits>;

// The directory `path`, links on the way followed. A path that is not there or no directory is kRequestInvalid.
Result<UniqueFd> OpenDirectory(const std::string& path);
// The directory `name` directly under `dir_fd`; a link is refused.
Result<UniqueFd> OpenDirectoryAt(int dir_fd, const std::string& name);

// The regular file `name` directly under `dir_fd`, for reading with `extra_flags` (O_DIRECT); a link or anything else
// that is not a regular file is refused.
Result<UniqueFd> OpenFileAt(int dir_fd, const std::string& name, int extra_flags = 0);

// The very file that `fd` has open, once more, for reading with `flags` and none else: cuFile refuses descriptors that
// were opened with O_NOFOLLOW or O_NONBLOCK (error 5019). Needs /proc.
Result<UniqueFd> ReopenFile(int fd, int flags, std::string_view name);

Result<uint64_t> FileSize(int fd, std::string_view name);
// True when both descriptors are the same file (device and inode).
Result<bool> SameFile(int a, int b, std::string_view name);

// All of `into`, from `offset`. A file that ends before is kDataLoss.
Status ReadExact(int fd, std::span<std::byte> into, uint64_t offset, std::string_view name);
// All of `bytes`, at `offset`; every short write is continued.
Status WriteExact(int fd, std::span<const std::byte> bytes, uint64_t offset, std::string_view name);
// The whole of a small file: at most `max_bytes`, else kFormatInvalid.
Result<std::string> ReadSmallFile(int dir_fd, const std::string& name, uint64_t max_bytes);

// What the file system says about direct I/O on this file.
struct DirectAlignment {
  uint64_t memory_bytes = 4096;
  uint64_t offset_bytes = 4096;
};
// Nothing when it says that direct I/O can't be done. Kernels before 6.1 say nothing at all: then 4096 for both, and
// only a read can tell.
std::optional<DirectAlignment> DirectAlignmentOf(int fd);

// How many of the `nbytes` bytes from `offset` on, a multiple of the page size, are in the page cache; by cachestat,
// where the kernel has it and the file system is no overlay, else by mincore. The range lies within the file.
Result<uint64_t> ResidentBytes(int fd, uint64_t offset, uint64_t nbytes, std::string_view name);
// The same for a whole file.
Result<uint64_t> ResidentBytes(int fd, uint64_t file_bytes, std::string_view name);

// Advice: whether reads of this descriptor will jump, so that the kernel need not read ahead.
void ExpectJumps(int fd, bool jumps);

// True for tmpfs, ramfs and hugetlbfs: every read there comes from memory, a "direct" one too.
bool IsMemoryBacked(int fd);

}  // namespace coldsnap
