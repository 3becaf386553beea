#include "bench/micro/uring.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

namespace coldsnap {
namespace {

Status Refused(int error, unsigned depth) {
  Status status = Status::FromErrno(error, StrCat("set up an io_uring of depth ", depth));
  if (error != ENOSYS && error != EPERM && error != EACCES) return status;
  return Status(Code::kRouteUnavailable,
                StrCat(status.message(), "; a kernel without it, a seccomp filter or the sysctl",
                       " kernel.io_uring_disabled refuses it"))
      .WithNative(Domain::kErrno, error);
}

Result<Mapping> MapRing(const UniqueFd& ring, uint64_t nbytes, uint64_t part) {
  void* map =
      ::mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.get(), static_cast<off_t>(part));
  if (map == MAP_FAILED) return Status::FromErrno(errno, StrCat("map ", nbytes, " bytes of an io_uring"));
  return Mapping({.address = map, .nbytes = nbytes});
}

}  // namespace

Result<Uring> Uring::Open(int fd, std::span<std::byte> memory, unsigned depth) {
  // Linux 6.1: without these two, completions interrupt the thread.
  io_uring_params params{.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN};
  long ring = ::syscall(__NR_io_uring_setup, depth, &params);
  if (ring < 0 && errno == EINVAL) {
    params = {};
    ring = ::syscall(__NR_io_uring_setup, depth, &params);
  }
  if (ring < 0) return Refused(errno, depth);

  Uring uring{UniqueFd(static_cast<int>(ring))};
  uring.deferred_ = (params.flags & IORING_SETUP_DEFER_TASKRUN) != 0;
  RETURN_IF_ERROR(uring.Map(params));
  uring.Register(fd, memory);
  return uring;
}

Status Uring::Map(const io_uring_params& params) {
  if ((params.features & IORING_FEAT_SINGLE_MMAP) == 0) {
    return Status(Code::kRouteUnavailable, "map an io_uring: the kernel is older than Linux 5.4");
  }
  const uint64_t sq_bytes = params.sq_off.array + params.sq_entries * sizeof(unsigned);
  const uint64_t cq_bytes = params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe);
  ASSIGN_OR_RETURN(rings_, MapRing(ring_, std::max(sq_bytes, cq_bytes), IORING_OFF_SQ_RING));
  ASSIGN_OR_RETURN(entries_, MapRing(ring_, params.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES));

  auto* const rings = static_cast<std::byte*>(rings_.get().address);
  const auto number = [&](unsigned offset) { return reinterpret_cast<unsigned*>(rings + offset); };
  sqes_ = static_cast<io_uring_sqe*>(entries_.get().address);
  sq_array_ = number(params.sq_off.array);
  sq_tail_ = number(params.sq_off.tail);
  sq_mask_ = *number(params.sq_off.ring_mask);
  cqes_ = reinterpret_cast<const io_uring_cqe*>(rings + params.cq_off.cqes);
  cq_head_ = number(params.cq_off.head);
  cq_tail_ = number(params.cq_off.tail);
  cq_mask_ = *number(params.cq_off.ring_mask);
  return Status::Ok();
}

// Help, not a condition: where it is refused (RLIMIT_MEMLOCK), Describe() says so.
void Uring::Register(int fd, std::span<std::byte> memory) {
  fd_ = fd;
  iovec range{.iov_base = memory.data(), .iov_len = memory.size()};
  memory_registered_ = ::syscall(__NR_io_uring_register, ring_.get(), IORING_REGISTER_BUFFERS, &range, 1) == 0;
  file_registered_ = ::syscall(__NR_io_uring_register, ring_.get(), IORING_REGISTER_FILES, &fd_, 1) == 0;
}

Status Uring::Enter(unsigned submit, unsigned wait_for) {
  const unsigned flags = wait_for != 0 ? IORING_ENTER_GETEVENTS : 0;
  while (::syscall(__NR_io_uring_enter, ring_.get(), submit, wait_for, flags, nullptr, 0) < 0) {
    if (errno != EINTR) return Status::FromErrno(errno, StrCat("enter an io_uring to submit ", submit, " reads"));
  }
  return Status::Ok();
}

Status Uring::StartRead(std::span<std::byte> into, uint64_t offset, uint64_t tag) {
  const unsigned tail = *sq_tail_;  // only this thread writes it
  const unsigned index = tail & sq_mask_;
  io_uring_sqe& entry = sqes_[index] = {};
  entry.opcode = memory_registered_ ? IORING_OP_READ_FIXED : IORING_OP_READ;  // buf_index 0, the only one
  entry.flags = file_registered_ ? IOSQE_FIXED_FILE : 0;
  entry.fd = file_registered_ ? 0 : fd_;
  entry.addr = reinterpret_cast<uint64_t>(into.data());
  entry.len = static_cast<uint32_t>(into.size());
  entry.off = offset;
  entry.user_data = tag;
  sq_array_[index] = index;
  std::atomic_ref(*sq_tail_).store(tail + 1, std::memory_order_release);
  return Enter(1, 0);
}

Status Uring::Wait() { return Enter(0, 1); }

std::optional<Uring::Ended> Uring::Next() {
  const unsigned head = *cq_head_;  // only this thread writes it
  if (head == std::atomic_ref(*cq_tail_).load(std::memory_order_acquire)) return std::nullopt;
  const io_uring_cqe& entry = cqes_[head & cq_mask_];
  const Ended ended{.tag = entry.user_data, .result = entry.res};
  std::atomic_ref(*cq_head_).store(head + 1, std::memory_order_release);
  return ended;
}

std::string Uring::Describe() const {
  return StrCat("completions ", deferred_ ? "deferred" : "by interruption", ", file ", file_registered_ ? "" : "not ",
                "registered, memory ", memory_registered_ ? "" : "not ", "registered");
}

}  // namespace coldsnap
