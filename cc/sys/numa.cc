#include "cc/sys/numa.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <iterator>

#include "cc/sys/pseudo_file.h"

namespace coldsnap {
namespace {

// glibc's own set ends at 1024, and the kernel refuses a set that is too small for the machine.
using CpuMask = std::array<cpu_set_t, kMaxCpus / CPU_SETSIZE>;

// "domain:bus:device.function", hexadecimal, as sysfs spells it: lower case, four digits of domain unless it has more.
std::optional<std::string> SysfsNameOf(std::string_view bus_id) {
  std::array<unsigned, 4> numbers{};
  for (size_t i = 0; i < numbers.size(); ++i) {
    const size_t digits = std::min(bus_id.find("::."[i]), bus_id.size());  // the last number ends with the text
    const auto [stop, error] = std::from_chars(bus_id.data(), bus_id.data() + digits, numbers[i], 16);
    if (error != std::errc() || stop != bus_id.data() + digits) return std::nullopt;
    bus_id.remove_prefix(std::min(digits + 1, bus_id.size()));
  }
  const auto [domain, bus, device, function] = numbers;
  if (bus > 0xff || device > 0x1f || function > 7) return std::nullopt;
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "%04x:%02x:%02x.%x", domain, bus, device, function);
  return name.data();
}

std::string NodeFolder(const std::string& root, int node) {
  return StrCat(root, "/sys/devices/system/node/node", node);
}

}  // namespace

Result<std::vector<int>> ParseCpuList(std::string_view text) {
  std::vector<int> cpus;
  for (const std::string_view range : Split(text, ",\n")) {
    const size_t dash = std::min(range.find('-'), range.size());
    const std::optional<uint64_t> first = ParseCount(range.substr(0, dash));
    const std::optional<uint64_t> last = dash == range.size() ? first : ParseCount(range.substr(dash + 1));
    const uint64_t after = cpus.empty() ? 0 : static_cast<uint64_t>(cpus.back()) + 1;
    if (!first || !last || *first < after || *last < *first || *last >= kMaxCpus) {
      return Status(Code::kIo, StrCat("read a list of processors: \"", range, "\" is no range that may stand there"));
    }
    for (uint64_t cpu = *first; cpu <= *last; ++cpu) cpus.push_back(static_cast<int>(cpu));
  }
  return cpus;
}

Result<std::vector<int>> OwnCpus() {
  CpuMask mask{};
  if (::sched_getaffinity(0, sizeof(mask), mask.data()) != 0) {
    return Status::FromErrno(errno, "ask for the processors of this thread");
  }
  std::vector<int> cpus;
  for (int cpu = 0; cpu < kMaxCpus; ++cpu) {
    if (CPU_ISSET_S(cpu, sizeof(mask), mask.data())) cpus.push_back(cpu);
  }
  return cpus;
}

int CountNodes(const std::string& root) {
  const Result<std::string> text = ReadPseudoFile(root + "/sys/devices/system/node/online");
  if (!text.ok()) return 1;
  const Result<std::vector<int>> nodes = ParseCpuList(*text);
  return nodes.ok() ? std::max(1, static_cast<int>(nodes->size())) : 1;
}

Result<std::optional<int>> NodeOfPciDevice(std::string_view bus_id, const std::string& root) {
  const std::string doing = StrCat("find the NUMA node of PCI device ", bus_id);
  const std::optional<std::string> name = SysfsNameOf(bus_id);
  if (!name) return Status(Code::kRequestInvalid, doing + ": that is no bus id").WithRemedy("write it as 0000:1b:00.0");
  if (CountNodes(root) == 1) return std::optional<int>();
  const Result<std::string> text = ReadPseudoFile(StrCat(root, "/sys/bus/pci/devices/", *name, "/numa_node"));
  if (!text.ok()) return text.status().Prefixed(doing + ": ");
  const std::vector<std::string_view> words = Split(*text, "\n");
  if (words.size() == 1 && words[0] == "-1") return std::optional<int>();
  const std::optional<uint64_t> node = words.size() == 1 ? ParseCount(words[0]) : std::nullopt;
  if (!node || *node >= kMaxNodes) return Status(Code::kIo, StrCat(doing, ": numa_node says \"", *text, "\""));
  return std::optional<int>(static_cast<int>(*node));
}

Result<std::vector<int>> CpusOfNode(int node, const std::string& root) {
  ASSIGN_OR_RETURN(const std::string text, ReadPseudoFile(NodeFolder(root, node) + "/cpulist"));
  return ParseCpuList(text);
}

Status PreferNode(std::span<std::byte> memory, int node) {
  const std::string doing = StrCat("place ", memory.size(), " bytes on NUMA node ", node);
  if (node < 0 || node >= kMaxNodes) return Status(Code::kRequestInvalid, doing + ": there is no such node");
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  std::array<unsigned long, kMaxNodes / kBits> nodes{};
  nodes[static_cast<size_t>(node) / kBits] = 1UL << (static_cast<size_t>(node) % kBits);
  // The kernel looks at one bit less than it is told.
  if (::syscall(SYS_mbind, memory.data(), memory.size(), MPOL_PREFERRED, nodes.data(), kMaxNodes + 1, MPOL_MF_MOVE) !=
      0) {
    return Status::FromErrno(errno, doing);
  }
  return Status::Ok();
}

Status StayOnNode(int node, const std::string& root) {
  const std::string doing = StrCat("keep a thread on NUMA node ", node, ": ");
  Result<std::vector<int>> near = CpusOfNode(node, root);
  if (!near.ok()) return near.status().Prefixed(doing);
  Result<std::vector<int>> own = OwnCpus();
  if (!own.ok()) return own.status().Prefixed(doing);
  std::vector<int> both;
  std::set_intersection(near->begin(), near->end(), own->begin(), own->end(), std::back_inserter(both));
  if (both.empty()) {
    return Status(Code::kPolicyRefused, StrCat(doing, "none of its ", near->size(), " processors is among the ",
                                               own->size(), " that this thread may use"));
  }
  CpuMask mask{};
  for (const int cpu : both) CPU_SET_S(cpu, sizeof(mask), mask.data());
  if (::sched_setaffinity(0, sizeof(mask), mask.data()) != 0) {
    return Status::FromErrno(errno, StrCat(doing, "set ", both.size(), " processors"));
  }
  return Status::Ok();
}

}  // namespace coldsnap
