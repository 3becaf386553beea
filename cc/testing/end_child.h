// How a forked child of a test ends: at once, as _exit() does, without what the parent's exit would do a second time.
#pragma once

#include <unistd.h>

// gcc's, in a build with --config=coverage; elsewhere there is none.
extern "C" [[gnu::weak]] void __gcov_dump();  // NOLINT(bugprone-reserved-identifier,readability-identifier-naming)

namespace coldsnap {

// Ends the process with `status`; under --config=coverage the lines that it ran count.
[[noreturn]] inline void EndChild(int status) {
  if (__gcov_dump != nullptr) __gcov_dump();
  ::_exit(status);
}

}  // namespace coldsnap
