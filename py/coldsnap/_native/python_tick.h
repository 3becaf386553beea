// Progress and cancellation of a flow by functions of Python.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <exception>
#include <utility>

#include "cc/base/status.h"

namespace coldsnap {

// Runs functions of Python, and pending signal handlers, in the thread that called. What they raise is kept and raised
// in place of the failure that it makes, once the flow has drained.
class PythonTick {
 public:
  explicit PythonTick(nanobind::object callback) : callback_(std::move(callback)) {}

  Status operator()(uint64_t done, uint64_t total) {
    const nanobind::gil_scoped_acquire gil;
    try {
      if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
      if (callback_.is_none() || !nanobind::cast<bool>(nanobind::bool_(callback_(done, total)))) return Status::Ok();
    } catch (nanobind::python_error&) {
      raised_ = std::current_exception();
    }
    return Status(Code::kCancelled, StrCat("cancelled after ", done, " of ", total, " bytes"));
  }
  // A function that raises if the restore must not be published.
  Status Confirm(const nanobind::object& confirm) {
    const nanobind::gil_scoped_acquire gil;
    try {
      if (!confirm.is_none()) confirm();
      return Status::Ok();
    } catch (nanobind::python_error&) {
      raised_ = std::current_exception();
    }
    return Status(Code::kInternal, "the restore was not confirmed");
  }
  void RethrowIfRaised() const {
    if (raised_) std::rethrow_exception(raised_);
  }

 private:
  nanobind::object callback_;
  std::exception_ptr raised_;
};

}  // namespace coldsnap
