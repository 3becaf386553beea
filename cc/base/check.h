// CHECK: a broken invariant of our own stops the process and says which one. Bad input never gets here: it is a Status.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace coldsnap {

[[noreturn]] inline void CheckFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "coldsnap: broken invariant at %s:%d: %s\n", file, line, condition);
  std::abort();
}

}  // namespace coldsnap

#define COLDSNAP_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::coldsnap::CheckFailed(__FILE__, __LINE__, #condition))
