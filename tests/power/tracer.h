// Runs a program and writes down what it does to one folder, whoever in it does it: its system calls are watched with
// ptrace, those of its threads, children and libraries too.
//
// What is done by calls that the tracer doesn't know (stores through a mapping, copy_file_range) is not seen; a test
// holds the whole history against the tree on disk, where it shows. Of syncs, fsync and fdatasync count, for what was
// done before they were called; sync_file_range doesn't, since it reaches neither sizes nor the drive's own cache.
#pragma once

#include <functional>
#include <string>

#include "tests/power/history.h"

namespace coldsnap {

struct Traced {
  std::string why_not;  // the system lets nobody trace; empty if it does
  int exit_code = -1;   // of the program; -1 if a signal ended it
  History history;
};

// `program` runs in a forked child, which ends with what it returns; it may exec. `folder` is empty before.
Traced Trace(const std::string& folder, const std::function<int()>& program);

}  // namespace coldsnap
