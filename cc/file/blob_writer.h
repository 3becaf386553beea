// Stage 3 of a capture, slots to the blob: written at any offset from many threads, past the page cache or through it.
//
// A direct writer needs offsets, sizes and memory at the file's alignment, and has written once before it exists: an
// open that succeeds proves nothing. A buffered one keeps few of its pages dirty, since a blob of many gigabytes would
// otherwise fill memory with them, stop every other writer of the machine, and leave the wait to the last sync.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>

#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/sys/files.h"
#include "cc/sys/new_file.h"

namespace coldsnap {

class BlobWriter {
 public:
  // A new file `name` directly under `dir_fd`, with `nbytes` reserved. It is buffered at first.
  static Result<BlobWriter> Create(int dir_fd, const std::string& name, uint64_t nbytes);

  // The file that an earlier writer left: a regular one of that size that nobody else has linked. Anything else fails.
  static Result<BlobWriter> Reopen(int dir_fd, const std::string& name, uint64_t nbytes);

  // From now on past the page cache. Where a trial write says that this can't be done, or only at more than 64 KiB,
  // kRouteUnavailable with the file system's reason, and the writer stays as it was. Before any other write.
  Status UseDirect(int dir_fd);

  // One thread's writes. Blocks while too much of what it wrote is not on the drive yet.
  class Hand {
   public:
    explicit Hand(const BlobWriter& writer) : writer_(writer) {}
    Status Write(std::span<const std::byte> bytes, uint64_t offset);

   private:
    struct Range {
      uint64_t offset = 0;
      uint64_t nbytes = 0;
    };
    const BlobWriter& writer_;
    std::deque<Range> dirty_;
    uint64_t dirty_bytes_ = 0;
  };

  // Mode 0444, and everything on the drive. Nothing may be written any more.
  Status Sync() const { return file_.Sync(); }
  Status Close() &&;

  Route route() const { return direct_ ? Route::kDirect : Route::kBuffered; }
  int fd() const { return file_.fd(); }

 private:
  explicit BlobWriter(NewFile file) : file_(std::move(file)) {}
  Status WriteBack(uint64_t offset, uint64_t nbytes, bool wait) const;

  NewFile file_;
  UniqueFd direct_;  // none for buffered
};

}  // namespace coldsnap
