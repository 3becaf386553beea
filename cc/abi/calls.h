// What the functions of the C ABIs have in common: no exception leaves them, a failure becomes the thread's last error,
// and a handle is used by one call at a time.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cc/abi/sized.h"
#include "cc/base/status.h"

namespace coldsnap::abi {

// Of the calling thread, whichever ABI it has called.
Status& LastFailure();
// What is being handled in a catch block.
Status WhatWasThrown() noexcept;

// Runs a function's body. What it returns or throws, if it fails, becomes the thread's last error.
template <typename Body>
int32_t Call(Body&& body) noexcept {
  try {
    Status status = std::forward<Body>(body)();
    if (status.ok()) return 0;
    LastFailure() = std::move(status);
  } catch (...) {
    LastFailure() = WhatWasThrown();
  }
  return -1;
}

// The core's names are literals, so they end with NUL.
inline const char* Literal(std::string_view name) { return name.data(); }

inline std::optional<std::string> TextOf(const char* text) {
  return text == nullptr ? std::nullopt : std::optional<std::string>(text);
}

// The core has int where the ABI has 64 bits; what no setting allows stays out of range.
inline int Count(uint64_t given, int by_default) {
  return given == 0 ? by_default : static_cast<int>(std::min<uint64_t>(given, 1000));
}

// Fills an ABI's error struct; leaves the last error as it is.
template <typename Error>
int32_t TellLastError(std::string_view name, Error* into) noexcept {
  const Status& last = LastFailure();
  const Error told{.code = Literal(CodeName(last.code())),
                   .message = last.message().c_str(),
                   .stage = last.stage().c_str(),
                   .remedy = last.remedy().c_str(),
                   .domain = Literal(DomainName(last.domain())),
                   .native = last.native()};
  try {
    return WriteSized(told, name, into).ok() ? 0 : -1;
  } catch (...) {
    return -1;
  }
}

// One call at a time may use a handle, which has an atomic `busy`.
template <typename Handle>
class Turn {
 public:
  static Result<Turn> Take(Handle* handle) {
    if (handle == nullptr) return Status(Code::kRequestInvalid, "the handle is NULL");
    if (handle->busy.exchange(true)) {
      return Status(Code::kPolicyRefused, "this handle is in use by another call")
          .WithRemedy("wait for it, or open another one");
    }
    return Turn(handle);
  }
  Handle* operator->() const { return handle_.get(); }
  Handle* Keep() && { return handle_.release(); }  // nobody else gets a turn any more

 private:
  struct GiveBack {
    void operator()(Handle* handle) const { handle->busy = false; }
  };
  explicit Turn(Handle* handle) : handle_(handle) {}

  std::unique_ptr<Handle, GiveBack> handle_;
};

}  // namespace coldsnap::abi
