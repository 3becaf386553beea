#include "cc/sys/limits.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <string_view>

#include "cc/base/status.h"
#include "cc/sys/cgroup.h"
#include "cc/sys/numa.h"
#include "cc/sys/pseudo_file.h"

namespace coldsnap {
namespace {

using Notes = std::vector<std::string>;
using Words = std::vector<std::string_view>;

constexpr uint64_t kNoLimit = uint64_t{1} << 62;  // version 1 says "no limit" as the last page below 2^63
constexpr uint64_t kMaxLocalRanks = 1024;

// The first that says something counts: torchrun's name, then those of the programs that start ranks.
constexpr std::array kRankVariables{"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE",
                                    "MV2_COMM_WORLD_LOCAL_SIZE"};

// The text of a file; nothing when it is not there, as in the root group and where a controller is off.
std::optional<std::string> ReadIfThere(const std::string& path, Notes& notes) {
  Result<std::string> text = ReadPseudoFile(path);
  if (text.ok()) return *std::move(text);
  if (text.status().native() != ENOENT) notes.push_back(text.status().message() + "; this limit is unknown");
  return std::nullopt;
}

void NoteNonsense(Notes& notes, const std::string& path, std::string_view text) {
  const std::string_view line = text.substr(0, std::min(text.find('\n'), size_t{80}));
  notes.push_back(StrCat("read ", path, ": \"", line, "\" is not what stands there on Linux; this limit is unknown"));
}

bool IsNoLimit(std::string_view word) { return word == "max" || word == "-1"; }

// The number in a file; nothing for "no limit" too.
std::optional<uint64_t> ReadNumber(const std::string& path, Notes& notes) {
  const std::optional<std::string> text = ReadIfThere(path, notes);
  if (!text) return std::nullopt;
  const Words words = Split(*text, " \n");
  if (words.size() == 1 && IsNoLimit(words[0])) return std::nullopt;
  const std::optional<uint64_t> number = words.size() == 1 ? ParseCount(words[0]) : std::nullopt;
  if (!number) NoteNonsense(notes, path, *text);
  return number;
}

// The number in the line "name number".
std::optional<uint64_t> FieldOf(std::string_view text, std::string_view name) {
  for (const std::string_view line : Split(text, "\n")) {
    const Words words = Split(line, " ");
    if (words.size() == 2 && words[0] == name) return ParseCount(words[1]);
  }
  return std::nullopt;
}

// One group's quota in processors. Version 2 has both numbers in one file, version 1 in two.
std::optional<double> QuotaOf(const std::string& folder, int version, Notes& notes) {
  const std::string path = folder + (version == 2 ? "/cpu.max" : "/cpu.cfs_quota_us");
  std::optional<std::string> text = ReadIfThere(path, notes);
  if (!text) return std::nullopt;
  if (version == 1) *text += " " + ReadIfThere(folder + "/cpu.cfs_period_us", notes).value_or("");
  const Words words = Split(*text, " \n");
  if (!words.empty() && IsNoLimit(words[0])) return std::nullopt;
  const uint64_t quota_us = words.size() == 2 ? ParseCount(words[0]).value_or(0) : 0;
  const uint64_t period_us = words.size() == 2 ? ParseCount(words[1]).value_or(0) : 0;
  if (quota_us != 0 && period_us != 0) return static_cast<double>(quota_us) / static_cast<double>(period_us);
  NoteNonsense(notes, path, *text);
  return std::nullopt;
}

void ReadCpus(const LimitSources& sources, Limits& limits) {
  if (sources.affinity_cpus) {
    limits.affinity_cpus = *sources.affinity_cpus;
  } else if (const Result<std::vector<int>> own = OwnCpus(); own.ok()) {
    limits.affinity_cpus = static_cast<int>(own->size());
  } else {
    limits.notes.push_back(own.status().message() + "; counting on one processor");
  }
  const CgroupChain chain = FindCgroups(sources.root, "cpu", limits.notes);
  for (const std::string& folder : chain.folders) {
    const std::optional<double> quota = QuotaOf(folder, chain.version, limits.notes);
    if (quota && (!limits.cpu_quota || *quota < *limits.cpu_quota)) limits.cpu_quota = quota;
  }
  const double cpus = std::min<double>(limits.affinity_cpus, std::ceil(limits.cpu_quota.value_or(kMaxCpus)));
  limits.usable_cpus = std::max(1, static_cast<int>(cpus));
}

struct MemoryFiles {
  std::vector<std::string> limits;
  std::string usage;
  std::vector<std::string> page_cache;  // fields of memory.stat that count the groups below too
};
MemoryFiles MemoryFilesOf(int version) {
  if (version == 1) {
    return {{"/memory.limit_in_bytes"}, "/memory.usage_in_bytes", {"total_inactive_file", "total_active_file"}};
  }
  // Beyond memory.high nothing fails, but every allocation waits until others have been written out.
  return {{"/memory.max", "/memory.high"}, "/memory.current", {"inactive_file", "active_file"}};
}

// What a group uses and would not give up. Unknown use counts as none: the limit itself still bounds what is left.
uint64_t KeptBytes(const std::string& folder, const MemoryFiles& files, Notes& notes) {
  const uint64_t used = ReadNumber(folder + files.usage, notes).value_or(0);
  const std::string stat = ReadIfThere(folder + "/memory.stat", notes).value_or("");
  uint64_t page_cache = 0;
  for (const std::string& field : files.page_cache) page_cache += FieldOf(stat, field).value_or(0);
  return used - std::min(used, page_cache);
}

void ReadMemory(const LimitSources& sources, Limits& limits) {
  const CgroupChain chain = FindCgroups(sources.root, "memory", limits.notes);
  const MemoryFiles files = MemoryFilesOf(chain.version);
  for (const std::string& folder : chain.folders) {
    std::optional<uint64_t> limit;
    std::string source;
    for (const std::string& name : files.limits) {
      const std::optional<uint64_t> found = ReadNumber(folder + name, limits.notes);
      if (!found || *found >= limit.value_or(kNoLimit)) continue;
      limit = found;
      source = folder + name;
    }
    if (!limit) continue;
    const uint64_t left = *limit - std::min(*limit, KeptBytes(folder, files, limits.notes));
    if (left >= limits.memory_headroom_bytes.value_or(kNoLimit)) continue;
    limits.memory_headroom_bytes = left;
    limits.memory_source = source;
  }
}

void ReadRanks(const LimitSources& sources, Limits& limits) {
  for (const char* name : kRankVariables) {
    const char* const text = sources.environment(name);
    if (text == nullptr || *text == '\0') continue;
    const uint64_t ranks = ParseCount(text).value_or(0);
    if (ranks >= 1 && ranks <= kMaxLocalRanks) {
      limits.local_ranks = static_cast<int>(ranks);
      limits.local_ranks_source = name;
      return;
    }
    limits.notes.push_back(
        StrCat("read ", name, ": \"", text, "\" is no number of ranks from 1 to ", kMaxLocalRanks, "; ignored"));
  }
}

}  // namespace

Limits ReadLimits(const LimitSources& sources) {
  Limits limits;
  ReadCpus(sources, limits);
  ReadMemory(sources, limits);
  ReadRanks(sources, limits);
  limits.cpus_per_rank = std::max(1, limits.usable_cpus / limits.local_ranks);
  return limits;
}

std::optional<double> ThrottledSeconds(const LimitSources& sources) {
  Notes ignored;  // ReadLimits() says them
  const CgroupChain chain = FindCgroups(sources.root, "cpu", ignored);
  const bool v1 = chain.version == 1;
  std::optional<double> seconds;
  for (const std::string& folder : chain.folders) {
    const std::string stat = ReadIfThere(folder + "/cpu.stat", ignored).value_or("");
    const std::optional<uint64_t> count = FieldOf(stat, v1 ? "throttled_time" : "throttled_usec");
    if (count) seconds = seconds.value_or(0) + static_cast<double>(*count) / (v1 ? 1e9 : 1e6);
  }
  return seconds;
}

}  // namespace coldsnap
