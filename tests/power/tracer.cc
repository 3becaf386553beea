#include "tests/power/tracer.h"

#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "cc/base/check.h"
#include "cc/base/strcat.h"
#include "tests/power/observed.h"

namespace coldsnap {
namespace {

using Kind = Change::Kind;

std::string Memory(pid_t pid, uint64_t address, size_t nbytes) {
  std::string bytes(nbytes, '\0');
  const iovec into{.iov_base = bytes.data(), .iov_len = nbytes};
  // NOLINTNEXTLINE(performance-no-int-to-ptr): it is another process's
  const iovec from{.iov_base = reinterpret_cast<void*>(address), .iov_len = nbytes};
  const ssize_t got = ::process_vm_readv(pid, &into, 1, &from, 1, 0);
  bytes.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return bytes;
}

std::string Text(pid_t pid, uint64_t address) {
  std::string text;
  constexpr uint64_t kPage = 4096;  // a page is there as a whole, and what lies behind it maybe not
  while (text.size() < 2 * kPage) {
    const std::string part = Memory(pid, address + text.size(), kPage - (address + text.size()) % kPage);
    const size_t end = part.find('\0');
    text += part.substr(0, end);
    if (part.empty() || end != std::string::npos) break;
  }
  return text;
}

// A call between its entry and its return.
struct Call {
  uint64_t number = 0;
  std::array<uint64_t, 6> args{};
  std::string path;                      // as the tracer can use it
  std::optional<NodeId> node;            // of what a move or removal is about
  std::optional<Observed::Place> place;  // and where it is
  std::string to;                        // the other path of a move or link
  bool was_there = false;                // what open was asked to create
  size_t changes = 0;                    // so many were made before it
};

class Watch {
 public:
  explicit Watch(const std::string& folder) : observed_(folder) {}

  void Stopped(pid_t pid) {
    __ptrace_syscall_info info{};
    if (::ptrace(static_cast<__ptrace_request>(PTRACE_GET_SYSCALL_INFO), pid, sizeof(info), &info) <= 0) return;
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
      Call call{.number = info.entry.nr, .changes = observed_.size()};
      std::copy_n(info.entry.args, call.args.size(), call.args.begin());
      Enter(pid, call);
      calls_[pid] = std::move(call);
    } else if (info.op == PTRACE_SYSCALL_INFO_EXIT) {
      const auto call = calls_.extract(pid);
      if (!call.empty() && info.exit.is_error == 0) Return(pid, call.mapped(), info.exit.rval);
    }
  }
  History Take() && { return std::move(observed_).Take(); }

 private:
  static std::string PathAt(pid_t pid, uint64_t dir_fd, uint64_t address) {
    std::string path = Text(pid, address);
    if (path.starts_with('/')) return path;
    const int fd = static_cast<int>(dir_fd);
    return fd == AT_FDCWD ? StrCat("/proc/", pid, "/cwd/", path) : StrCat("/proc/", pid, "/fd/", fd, "/", path);
  }
  static std::string FdPath(pid_t pid, uint64_t fd) { return StrCat("/proc/", pid, "/fd/", static_cast<int>(fd)); }
  std::optional<NodeId> NodeOf(pid_t pid, uint64_t fd) const { return observed_.NodeAt(FdPath(pid, fd), true); }

