// Owned<Traits>: one way to own a handle that the system gave us, whatever it is.
//
// A trait names the handle's type, the value that means none, and how to give it back. Close() says how giving back
// went; the destructor can only log it, so whoever cares (a writer before it publishes) calls Close().
#pragma once

#include <cstdio>
#include <utility>

#include "cc/base/status.h"

namespace coldsnap {

template <typename Traits>
class Owned {
 public:
  using Handle = typename Traits::Handle;

  Owned() noexcept = default;
  explicit Owned(Handle handle) noexcept : handle_(handle) {}
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, Traits::kNone)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (const Status status = std::move(*this).Close(); !status.ok()) {
      std::fprintf(stderr, "coldsnap: %s\n", status.message().c_str());
    }
  }

  const Handle& get() const { return handle_; }
  explicit operator bool() const { return !(handle_ == Traits::kNone); }

  Status Close() && {
    const Handle handle = std::exchange(handle_, Traits::kNone);
    return handle == Traits::kNone ? Status::Ok() : Traits::Release(handle);
  }

 private:
  Handle handle_ = Traits::kNone;
};

}  // namespace coldsnap
