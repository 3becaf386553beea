// GPUDirect Storage: from the drive into registered device memory, past host memory. cuFile moves bytes through host
// memory when it can't do better, and says so only if asked: here that is an error, and the path is a matter of
// evidence, before the reads (properties) and after them (statistics).
//
// One thread opens the driver, any may read. The thread that registers memory or reads has the CUDA context of that
// memory current. Buffers and files keep the driver; let buffers go first, then files. After a fork only the parent may
// use any of them; in the child every use is refused, and letting go leaves the parent's registrations alone.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/base/units.h"
#include "cc/gds/cufile_api.h"
#include "cc/sys/files.h"
#include "cc/sys/owned.h"

namespace coldsnap {

// kCompat is cuFile's way through host memory, and never GPUDirect Storage.
enum class GdsPath : uint8_t { kNone, kNvidiaFs, kP2pDma, kCompat };
std::string_view GdsPathName(GdsPath path);  // "none", "nvidia-fs", "p2pdma", "compat"; stable

struct GdsEvidence {
  GdsPath path = GdsPath::kNone;
  std::string text;  // for the receipt
};

// Reads that cuFile has counted in this process, by path.
struct GdsReads {
  uint64_t nvidia_fs = 0;
  uint64_t p2pdma = 0;
  uint64_t posix = 0;
};

struct GdsOptions {
  std::string library = "libcufile.so.0";
  std::string nvidia_fs = "/proc/driver/nvidia-fs";  // what the kernel module shows of itself
  // For tests of the calls on machines without GPUDirect Storage only: forces the way through host memory. The path is
  // kCompat then, whatever the machine has.
  bool allow_compat = false;
  bool operator==(const GdsOptions&) const = default;
};

struct GdsDriverHandle {
  cufile::Error (*close)() = nullptr;
  pid_t pid = 0;
  bool operator==(const GdsDriverHandle&) const = default;
};
struct GdsDriverTraits {
  using Handle = GdsDriverHandle;
  static constexpr Handle kNone{};
  static Status Release(const Handle& handle);
};

// Whether the kernel module nvidia-fs is loaded; costs one look at a file. PCI P2PDMA needs no module.
bool HasNvidiaFs(const GdsOptions& options);

class GdsDriver {
 public:
  // The process's driver, opened by the first call (about half a second) and never closed. Its failure is remembered:
  // cuFile goes on in compatible mode after a failed opening, even where that was refused. Other options than those of
  // the first call are refused.
  static Result<std::shared_ptr<const GdsDriver>> Get(const GdsOptions& options = {});
  // For tests: closed with its last user. kRouteUnavailable when there is no evidence of a direct path.
  static Result<std::shared_ptr<const GdsDriver>> Open(const GdsOptions& options);

  // The path that is to be expected, by the driver's properties.
  const GdsEvidence& expected() const { return expected_; }
  const cufile::Api& api() const { return api_; }

  Result<GdsReads> CountReads() const;
  // The path of all reads since `before`. kRouteUnavailable when one of them went through host memory, or none was
  // counted: what was read must not be published then. Counts every user of cuFile in this process.
  Result<GdsEvidence> PathSince(const GdsReads& before) const;

  // kRouteUnavailable in a forked child.
  Status CheckProcess() const;

 private:
  GdsDriver(const cufile::Api& api, bool allow_compat, GdsDriverHandle handle);
  Status StartStatistics() const;

  cufile::Api api_;
  bool allow_compat_;
  GdsEvidence expected_;
  Owned<GdsDriverTraits> open_;
};
using SharedGdsDriver = std::shared_ptr<const GdsDriver>;

// A registered file (handle) or memory (address).
struct GdsRegistration {
  const GdsDriver* driver = nullptr;
  void* pointer = nullptr;
  bool operator==(const GdsRegistration&) const = default;
};
struct GdsFileTraits {
  using Handle = GdsRegistration;
  static constexpr Handle kNone{};
  static Status Release(const Handle& handle);
};
struct GdsBufferTraits {
  using Handle = GdsRegistration;
  static constexpr Handle kNone{};
  static Status Release(const Handle& handle);
};

// One whole device allocation, registered; in pieces where the GPU can't take it at once.
class GdsBuffer {
 public:
  // Halves what cuFile has no room for, down to `min_piece_bytes` (at least 64 KiB), then refuses with cuFile's reason
  // and nothing registered.
  static Result<GdsBuffer> Register(SharedGdsDriver driver, const DeviceRange& range,
                                    uint64_t min_piece_bytes = 16 * kMiB);

  const DeviceRange& range() const { return range_; }
  size_t pieces() const { return pieces_.size(); }

  struct Place {
    void* base;       // of the registered piece
    uint64_t offset;  // in it
    uint64_t nbytes;  // to its end
  };
  Place At(uint64_t offset) const;

 private:
  struct Piece {
    DeviceRange range;
    Owned<GdsBufferTraits> registration;
  };
  GdsBuffer(SharedGdsDriver driver, const DeviceRange& range) : driver_(std::move(driver)), range_(range) {}
  Status Add(const DeviceRange& range, uint64_t min_piece_bytes);

  SharedGdsDriver driver_;
  DeviceRange range_;
  std::vector<Piece> pieces_;  // by address, without gaps
};

// A registered file.
class GdsFile {
 public:
  // `fd` was opened with O_DIRECT; `name` is for messages.
  static Result<GdsFile> Register(SharedGdsDriver driver, UniqueFd fd, std::string name);

  // All of `nbytes` from `file_offset` to `into_offset` of `into`; blocks. A file that ends before is kDataLoss.
  Status Read(const GdsBuffer& into, uint64_t into_offset, uint64_t file_offset, uint64_t nbytes) const;

 private:
  GdsFile(SharedGdsDriver driver, UniqueFd fd, std::string name, void* handle)
      : driver_(std::move(driver)), fd_(std::move(fd)), name_(std::move(name)), handle_({driver_.get(), handle}) {}

  SharedGdsDriver driver_;
  UniqueFd fd_;
  std::string name_;
  Owned<GdsFileTraits> handle_;  // after fd_, so released before it
};

}  // namespace coldsnap