  // The forms without a folder, which older programs and architectures use, as those with one.
  static void Modernise(Call& call) {
    const auto with_folders = [&call](uint64_t number, std::array<uint64_t, 6> args) {
      call.number = number;
      call.args = args;
    };
    const auto& a = call.args;
    const auto here = static_cast<uint64_t>(AT_FDCWD);
    switch (call.number) {
#ifdef SYS_open
      case SYS_open:
        return with_folders(SYS_openat, {here, a[0], a[1], a[2]});
      case SYS_creat:
        return with_folders(SYS_openat, {here, a[0], O_CREAT | O_WRONLY | O_TRUNC, a[1]});
      case SYS_mkdir:
        return with_folders(SYS_mkdirat, {here, a[0], a[1]});
      case SYS_rename:
        return with_folders(SYS_renameat2, {here, a[0], here, a[1]});
      case SYS_unlink:
        return with_folders(SYS_unlinkat, {here, a[0]});
      case SYS_rmdir:
        return with_folders(SYS_unlinkat, {here, a[0], AT_REMOVEDIR});
      case SYS_link:
        return with_folders(SYS_linkat, {here, a[0], here, a[1]});
      case SYS_chmod:
        return with_folders(SYS_fchmodat, {here, a[0], a[1]});
#endif
      case SYS_renameat:
        return with_folders(SYS_renameat2, {a[0], a[1], a[2], a[3]});
      default:
        return;
    }
  }

  void Enter(pid_t pid, Call& call) const {
    Modernise(call);
    switch (call.number) {
      case SYS_openat:
      case SYS_mkdirat:
      case SYS_fchmodat:
        call.path = PathAt(pid, call.args[0], call.args[1]);
        call.was_there = ::access(call.path.c_str(), F_OK) == 0;
        return;
      case SYS_renameat2:
      case SYS_linkat:
        call.to = PathAt(pid, call.args[2], call.args[3]);
        [[fallthrough]];
      case SYS_unlinkat:
        call.path = PathAt(pid, call.args[0], call.args[1]);
        call.node = observed_.NodeAt(call.path, false);
        call.place = observed_.PlaceOf(call.path);
        return;
      default:
        return;
    }
  }

  void Return(pid_t pid, const Call& call, int64_t result) {
    const auto changed = [&](std::optional<NodeId> node, Change change) {
      if (!node) return;
      change.node = *node;
      observed_.Changed(std::move(change));
    };
    const auto& a = call.args;
    switch (call.number) {
      case SYS_openat:
        if ((a[2] & O_CREAT) != 0 && !call.was_there) observed_.Made(call.path, false);
        if ((a[2] & O_TRUNC) != 0) changed(NodeOf(pid, static_cast<uint64_t>(result)), {.kind = Kind::kCut});
        return;
      case SYS_mkdirat:
        return observed_.Made(call.path, true);
      case SYS_linkat:
        return observed_.Linked(call.to);
      case SYS_renameat2: {
        const auto to = observed_.PlaceOf(call.to);
        if (call.node && call.place && to) observed_.Moved(*call.node, *call.place, *to);
        return;
      }
      case SYS_unlinkat:
        if (call.node && call.place) observed_.Removed(*call.node, *call.place);
        return;
      case SYS_write:
      case SYS_pwrite64:
      case SYS_writev:
      case SYS_pwritev:
      case SYS_pwritev2:
        return Wrote(pid, call, static_cast<size_t>(result));
      // Without flags the file gets as long as that, and zeros where nothing was written.
      case SYS_fallocate:
        COLDSNAP_CHECK(a[1] == 0);
        return changed(NodeOf(pid, a[0]), {.kind = Kind::kGrow, .nbytes = a[2] + a[3]});
      case SYS_ftruncate:
        return changed(NodeOf(pid, a[0]), {.kind = Kind::kCut, .nbytes = a[1]});
      case SYS_fchmod:
        return changed(NodeOf(pid, a[0]), {.kind = Kind::kMode, .mode = static_cast<unsigned>(a[1]) & 07777U});
      case SYS_fchmodat:
        return changed(observed_.NodeAt(call.path, true),
                       {.kind = Kind::kMode, .mode = static_cast<unsigned>(a[2]) & 07777U});
      case SYS_fsync:
      case SYS_fdatasync:
        if (const auto node = NodeOf(pid, a[0])) {
          observed_.Synced(*node, call.number == SYS_fsync ? Kind::kSync : Kind::kSyncData, call.changes);
        }
        return;
      default:
        return;
    }
  }

