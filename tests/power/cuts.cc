#include "tests/power/cuts.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "cc/base/check.h"
#include "cc/base/strcat.h"
#include "cc/testing/temp_dir.h"
#include "tests/power/tracer.h"

namespace coldsnap {
namespace {

constexpr size_t kFewPending = 10;  // up to so many changes, every subset of them is looked at
constexpr int kNoRoute = 77;        // an exit code of no shell's

}  // namespace

Writer PythonWriter(const std::string& operation) {
  return [operation](const std::string& folder) -> Status {
    const std::string program = std::filesystem::absolute("tests/power/captures").string();
    const pid_t child = ::fork();
    if (child < 0) return Status::FromErrno(errno, "fork");
    if (child == 0) {
      ::execl(program.c_str(), program.c_str(), operation.c_str(), folder.c_str(), nullptr);
      ::_exit(127);
    }
    int status = 0;
    COLDSNAP_CHECK(::waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return Status::Ok();
    const bool exists = WIFEXITED(status) && WEXITSTATUS(status) == 3;
    return Status(exists ? Code::kExists : Code::kInternal, StrCat(program, " ended with ", status));
  };
}

Recorded Record(const Writer& write) {
  const TempDir temp;
  Traced traced = Trace(temp.path(), [&] {
    const Status status = write(temp.path());
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
    if (status.code() == Code::kRouteUnavailable) return kNoRoute;
    return status.ok() ? 0 : 1;
  });
  std::string why_not = std::move(traced.why_not);
  if (traced.exit_code == kNoRoute) why_not = "the file system of the test's folder has no direct I/O";
  return {.why_not = std::move(why_not),
          .exit_code = traced.exit_code,
          .history = std::move(traced.history),
          .left = ReadTree(temp.path())};
}

std::vector<bool> AllOf(size_t count) { return std::vector<bool>(count, true); }

bool EachState(const History& history, std::mt19937_64& random, const std::function<bool(size_t count)>& matters,
               const Seen& seen) {
  for (size_t count = 0; count <= history.changes.size(); ++count) {
    const Cut cut = CutAfter(history, count);
    const size_t pending = cut.pending.size();
    const auto with = [&](const std::function<bool(size_t)>& keep) {
      std::vector<bool> kept = cut.safe;
      for (size_t i = 0; i < pending; ++i) kept[cut.pending[i]] = keep(i);
      return seen(kept);
    };
    if (!with([](size_t) { return true; }) || !with([](size_t) { return false; })) return false;
    if (!matters(count)) continue;
    if (pending <= kFewPending) {
      for (size_t subset = 0; subset < size_t{1} << pending; ++subset) {
        if (!with([subset](size_t i) { return (subset >> i & 1) != 0; })) return false;
      }
      continue;
    }
    for (size_t one = 0; one < pending; ++one) {
      if (!with([one](size_t i) { return i != one; }) || !with([one](size_t i) { return i == one; })) return false;
    }
    for (int round = 0; round < 20; ++round) {
      if (!with([&random](size_t) { return random() % 2 == 0; })) return false;
    }
  }
  return true;
}

std::vector<bool> SomeState(const History& history, size_t count, std::mt19937_64& random) {
  const Cut cut = CutAfter(history, count);
  std::vector<bool> kept = cut.safe;
  for (const size_t i : cut.pending) kept[i] = random() % 2 == 0;
  return kept;
}

std::string LostOf(const History& history, const std::vector<bool>& kept) {
  std::string text = StrCat("after ", kept.size(), " changes, without:");
  for (size_t i = 0; i < kept.size(); ++i) {
    if (!kept[i] && !IsSync(history.changes[i])) text += "\n  " + TextOf(history.changes[i]);
  }
  return text;
}

History Without(const History& history, size_t sync) {
  History other = history;
  other.changes.erase(other.changes.begin() + static_cast<ptrdiff_t>(sync));
  return other;
}

}  // namespace coldsnap
