// An io_uring by its raw system calls, for reads of one file into one piece of memory. For one thread.
//
// The file and the memory are registered with the kernel where it allows that. Whoever gives up while reads are in
// flight keeps the memory until the process ends.
#pragma once

#include <linux/io_uring.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "cc/base/status.h"
#include "cc/sys/files.h"
#include "cc/sys/memory.h"

namespace coldsnap {

class Uring {
 public:
  // Where the kernel, a seccomp filter or a sysctl refuses io_uring: kRouteUnavailable.
  static Result<Uring> Open(int fd, std::span<std::byte> memory, unsigned depth);

  // At most `depth` are in flight. `into` lies in the memory given to Open(). Each read is submitted by itself: the
  // block layer merges neighbours that come together into larger requests, which cost one drive up to a quarter.
  Status StartRead(std::span<std::byte> into, uint64_t offset, uint64_t tag);
  // Returns once at least one read has ended.
  Status Wait();

  struct Ended {
    uint64_t tag = 0;
    int32_t result = 0;  // bytes read, or a negative errno
  };
  std::optional<Ended> Next();

  // What is in use, for people: how completions are delivered and what is registered.
  std::string Describe() const;

 private:
  explicit Uring(UniqueFd ring) : ring_(std::move(ring)) {}
  Status Map(const io_uring_params& params);
  Status Enter(unsigned submit, unsigned wait_for);
  void Register(int fd, std::span<std::byte> memory);

  UniqueFd ring_;
  Mapping rings_;
  Mapping entries_;
  bool deferred_ = false;  // completions are delivered only when this thread asks for them
  bool file_registered_ = false;
  bool memory_registered_ = false;
  int fd_ = -1;

  // Places within the mappings. The kernel moves heads of the first queue and tails of the second.
  io_uring_sqe* sqes_ = nullptr;
  unsigned* sq_array_ = nullptr;
  unsigned* sq_tail_ = nullptr;
  unsigned sq_mask_ = 0;
  const io_uring_cqe* cqes_ = nullptr;
  unsigned* cq_head_ = nullptr;
  unsigned* cq_tail_ = nullptr;
  unsigned cq_mask_ = 0;
};

}  // namespace coldsnap
