#include "tests/power/recorder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "cc/base/check.h"
#include "cc/base/units.h"

namespace coldsnap {
namespace {

using Kind = Change::Kind;
using FileNumber = std::pair<dev_t, ino_t>;

struct Recording {
  History history;
  std::map<FileNumber, NodeId> nodes;
};

std::mutex mutex;                    // NOLINT: what the linker puts in between has no other place
std::optional<Recording> recording;  // guarded by it

FileNumber NumberOf(const struct stat& info) { return {info.st_dev, info.st_ino}; }

std::optional<NodeId> NodeAt(int dir_fd, const char* path) {
  struct stat info{};
  if (::fstatat(dir_fd, path, &info, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
  const auto found = recording->nodes.find(NumberOf(info));
  if (found == recording->nodes.end()) return std::nullopt;
  return found->second;
}

std::optional<NodeId> NodeOf(int fd) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) return std::nullopt;
  const auto found = recording->nodes.find(NumberOf(info));
  if (found == recording->nodes.end()) return std::nullopt;
  return found->second;
}

// The folder that a path leads to the entry of, if that folder is recorded, and the entry's name.
struct Place {
  NodeId folder;
  std::string name;
};
std::optional<Place> PlaceOf(int dir_fd, std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  const std::string parent(slash == std::string_view::npos ? "." : path.substr(0, std::max<size_t>(slash, 1)));
  const std::optional<NodeId> folder = NodeAt(dir_fd, parent.c_str());
  if (!folder) return std::nullopt;
  return Place{*folder, std::string(slash == std::string_view::npos ? path : path.substr(slash + 1))};
}

void Add(Change change) { recording->history.changes.push_back(std::move(change)); }

void AddMade(int dir_fd, const char* path, bool is_folder) {
  const std::optional<Place> place = PlaceOf(dir_fd, path);
  struct stat info{};
  if (!place || ::fstatat(dir_fd, path, &info, AT_SYMLINK_NOFOLLOW) != 0) return;
  const NodeId node = recording->history.nodes.size();
  recording->history.nodes.push_back({.is_folder = is_folder, .mode = info.st_mode & 07777U});
  recording->nodes[NumberOf(info)] = node;  // a number that was freed comes again
  Add({.kind = Kind::kEntry, .node = node, .folder = place->folder, .name = place->name});
}

void AddRemoved(const std::optional<Place>& place, std::optional<NodeId> node) {
  if (place && node) Add({.kind = Kind::kRemove, .node = *node, .folder = place->folder, .name = place->name});
}

void AddWrite(int fd, std::string_view bytes, uint64_t offset) {
  const std::optional<NodeId> node = NodeOf(fd);
  if (!node || bytes.empty()) return;
  Add({.kind = Kind::kGrow, .node = *node, .nbytes = offset + bytes.size()});
  while (!bytes.empty()) {
    const size_t part = std::min<size_t>(bytes.size(), kLeafBytes - offset % kLeafBytes);
    Add({.kind = Kind::kBytes, .node = *node, .offset = offset, .bytes = std::string(bytes.substr(0, part))});
    bytes.remove_prefix(part);
    offset += part;
  }
}

std::string_view TextAt(const void* bytes, size_t nbytes) { return {static_cast<const char*>(bytes), nbytes}; }

// Makes the call and, where it succeeded and a recording is on, notes it; errno stays the call's.
template <typename Call, typename Note>
auto Noted(Call call, Note note) {
  const std::lock_guard<std::mutex> one_at_a_time(mutex);
  const auto result = call();
  if (!recording || result < 0) return result;
  const int error = errno;
  note(result);
  errno = error;
  return result;
}

// `call` opens the path; whether it made the file is known from before.
template <typename Call>
int Opened(int dir_fd, const char* path, int flags, Call call) {
  const std::lock_guard<std::mutex> one_at_a_time(mutex);
  struct stat info{};
  const int error = errno;
  const bool was_there = !recording || (flags & O_CREAT) == 0 || ::fstatat(dir_fd, path, &info, 0) == 0;
  errno = error;
  const int fd = call();
  if (fd < 0 || !recording) return fd;
  if (!was_there) AddMade(dir_fd, path, false);
  if ((flags & O_TRUNC) != 0) {
    if (const std::optional<NodeId> node = NodeOf(fd)) Add({.kind = Kind::kCut, .node = *node, .nbytes = 0});
  }
  errno = error;
  return fd;
}

template <typename Call>
int Moved(int from_dir, const char* from, int to_dir, const char* to, Call call) {
  const std::lock_guard<std::mutex> one_at_a_time(mutex);
  const int error = errno;
  const std::optional<NodeId> node = recording ? NodeAt(from_dir, from) : std::nullopt;
  errno = error;
  const int failed = call();
  if (failed != 0 || !node) return failed;
  const std::optional<Place> source = PlaceOf(from_dir, from);
  const std::optional<Place> target = PlaceOf(to_dir, to);
  COLDSNAP_CHECK(source && target);  // nothing leaves the recorded folder
  Add({.kind = Kind::kMove,
       .node = *node,
       .folder = source->folder,
       .name = source->name,
       .to_folder = target->folder,
       .to_name = target->name});
  errno = error;
  return 0;
}

template <typename Call>
int Removed(int dir_fd, const char* path, Call call) {
  const std::lock_guard<std::mutex> one_at_a_time(mutex);
  const int error = errno;
  const std::optional<Place> place = recording ? PlaceOf(dir_fd, path) : std::nullopt;
  const std::optional<NodeId> node = recording ? NodeAt(dir_fd, path) : std::nullopt;
  errno = error;
  const int failed = call();
  if (failed == 0 && recording) AddRemoved(place, node);
  return failed;
}

void AddOf(int fd, Change change) {
  const std::optional<NodeId> node = NodeOf(fd);
  if (!node) return;
  change.node = *node;
  Add(std::move(change));
}

}  // namespace

Recorder::Recorder(const std::string& folder) {
  struct stat info{};
  COLDSNAP_CHECK(::stat(folder.c_str(), &info) == 0);
  const std::lock_guard<std::mutex> one_at_a_time(mutex);
  COLDSNAP_CHECK(!recording);
  recording.emplace();
  recording->nodes[NumberOf(info)] = kTop;
  recording->history.nodes.push_back({.is_folder = true, .mode = info.st_mode & 07777U});
}

Recorder::~Recorder() {
  const std::lock_guard<std::mutex> one_at_a_time(mutex);
  recording.reset();
}

History Recorder::Finish() && {
  const std::lock_guard<std::mutex> one_at_a_time(mutex);
  return std::move(recording->history);
}

}  // namespace coldsnap

