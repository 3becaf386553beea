// Stage 1, the blob's bytes into memory, by one of the staged routes.
//
// buffered reads through the page cache; direct passes it by (O_DIRECT) and needs offsets, sizes and memory at the
// file's alignment. An open that succeeds proves nothing about direct I/O, so a direct reader has read once before it
// exists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/sys/files.h"

namespace coldsnap {

class BlobReader {
 public:
  // `blob_fd` is the file as it was checked, open for buffered reads, `dir_fd` and `name` where it was found; it is
  // opened anew for direct reads and must still be the same file. Where direct reads can't be done: kRouteUnavailable
  // with the file system's reason. `blob_fd` must outlive the reader.
  static Result<BlobReader> Open(Route route, int dir_fd, const std::string& name, int blob_fd);

  // All of `into`, at multiples of alignment_bytes() in file and memory. Safe from many threads at once.
  Status Read(std::span<std::byte> into, uint64_t offset) const;

  Route route() const { return route_; }
  uint64_t alignment_bytes() const { return alignment_bytes_; }  // 1 for buffered; a power of two <= 64 KiB

 private:
  BlobReader(Route route, std::string name, int fd) : route_(route), name_(std::move(name)), fd_(fd) {}
  Status ProveDirect(int blob_fd);

  Route route_;
  std::string name_;
  int fd_;           // the one that is read
  UniqueFd direct_;  // none for buffered
  uint64_t alignment_bytes_ = 1;
};

}  // namespace coldsnap
