#include "cc/publish/incoming.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>
#include <vector>

#include "cc/sys/clock.h"
#include "cc/sys/new_file.h"

namespace coldsnap {
namespace {

constexpr unsigned kRenameNoReplace = 1;  // RENAME_NOREPLACE, linux/fs.h
constexpr std::string_view kLockSuffix = ".lock";
// RemoveStale of others takes any lock that it can have, also one whose file was made a moment ago.
constexpr double kPatienceS = 1;
constexpr useconds_t kLookUs = 2000;

std::string ParentOf(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

Status SyncFolderAt(const std::string& path) {
  ASSIGN_OR_RETURN(const UniqueFd fd, OpenDirectory(path));
  return SyncFolder(fd.get(), path);
}

std::string LockPath(const std::string& folder) { return folder + std::string(kLockSuffix); }

Status Busy(const std::string& folder) {
  return Status(Code::kPolicyRefused, StrCat("lock ", folder, ": another capture is building there"))
      .WithRemedy("wait until it has ended, or name another path");
}

// Whether the file that was locked is still at its path: a holder removes it before it lets go.
Result<bool> LockCounts(int fd, const std::string& path) {
  if (Uninterrupted([&] { return ::flock(fd, LOCK_EX | LOCK_NB); }) != 0) {
    return Status::FromErrno(errno, StrCat("lock ", path)).WithRemedy("name a path on a file system with locks");
  }
  struct stat held{};
  if (::fstat(fd, &held) != 0) return Status::FromErrno(errno, StrCat("stat ", path));
  return held.st_nlink != 0;
}

// The lock of `folder`, whose file is made if `create`; then whoever has it for a moment only is waited for.
Result<UniqueFd> Lock(const std::string& folder, bool create) {
  const std::string path = LockPath(folder);
  const Stopwatch waiting;
  for (;;) {
    const auto open = [&path](int flags) {
      return UniqueFd(
          Uninterrupted([&] { return ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600); }));
    };
    UniqueFd lock = open(0);
    const bool made = !lock && errno == ENOENT && create;
    if (made) lock = open(O_CREAT | O_EXCL);
    if (!lock && errno == EEXIST) continue;  // another one made it in between
    if (!lock) return Status::FromErrno(errno, StrCat("create ", path));
    const Result<bool> counts = LockCounts(lock.get(), path);
    if (counts.ok() && *counts) return lock;
    if (counts.ok()) continue;
    if (counts.status().native() == EWOULDBLOCK) {
      if (!create || waiting.Seconds() > kPatienceS) return Busy(folder);
      ::usleep(kLookUs);
      continue;
    }
    if (made) ::unlink(path.c_str());  // where locks can't be had, nobody has this one
    return counts.status();
  }
}

// Somebody may be clearing away the folder around it at the same time, and `remove_all` stops at a file that has just
// gone. The limit is for file systems that list what they then don't find.
Status RemoveFolder(const std::string& path) {
  std::error_code error;
  for (int rounds = 0; rounds < 1000; ++rounds) {
    std::filesystem::remove_all(path, error);
    if (error.value() != ENOENT) break;
  }
  if (!error) return Status::Ok();
  return Status::FromErrno(error.value(), StrCat("remove ", path, ", which an ended capture left"));
}

Status RemoveFiles(const std::string& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error); !error && it != std::filesystem::directory_iterator();
       it.increment(error)) {
    if (it->is_directory(error) && !it->is_symlink(error)) continue;
    std::filesystem::remove(it->path(), error);
    if (error) break;
  }
  if (!error) return Status::Ok();
  return Status::FromErrno(error.value(), StrCat("remove the files in ", folder, ", which an ended capture left"));
}

// The file goes before the lock: whoever gets that afterwards sees that it is worth nothing. So does a forked child,
// which has the lock for as long as it lives.
void Unlock(const std::string& folder, UniqueFd /*lock*/) { ::unlink(LockPath(folder).c_str()); }

}  // namespace

Incoming::Incoming(std::string path, UniqueFd lock)
    : path_(std::move(path)), lock_(std::move(lock)), pid_(::getpid()) {}

Incoming::Incoming(Incoming&& other) noexcept
    : path_(std::move(other.path_)), lock_(std::move(other.lock_)), pid_(other.pid_) {}

Incoming::~Incoming() { Close(); }

Result<Incoming> Incoming::Create(const std::string& parent, const std::string& name, bool keep_shards) {
  if (name.empty() || name.find('/') != std::string::npos) {
    return Status(Code::kRequestInvalid, StrCat("create a folder for a capture: its name is \"", name, "\""));
  }
  {
    ASSIGN_OR_RETURN(const UniqueFd there, OpenDirectory(parent));  // kRequestInvalid if it is not
  }
  const std::string path = parent + "/" + name;
  ASSIGN_OR_RETURN(UniqueFd lock, Lock(path, true));
  Incoming incoming(path, std::move(lock));
  if (!keep_shards) RETURN_IF_ERROR(RemoveFolder(path));
  if (::mkdir(path.c_str(), 0700) == 0) return incoming;
  if (!keep_shards || errno != EEXIST) return Status::FromErrno(errno, StrCat("create folder ", path));
  RETURN_IF_ERROR(RemoveFiles(path));
  return incoming;
}

Result<size_t> Incoming::RemoveStale(const std::string& parent) {
  std::error_code error;
  std::vector<std::string> folders;
  for (auto it = std::filesystem::directory_iterator(parent, error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    const std::string path = it->path().string();
    if (path.ends_with(kLockSuffix)) folders.push_back(path.substr(0, path.size() - kLockSuffix.size()));
  }
  if (error) return Status::FromErrno(error.value(), StrCat("list folder ", parent));
  size_t removed = 0;
  for (const std::string& folder : folders) {
    Result<UniqueFd> lock = Lock(folder, false);
    if (!lock.ok()) {
      if (lock.status().code() == Code::kPolicyRefused || lock.status().native() == ENOENT) continue;  // busy, or gone
      return std::move(lock).status();
    }
    RETURN_IF_ERROR(RemoveFolder(folder));
    Unlock(folder, *std::move(lock));
    ++removed;
  }
  return removed;
}

Status Incoming::MoveTo(const std::string& destination) && {
  if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, destination.c_str(), kRenameNoReplace) != 0) {
    const int error = errno;
    Status status = Status::FromErrno(error, StrCat("move the finished artifact to ", destination));
    if (error == EXDEV) return std::move(status).WithRemedy("build on the file system of the destination");
    // Where replacing can't be ruled out (NFS and most object stores), nothing is moved: an artifact is never replaced.
    if (error == EINVAL) return std::move(status).WithRemedy("name a path on a file system with RENAME_NOREPLACE");
    if (error == EEXIST) return std::move(status).WithRemedy("name a new path");
    return status;
  }
  if (Status status = SyncFolderAt(ParentOf(destination)); !status.ok()) {
    // A power cut could undo the move: that is no artifact to rely on. It is complete, so it goes in one step, too.
    if (::renameat2(AT_FDCWD, destination.c_str(), AT_FDCWD, path_.c_str(), kRenameNoReplace) != 0) {
      static_cast<void>(RemoveFolder(destination));
    }
    return status;
  }
  Unlock(path_, std::move(lock_));
  return Status::Ok();
}

void Incoming::Close() {
  if (!lock_ || ::getpid() != pid_) return;
  if (const Status status = RemoveFolder(path_); !status.ok()) {
    std::fprintf(stderr, "coldsnap: %s\n", status.message().c_str());
  }
  Unlock(path_, std::move(lock_));
}

}  // namespace coldsnap