// The names and types are the linker's and the C library's, not ours.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" {

using coldsnap::Change;
using coldsnap::Noted;

int __real_openat(int dir_fd, const char* path, int flags, mode_t mode);
int __wrap_openat(int dir_fd, const char* path, int flags, mode_t mode) {
  return coldsnap::Opened(dir_fd, path, flags, [&] { return __real_openat(dir_fd, path, flags, mode); });
}
int __wrap___openat_2(int dir_fd, const char* path, int flags) { return __wrap_openat(dir_fd, path, flags, 0); }
int __wrap_open(const char* path, int flags, mode_t mode) { return __wrap_openat(AT_FDCWD, path, flags, mode); }
int __wrap___open_2(const char* path, int flags) { return __wrap_openat(AT_FDCWD, path, flags, 0); }

int __real_mkdirat(int dir_fd, const char* path, mode_t mode);
int __wrap_mkdirat(int dir_fd, const char* path, mode_t mode) {
  return Noted([&] { return __real_mkdirat(dir_fd, path, mode); }, [&](int) { coldsnap::AddMade(dir_fd, path, true); });
}
int __wrap_mkdir(const char* path, mode_t mode) { return __wrap_mkdirat(AT_FDCWD, path, mode); }

ssize_t __real_pwrite(int fd, const void* from, size_t nbytes, off_t offset);
ssize_t __wrap_pwrite(int fd, const void* from, size_t nbytes, off_t offset) {
  return Noted([&] { return __real_pwrite(fd, from, nbytes, offset); },
               [&](ssize_t put) {
                 coldsnap::AddWrite(fd, coldsnap::TextAt(from, static_cast<size_t>(put)),
                                    static_cast<uint64_t>(offset));
               });
}

ssize_t __real_pwritev(int fd, const struct iovec* parts, int count, off_t offset);
ssize_t __wrap_pwritev(int fd, const struct iovec* parts, int count, off_t offset) {
  return Noted([&] { return __real_pwritev(fd, parts, count, offset); },
               [&](ssize_t put) {
                 auto left = static_cast<size_t>(put);
                 auto at = static_cast<uint64_t>(offset);
                 for (int i = 0; i < count && left > 0; ++i) {
                   const size_t part = std::min(left, parts[i].iov_len);
                   coldsnap::AddWrite(fd, coldsnap::TextAt(parts[i].iov_base, part), at);
                   left -= part;
                   at += part;
                 }
               });
}

