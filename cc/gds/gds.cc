#include "cc/gds/gds.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "cc/base/check.h"
#include "cc/gds/errors.h"

namespace coldsnap {
namespace {

constexpr char kLogVariable[] = "CUFILE_LOGFILE_PATH";
constexpr char kOtherRoute[] = "use the direct route";

// cuFile writes cufile.log into the working directory at its first message. Its parameters come too late for that (seen
// with 1.15 and 1.20), so the variable has to be there while the driver opens. A value of the user's stays.
class ScopedLogPath {
 public:
  ScopedLogPath() : ours_(std::getenv(kLogVariable) == nullptr) {
    if (ours_) ::setenv(kLogVariable, "/dev/null", 0);
  }
  ~ScopedLogPath() {
    if (ours_) ::unsetenv(kLogVariable);
  }
  ScopedLogPath(const ScopedLogPath&) = delete;
  ScopedLogPath& operator=(const ScopedLogPath&) = delete;

 private:
  bool ours_;
};

Status InForkedChild(pid_t opener) {
  return Status(Code::kRouteUnavailable,
                StrCat("use cuFile in process ", ::getpid(), ": its driver was opened by process ", opener,
                       " before the fork, and neither it nor CUDA survives one"))
      .WithRemedy("restore in a process that was started afresh (multiprocessing's spawn)");
}

Status CheckVersion(const cufile::Api& api, const std::string& library) {
  int version = 0;
  RETURN_IF_ERROR(GdsStatus(api.get_version(&version), StrCat("ask ", library, " for its version")));
  if (version >= cufile::kMinVersion && version < cufile::kEndVersion) return Status::Ok();
  return Status(Code::kRouteUnavailable, StrCat("use ", library, ": its version is ", version,
                                                ", and only the statistics of 1150 to 1189 are known here"))
      .WithRemedy("install libcufile 1.15 to 1.18, or use another route");
}

Status Configure(const cufile::Api& api, const GdsOptions& options) {
  const std::string_view compat = options.allow_compat ? "force compatible mode" : "refuse compatible mode";
  for (const int parameter : {cufile::kAllowCompatMode, cufile::kForceCompatMode}) {
    RETURN_IF_ERROR(GdsStatus(api.set_bool(parameter, options.allow_compat), compat));
  }
  if (HasNvidiaFs(options)) return Status::Ok();
  return GdsStatus(api.set_bool(cufile::kUsePciP2pdma, true), "ask cuFile for PCI P2PDMA");
}

Result<GdsEvidence> ExpectedPath(const cufile::Api& api, const GdsOptions& options) {
  cufile::Properties found{};
  RETURN_IF_ERROR(GdsStatus(api.get_properties(&found), "ask cuFile for its driver's properties"));
  const bool module = HasNvidiaFs(options);
  const bool nvidia_fs = found.nvfs_major_version != 0 || found.nvfs_minor_version != 0;
  const bool p2pdma = ((found.nvfs_dstatusflags >> cufile::kNvmeP2pSupported) & 1) != 0 ||
                      ((found.fflags >> cufile::kP2pSupported) & 1);
  const std::string text =
      StrCat("nvidia-fs ", found.nvfs_major_version, ".", found.nvfs_minor_version, ", ", options.nvidia_fs,
             module ? " there" : " missing", ", dstatusflags ", found.nvfs_dstatusflags, ", fflags ", found.fflags);
  if (options.allow_compat) return GdsEvidence{GdsPath::kCompat, StrCat("compatible mode forced by a test; ", text)};
  if (nvidia_fs && module) return GdsEvidence{GdsPath::kNvidiaFs, text};
  if (p2pdma) return GdsEvidence{GdsPath::kP2pDma, text};
  return Status(Code::kRouteUnavailable,
                StrCat("look for a direct path of cuFile: its driver opened, but nothing proves one (", text, ")"))
      .WithRemedy(kOtherRoute);
}

Status Bounced(std::string_view how, const std::string& counts) {
  return Status(Code::kRouteUnavailable, StrCat("prove the path of what cuFile read: ", how, " (", counts, ")"))
      .WithRemedy(kOtherRoute);
}

std::string Text(const DeviceRange& range) {
  return StrCat(range.nbytes, " bytes of device memory at address ", range.address);
}

// What nvidia-fs and cuFile answer when memory would fit in smaller pieces. 5010: the module's mapping call failed.
bool HasNoRoom(int number) {
  constexpr int kNoRoom[] = {5010, 5016, 5036, 5043, 5045};
  return std::ranges::find(kNoRoom, number) != std::end(kNoRoom);
}

}  // namespace

bool HasNvidiaFs(const GdsOptions& options) { return ::access((options.nvidia_fs + "/version").c_str(), R_OK) == 0; }

std::string_view GdsPathName(GdsPath path) {
  switch (path) {
    case GdsPath::kNone:
      return "none";
    case GdsPath::kNvidiaFs:
      return "nvidia-fs";
    case GdsPath::kP2pDma:
      return "p2pdma";
    case GdsPath::kCompat:
      return "compat";
  }
  return "none";
}

Status GdsDriverTraits::Release(const Handle& handle) {
  if (handle.pid != ::getpid()) return Status::Ok();
  return GdsStatus(handle.close(), "close cuFile's driver");
}

Status GdsFileTraits::Release(const Handle& handle) {
  if (handle.driver->CheckProcess().ok()) handle.driver->api().release_file(handle.pointer);
  return Status::Ok();
}

Status GdsBufferTraits::Release(const Handle& handle) {
  if (!handle.driver->CheckProcess().ok()) return Status::Ok();
  return GdsStatus(handle.driver->api().release_buffer(handle.pointer), "let go of registered device memory");
}

GdsDriver::GdsDriver(const cufile::Api& api, bool allow_compat, GdsDriverHandle handle)
    : api_(api), allow_compat_(allow_compat), open_(handle) {}

Result<SharedGdsDriver> GdsDriver::Get(const GdsOptions& options) {
  // Asked before the mutex: a fork while another thread opens the driver leaves the mutex locked in the child.
  static std::atomic<pid_t> opener{0};
  pid_t before = 0;
  if (!opener.compare_exchange_strong(before, ::getpid()) && before != ::getpid()) return InForkedChild(before);

  struct Process {
    std::mutex mutex;
    GdsOptions options;
    std::optional<Result<SharedGdsDriver>> driver;
  };
  static auto* const process = new Process;  // never destroyed: CUDA may go first when the process exits
  const std::lock_guard lock(process->mutex);
  if (!process->driver) {
    process->options = options;
    process->driver = Open(options);
  }
  if (process->options == options) return *process->driver;
  return Status(Code::kRouteUnavailable, "open cuFile's driver: this process has it open with other options");
}

Result<SharedGdsDriver> GdsDriver::Open(const GdsOptions& options) {
  const ScopedLogPath log;
  ASSIGN_OR_RETURN(const cufile::Api api, cufile::Load(options.library));
  RETURN_IF_ERROR(CheckVersion(api, options.library));
  RETURN_IF_ERROR(Configure(api, options));
  RETURN_IF_ERROR(GdsStatus(api.driver_open(), "open cuFile's driver"));
  const std::shared_ptr<GdsDriver> driver(new GdsDriver(api, options.allow_compat, {api.driver_close, ::getpid()}));
  ASSIGN_OR_RETURN(driver->expected_, ExpectedPath(api, options));
  RETURN_IF_ERROR(driver->StartStatistics());
  return SharedGdsDriver(driver);
}

Status GdsDriver::StartStatistics() const {
  RETURN_IF_ERROR(GdsStatus(api_.set_stats_level(cufile::kStatsPerGpu), "ask cuFile for statistics of each GPU"));
  return GdsStatus(api_.start_stats(), "start cuFile's statistics");
}

Status GdsDriver::CheckProcess() const {
  const pid_t opener = open_.get().pid;
  return opener == ::getpid() ? Status::Ok() : InForkedChild(opener);
}

Result<GdsReads> GdsDriver::CountReads() const {
  RETURN_IF_ERROR(CheckProcess());
  const auto stats = std::make_unique<cufile::Stats>();  // 5 KB
  RETURN_IF_ERROR(GdsStatus(api_.get_stats(stats.get()), "read cuFile's statistics"));
  GdsReads reads;
  for (const auto& gpu :
       std::span(stats->per_gpu_stats).first(std::min<size_t>(stats->num_gpus, std::size(stats->per_gpu_stats)))) {
    reads.nvidia_fs += gpu.n_nvfs_reads;
    reads.p2pdma += gpu.n_p2p_reads;
    reads.posix += gpu.n_posix_reads;
  }
  return reads;
}

Result<GdsEvidence> GdsDriver::PathSince(const GdsReads& before) const {
  ASSIGN_OR_RETURN(const GdsReads now, CountReads());
  const uint64_t nvidia_fs = now.nvidia_fs - before.nvidia_fs;
  const uint64_t p2pdma = now.p2pdma - before.p2pdma;
  const uint64_t posix = now.posix - before.posix;
  const std::string text = StrCat(nvidia_fs, " reads by nvidia-fs, ", p2pdma, " by P2PDMA, ", posix,
                                  " through host memory; ", expected_.text);
  if (allow_compat_) return GdsEvidence{GdsPath::kCompat, text};
  if (posix != 0) return Bounced("a silently bouncing driver", text);
  if (nvidia_fs == 0 && p2pdma == 0) return Bounced("its statistics counted no read", text);
  return GdsEvidence{nvidia_fs >= p2pdma ? GdsPath::kNvidiaFs : GdsPath::kP2pDma, text};
}

Result<GdsBuffer> GdsBuffer::Register(SharedGdsDriver driver, const DeviceRange& range, uint64_t min_piece_bytes) {
  COLDSNAP_CHECK(min_piece_bytes >= kLeafBytes && range.nbytes != 0);
  RETURN_IF_ERROR(driver->CheckProcess());
  GdsBuffer buffer(std::move(driver), range);
  RETURN_IF_ERROR(buffer.Add(range, min_piece_bytes).Prefixed(StrCat("register ", Text(range), ": ")));
  return buffer;
}

Status GdsBuffer::Add(const DeviceRange& range, uint64_t min_piece_bytes) {
  auto* const base = reinterpret_cast<void*>(range.address);
  const cufile::Error error = driver_->api().register_buffer(base, range.nbytes, 0);
  if (error.number == 0) {
    pieces_.push_back({range, Owned<GdsBufferTraits>({driver_.get(), base})});
    return Status::Ok();
  }
  if (!HasNoRoom(error.number) || range.nbytes / 2 < min_piece_bytes) return GdsStatus(error, Text(range));
  // A GPU maps pages of 64 KiB, so pieces meet between two of them.
  const uint64_t middle = AlignDown(range.address + range.nbytes / 2, 64 * kKiB);
  const uint64_t first = middle - range.address;
  RETURN_IF_ERROR(Add({range.address, first}, min_piece_bytes));
  return Add({middle, range.nbytes - first}, min_piece_bytes);
}

GdsBuffer::Place GdsBuffer::At(uint64_t offset) const {
  COLDSNAP_CHECK(offset < range_.nbytes);
  const uint64_t address = range_.address + offset;
  const auto piece =
      std::prev(std::ranges::upper_bound(pieces_, address, {}, [](const Piece& each) { return each.range.address; }));
  const uint64_t inside = address - piece->range.address;
  return {piece->registration.get().pointer, inside, piece->range.nbytes - inside};
}

Result<GdsFile> GdsFile::Register(SharedGdsDriver driver, UniqueFd fd, std::string name) {
  const std::string doing = StrCat("register ", name, " with cuFile");
  RETURN_IF_ERROR(driver->CheckProcess());
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0) return Status::FromErrno(errno, doing);
  if ((flags & O_DIRECT) == 0) {
    return Status(Code::kRouteUnavailable, StrCat(doing, ": it was opened without O_DIRECT"));
  }
  cufile::Descriptor descriptor{.type = cufile::kHandleTypeFd, .handle = {.fd = fd.get()}, .fs_ops = nullptr};
  void* handle = nullptr;
  RETURN_IF_ERROR(GdsStatus(driver->api().register_file(&handle, &descriptor), doing));
  return GdsFile(std::move(driver), std::move(fd), std::move(name), handle);
}

