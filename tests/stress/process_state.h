// What a process holds, by the kernel's own account: what must be the same after a thousand restores as before them.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <string>

#include "cc/base/check.h"

namespace coldsnap {

struct ProcessState {
  int64_t descriptors = 0;
  int64_t threads = 0;
  int64_t mappings = 0;
  // Neighbouring mappings of one kind are one line in /proc/self/maps, so a leak may show here alone.
  int64_t resident_bytes = 0;
};

inline ProcessState TakeProcessState() {
  namespace fs = std::filesystem;
  const auto entries = [](const char* folder) {
    return static_cast<int64_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  };
  ProcessState state{.descriptors = entries("/proc/self/fd"), .threads = entries("/proc/self/task")};
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) ++state.mappings;
  std::ifstream statm("/proc/self/statm");
  int64_t mapped_pages = 0;
  int64_t resident_pages = 0;
  COLDSNAP_CHECK(statm >> mapped_pages >> resident_pages);
  state.resident_bytes = resident_pages * ::sysconf(_SC_PAGESIZE);
  return state;
}

inline std::ostream& operator<<(std::ostream& out, const ProcessState& state) {
  return out << state.descriptors << " descriptors, " << state.threads << " threads, " << state.mappings
             << " mappings, " << state.resident_bytes << " bytes resident";
}

}  // namespace coldsnap
