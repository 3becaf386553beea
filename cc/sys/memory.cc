#include "cc/sys/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cc/base/units.h"

namespace coldsnap {

Status MappingTraits::Release(const Handle& handle) {
  if (::munmap(handle.address, handle.nbytes) != 0) {
    return Status::FromErrno(errno, StrCat("unmap ", handle.nbytes, " bytes"));
  }
  return Status::Ok();
}

Result<Mapping> MapTouched(uint64_t nbytes) {
  constexpr uint64_t kHugePage = 2 * kMiB;
  const uint64_t wanted = AlignUp(std::max<uint64_t>(nbytes, 1), kHugePage);
  // One huge page more than wanted, then the ends are given back: the kernel promises 4 KiB alignment only.
  void* map = ::mmap(nullptr, wanted + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) {
    return Status::FromErrno(errno, StrCat("map ", wanted, " bytes of host memory"))
        .WithRemedy("lower COLDSNAP_HYDRATION_QUEUE_DEPTH or COLDSNAP_HYDRATION_CHUNK_BYTES");
  }
  auto* const start = static_cast<std::byte*>(map);
  const auto address = reinterpret_cast<uint64_t>(map);
  const uint64_t before = AlignUp(address, kHugePage) - address;
  if (before != 0) ::munmap(start, before);
  ::munmap(start + before + wanted, kHugePage - before);
  Mapping mapping({.address = start + before, .nbytes = wanted});
  ::madvise(start + before, wanted, MADV_HUGEPAGE);  // advice: where it is refused, small pages do
  // A forked child must not share pages that a device is writing to (copy-on-write would split them).
  ::madvise(start + before, wanted, MADV_DONTFORK);
  std::memset(start + before, 0, wanted);
  return mapping;
}

}  // namespace coldsnap
