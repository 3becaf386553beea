// What the binding files share: each registers its part of the module, and turns a failed Status into an exception.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/types.h"

namespace coldsnap {

void BindArtifact(nanobind::module_& m);
void BindCapture(nanobind::module_& m);
void BindHydrate(nanobind::module_& m);
void BindLayout(nanobind::module_& m);
void BindMachine(nanobind::module_& m);

// Raises what coldsnap.errors.from_native makes of the failure. Takes the GIL if it has to.
[[noreturn]] void Throw(const Status& status);

inline void ThrowIfError(const Status& status) {
  if (!status.ok()) Throw(status);
}
template <typename T>
T ValueOrThrow(Result<T> result) {
  ThrowIfError(result.status());
  return *std::move(result);
}

// As receipts have them: [{"code": ..., "detail": ...}].
nanobind::list ListOf(const std::vector<Reason>& reasons);

}  // namespace coldsnap
