#include "cc/abi/calls.h"

#include <exception>
#include <new>

namespace coldsnap::abi {
namespace {

// Made beforehand: when it is needed there is no memory to make it. A process that has none for it can't load us
// either. NOLINTNEXTLINE(bugprone-throwing-static-initialization)
const Status host_memory_ran_out(Code::kOutOfMemory, "host memory ran out");

}  // namespace

Status& LastFailure() {
  thread_local Status last_failure;
  return last_failure;
}

Status WhatWasThrown() noexcept {
  try {
    try {
      throw;
    } catch (const std::bad_alloc&) {
      return host_memory_ran_out;
    } catch (const std::exception& error) {
      return Status(Code::kInternal, StrCat("the core threw: ", error.what()));
    } catch (...) {
      return Status(Code::kInternal, "the core threw something that is no std::exception");
    }
  } catch (...) {
    return host_memory_ran_out;
  }
}

}  // namespace coldsnap::abi
