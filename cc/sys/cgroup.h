// Where the limits of this process's control groups stand, whatever the system mounted: version 1, version 2, both side
// by side, or only the container's own part of the tree.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace coldsnap {

// A group is bound by its own limits and by those of every group above it.
struct CgroupChain {
  int version = 0;                   // 1 or 2; 0: no groups for this controller, or none to be seen
  std::vector<std::string> folders;  // this process's group, then its parents as far as they are mounted
};

// The groups of `controller` ("cpu", "memory"). `root` stands before every path that is opened. What should be there
// and can't be seen is said in `notes`.
CgroupChain FindCgroups(const std::string& root, std::string_view controller, std::vector<std::string>& notes);

}  // namespace coldsnap