ssize_t __real_write(int fd, const void* from, size_t nbytes);
ssize_t __wrap_write(int fd, const void* from, size_t nbytes) {
  return Noted([&] { return __real_write(fd, from, nbytes); },
               [&](ssize_t put) {
                 const off_t end = ::lseek(fd, 0, SEEK_CUR);  // fails for what is no file, which is not recorded
                 if (end >= put) {
                   coldsnap::AddWrite(fd, coldsnap::TextAt(from, static_cast<size_t>(put)),
                                      static_cast<uint64_t>(end - put));
                 }
               });
}

// Without flags both make the file as long as that, and zeros where nothing was written.
int __real_fallocate(int fd, int mode, off_t offset, off_t nbytes);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t nbytes) {
  return Noted([&] { return __real_fallocate(fd, mode, offset, nbytes); },
               [&](int) {
                 COLDSNAP_CHECK(mode == 0);
                 coldsnap::AddOf(fd, {.kind = Change::Kind::kGrow, .nbytes = static_cast<uint64_t>(offset + nbytes)});
               });
}
int __real_posix_fallocate(int fd, off_t offset, off_t nbytes);
int __wrap_posix_fallocate(int fd, off_t offset, off_t nbytes) {
  int error = 0;
  Noted([&] { return (error = __real_posix_fallocate(fd, offset, nbytes)) == 0 ? 0 : -1; },
        [&](int) {
          coldsnap::AddOf(fd, {.kind = Change::Kind::kGrow, .nbytes = static_cast<uint64_t>(offset + nbytes)});
        });
  return error;
}

int __real_ftruncate(int fd, off_t nbytes);
int __wrap_ftruncate(int fd, off_t nbytes) {
  return Noted(
      [&] { return __real_ftruncate(fd, nbytes); },
      [&](int) { coldsnap::AddOf(fd, {.kind = Change::Kind::kCut, .nbytes = static_cast<uint64_t>(nbytes)}); });
}

int __real_fchmod(int fd, mode_t mode);
int __wrap_fchmod(int fd, mode_t mode) {
  return Noted([&] { return __real_fchmod(fd, mode); },
               [&](int) { coldsnap::AddOf(fd, {.kind = Change::Kind::kMode, .mode = mode}); });
}

int __real_fsync(int fd);
int __wrap_fsync(int fd) {
  return Noted([&] { return __real_fsync(fd); }, [&](int) { coldsnap::AddOf(fd, {.kind = Change::Kind::kSync}); });
}

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd) {
  return Noted([&] { return __real_fdatasync(fd); },
               [&](int) { coldsnap::AddOf(fd, {.kind = Change::Kind::kSyncData}); });
}

int __real_renameat2(int from_dir, const char* from, int to_dir, const char* to, unsigned flags);
int __wrap_renameat2(int from_dir, const char* from, int to_dir, const char* to, unsigned flags) {
  return coldsnap::Moved(from_dir, from, to_dir, to,
                         [&] { return __real_renameat2(from_dir, from, to_dir, to, flags); });
}
int __wrap_renameat(int from_dir, const char* from, int to_dir, const char* to) {
  return __wrap_renameat2(from_dir, from, to_dir, to, 0);
}
int __wrap_rename(const char* from, const char* to) { return __wrap_renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

int __real_linkat(int from_dir, const char* from, int to_dir, const char* to, int flags);
int __wrap_linkat(int from_dir, const char* from, int to_dir, const char* to, int flags) {
  return Noted(
      [&] { return __real_linkat(from_dir, from, to_dir, to, flags); },
      [&](int) {
        const auto node = coldsnap::NodeAt(to_dir, to);
        const auto place = coldsnap::PlaceOf(to_dir, to);
        if (!node || !place) return;
        coldsnap::Add({.kind = Change::Kind::kEntry, .node = *node, .folder = place->folder, .name = place->name});
      });
}
int __wrap_link(const char* from, const char* to) { return __wrap_linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int __real_unlinkat(int dir_fd, const char* path, int flags);
int __wrap_unlinkat(int dir_fd, const char* path, int flags) {
  return coldsnap::Removed(dir_fd, path, [&] { return __real_unlinkat(dir_fd, path, flags); });
}
int __wrap_unlink(const char* path) { return __wrap_unlinkat(AT_FDCWD, path, 0); }
int __wrap_rmdir(const char* path) { return __wrap_unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