  void Wrote(pid_t pid, const Call& call, size_t nbytes) {
    const std::optional<NodeId> node = NodeOf(pid, call.args[0]);
    if (!node || nbytes == 0) return;
    const bool vector = call.number != SYS_write && call.number != SYS_pwrite64;
    const bool positional = call.number != SYS_write && call.number != SYS_writev;
    const std::string bytes = vector ? Parts(pid, call.args[1], call.args[2]) : Memory(pid, call.args[1], nbytes);
    COLDSNAP_CHECK(bytes.size() >= nbytes);
    const uint64_t offset = positional ? call.args[3] : PositionOf(pid, call.args[0]) - nbytes;
    observed_.Wrote(*node, std::string_view(bytes).substr(0, nbytes), offset);
  }
  static std::string Parts(pid_t pid, uint64_t address, uint64_t count) {
    const std::string table = Memory(pid, address, count * sizeof(iovec));
    std::string bytes;
    for (size_t i = 0; i < table.size() / sizeof(iovec); ++i) {
      iovec part{};
      std::memcpy(&part, table.data() + i * sizeof(iovec), sizeof(part));
      bytes += Memory(pid, reinterpret_cast<uint64_t>(part.iov_base), part.iov_len);
    }
    return bytes;
  }
  static uint64_t PositionOf(pid_t pid, uint64_t fd) {
    const int info = ::open(StrCat("/proc/", pid, "/fdinfo/", static_cast<int>(fd)).c_str(), O_RDONLY | O_CLOEXEC);
    std::array<char, 256> text{};
    const ssize_t got = ::read(info, text.data(), text.size() - 1);
    ::close(info);
    constexpr std::string_view kKey = "pos:\t";
    COLDSNAP_CHECK(got > 0 && std::string_view(text.data()).starts_with(kKey));
    return std::stoull(text.data() + kKey.size());
  }

  Observed observed_;
  std::map<pid_t, Call> calls_;
};

constexpr int kUntraceable = 99;

// What a stopped thread is to be continued with: the signal that it was to get, none for stops of the tracer's own.
int SignalFor(int status) {
  const int signal = WSTOPSIG(status);
  const bool event = status >> 16 != 0;
  return event || signal == SIGTRAP || signal == SIGSTOP || signal == (SIGTRAP | 0x80) ? 0 : signal;
}

void Continue(pid_t pid, int signal) { ::ptrace(PTRACE_SYSCALL, pid, nullptr, static_cast<intptr_t>(signal)); }

}  // namespace

Traced Trace(const std::string& folder, const std::function<int()>& program) {
  Watch watch(folder);
  Traced traced;
  const pid_t child = ::fork();
  COLDSNAP_CHECK(child >= 0);
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(kUntraceable);
    ::raise(SIGSTOP);
    ::_exit(program());
  }
  int status = 0;
  COLDSNAP_CHECK(::waitpid(child, &status, 0) == child);
  if (WIFEXITED(status)) {
    traced.why_not =
        "the system lets no process be traced (ptrace); remedy: allow it, in a container by CAP_SYS_PTRACE";
    return traced;
  }
  constexpr intptr_t kOptions = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                                PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
  COLDSNAP_CHECK(::ptrace(PTRACE_SETOPTIONS, child, nullptr, kOptions) == 0);
  Continue(child, 0);
  for (;;) {
    const pid_t pid = ::waitpid(-1, &status, __WALL);
    if (pid < 0 && errno == EINTR) continue;
    if (pid < 0) break;  // all have ended
    if (WIFSTOPPED(status)) {
      if (WSTOPSIG(status) == (SIGTRAP | 0x80)) watch.Stopped(pid);
      Continue(pid, SignalFor(status));
    } else if (pid == child) {
      traced.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
  }
  traced.history = std::move(watch).Take();
  return traced;
}

}  // namespace coldsnap
