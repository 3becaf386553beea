// How much of the machine this process may use: processors, memory, and its share where several ranks run side by side.
//
// A container bounds a process by its affinity mask (cpuset), by a quota of processor time and by a limit of memory;
// the last two hold for every control group from its own up to the root, and the tightest counts. A limit that can't be
// read is unknown and no failure: `notes` says what could not be read and why.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace coldsnap {

// Where to look; tests look elsewhere.
struct LimitSources {
  std::string root;                  // stands before /proc and /sys
  std::optional<int> affinity_cpus;  // in place of the calling thread's mask
  std::function<const char*(const char*)> environment = [](const char* name) { return std::getenv(name); };
};

struct Limits {
  int affinity_cpus = 1;            // processors in the calling thread's mask
  std::optional<double> cpu_quota;  // processors' worth of time, tightest of all groups; none: no quota
  int usable_cpus = 1;              // the smaller of both, the quota rounded up; at least 1
  int local_ranks = 1;              // processes like this one on this machine, this one too
  std::string local_ranks_source;   // the variable that said so; empty: none did
  int cpus_per_rank = 1;            // usable_cpus divided by local_ranks, at least 1

  // What may still be allocated before a group reaches its limit, the page cache counted as free since the kernel gives
  // it up first; the tightest of all groups. None: no limit.
  std::optional<uint64_t> memory_headroom_bytes;
  std::string memory_source;  // the file with that limit

  std::vector<std::string> notes;
};

Limits ReadLimits(const LimitSources& sources = {});

// How long processors have been held back by quotas since this process's groups were made, added up over processors and
// over the group and its parents. A restore's own share is a difference, if nothing else runs in these groups. None:
// no group that can be seen has a quota to count for.
std::optional<double> ThrottledSeconds(const LimitSources& sources = {});

}  // namespace coldsnap
