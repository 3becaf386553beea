// Which processors and memory stand near a device, and how to use those: Linux's own interfaces, without libnuma.
//
// Staying near is a help and never a condition: where the system refuses (a seccomp filter, a cpuset), the Status says
// so, nothing has changed, and the caller passes the sentence on and works from where it is.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/status.h"

namespace coldsnap {

inline constexpr int kMaxCpus = 8192;  // the most that Linux is built for
inline constexpr int kMaxNodes = 1024;

// "0-3,8" and a newline or not, as the kernel writes sets of processors and nodes: ascending.
Result<std::vector<int>> ParseCpuList(std::string_view text);

// Processors that the calling thread may run on; cpusets are in it already.
Result<std::vector<int>> OwnCpus();

// In the rest, `root` stands before /sys; tests look elsewhere.

// Nodes that are online; 1 where the system knows none.
int CountNodes(const std::string& root = "");

// The node that a PCI device hangs on, by a bus id as CUDA or NVML spells it ("0000:1b:00.0", "00000000:1B:00.0").
// None on a machine of one node, and where the firmware doesn't say.
Result<std::optional<int>> NodeOfPciDevice(std::string_view bus_id, const std::string& root = "");

// The node's processors; none for a node of memory alone.
Result<std::vector<int>> CpusOfNode(int node, const std::string& root = "");

// Has the pages of `memory` come from the node as long as it has room: those to be touched, and those already touched
// are moved there. So it comes before pinning, and before the first touch if it shall be cheap. `memory` starts at a
// page.
Status PreferNode(std::span<std::byte> memory, int node);

// Keeps the calling thread, and those it starts from now on, on those of its processors that belong to the node.
Status StayOnNode(int node, const std::string& root = "");

}  // namespace coldsnap
