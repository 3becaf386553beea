// Files that must be there after a power cut: made anew, reserved first, every write counted, synced before they count.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "cc/base/status.h"
#include "cc/sys/files.h"

namespace coldsnap {

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

// What was written to the folder's list of names is on the drive when it returns. `what` is for messages.
Status SyncFolder(int dir_fd, const std::string& what);

class NewFile {
 public:
  // The file `name` directly under `dir_fd`, for its owner alone until Sync(); kExists if it is there.
  static Result<NewFile> Create(int dir_fd, const std::string& name);

  // One that was created earlier and not closed, by a process that was killed: a regular file of `nbytes` with no other
  // link, or kIo says why not.
  static Result<NewFile> Reopen(int dir_fd, const std::string& name, uint64_t nbytes);

  // Before a byte is written: a full drive or quota is noticed here, with what is needed and what there is. Where the
  // file system reserves nothing its free space is asked for instead, and the file gets its size.
  Status Reserve(uint64_t nbytes);
  Status Write(std::span<const std::byte> bytes, uint64_t offset) const {
    return WriteExact(fd_.get(), bytes, offset, name_);
  }
  // Mode 0444, and everything on the drive.
  Status Sync() const;
  // The last that may report a lost write.
  Status Close() &&;

  int fd() const { return fd_.get(); }
  const std::string& name() const { return name_; }

 private:
  NewFile(UniqueFd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}
  Status ReserveBySize(uint64_t nbytes);
  UniqueFd fd_;
  std::string name_;
};

// All of it for a small file.
Status WriteNewFile(int dir_fd, const std::string& name, std::span<const std::byte> bytes);

}  // namespace coldsnap