Status GdsFile::Read(const GdsBuffer& into, uint64_t into_offset, uint64_t file_offset, uint64_t nbytes) const {
  COLDSNAP_CHECK(into_offset <= into.range().nbytes && nbytes <= into.range().nbytes - into_offset);
  RETURN_IF_ERROR(driver_->CheckProcess());
  uint64_t done = 0;
  while (done < nbytes) {
    const GdsBuffer::Place to = into.At(into_offset + done);
    const uint64_t wanted = std::min(nbytes - done, to.nbytes);
    const ssize_t got = driver_->api().read(handle_.get().pointer, to.base, wanted,
                                            static_cast<off_t>(file_offset + done), static_cast<off_t>(to.offset));
    const int error = errno;  // cuFileRead: -1 is errno's, a smaller number is cuFile's
    if (got > 0) {
      done += static_cast<uint64_t>(got);
      continue;
    }
    if (got == -1 && error == EINTR) continue;
    const std::string doing = StrCat("read ", nbytes, " bytes at offset ", file_offset, " of ", name_, " by cuFile");
    if (got == 0) return Status(Code::kDataLoss, StrCat(doing, ": the file ends after ", done, " of them"));
    if (got == -1) return Status::FromErrno(error, doing);
    return GdsStatus({.number = static_cast<int>(-got)}, doing, Code::kIo);
  }
  return Status::Ok();
}

}  // namespace coldsnap
