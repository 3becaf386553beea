// The restore.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cc/device/gpu.h"
#include "cc/hydrate/hydrate.h"
#include "py/coldsnap/_native/bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace coldsnap {
namespace {

Backend BackendOf(const std::string& name) {
  if (name == "auto") return Backend::kAuto;
  if (name == "buffered") return Backend::kBuffered;
  if (name == "direct") return Backend::kDirect;
  Throw(Status(Code::kRequestInvalid, StrCat("route is \"", name, "\", it must be auto, buffered or direct")));
}

Verify VerifyOf(const std::string& name) {
  if (name == "crc32") return Verify::kCrc32;
  if (name == "crc32+sha256") return Verify::kCrc32Sha256;
  Throw(Status(Code::kRequestInvalid, StrCat("verify is \"", name, "\", it must be crc32 or crc32+sha256")));
}

// Runs `tick` of Python, and pending signal handlers, in the thread that called. What either raises is kept and raised
// in place of the cancellation, once the restore has drained.
class PythonTick {
 public:
  explicit PythonTick(nb::object callback) : callback_(std::move(callback)) {}

  Status operator()(uint64_t done, uint64_t total) {
    const nb::gil_scoped_acquire gil;
    try {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (callback_.is_none() || !nb::cast<bool>(nb::bool_(callback_(done, total)))) return Status::Ok();
    } catch (nb::python_error&) {
      raised_ = std::current_exception();
    }
    return Status(Code::kCancelled, StrCat("cancelled after ", done, " of ", total, " bytes"));
  }
  void RethrowIfRaised() const {
    if (raised_) std::rethrow_exception(raised_);
  }

 private:
  nb::object callback_;
  std::exception_ptr raised_;
};

nb::object Fraction(const std::optional<double>& value) { return value ? nb::object(nb::float_(*value)) : nb::none(); }

nb::dict DictOf(const HydrateReport& report) {
  nb::dict route;
  route["route"] = std::string(RouteName(report.route));
  route["bytes"] = report.payload_bytes;
  route["extents"] = report.extents;
  nb::list routes;
  routes.append(route);
  nb::list reasons;
  for (const Reason& reason : report.reasons) {
    nb::dict entry;
    entry["code"] = reason.code;
    entry["detail"] = reason.detail;
    reasons.append(entry);
  }
  nb::dict stages;
  stages["open"] = report.stages_s.open;
  stages["ring"] = report.stages_s.ring;
  stages["read"] = report.stages_s.read;
  stages["digest"] = report.stages_s.digest;
  stages["copy"] = report.stages_s.copy;
  stages["drain"] = report.stages_s.drain;
  stages["publish"] = report.stages_s.publish;
  nb::dict residency;
  residency["before"] = Fraction(report.residency_before);
  residency["after"] = Fraction(report.residency_after);
  nb::dict out;
  out["routes"] = routes;
  out["reasons"] = reasons;
  out["stages_s"] = stages;
  out["wall_s"] = report.wall_s;
  out["payload_bytes"] = report.payload_bytes;
  out["read_bytes"] = report.read_bytes;
  out["residency"] = residency;
  out["chunk_bytes"] = report.chunk_bytes;
  out["queue_depth"] = report.queue_depth;
  out["read_threads"] = report.read_threads;
  out["pinned_bytes"] = report.pinned_bytes;
  return out;
}

using RangeRow = std::tuple<uint32_t, uint64_t, uint64_t>;  // extent, address, nbytes

nb::dict Run(const OpenArtifact& artifact, const std::vector<RangeRow>& ranges, const std::string& device,
             const std::string& route, const std::string& verify, uint64_t chunk_bytes, int queue_depth,
             int read_threads, uint64_t pinned_max_bytes, const std::vector<uintptr_t>& streams, nb::object tick) {
  std::vector<ExtentTarget> targets;
  for (const auto& [extent, address, nbytes] : ranges) targets.push_back({extent, {address, nbytes}});
  PythonTick python_tick(std::move(tick));
  const HydrateOptions options{.backend = BackendOf(route),
                               .verify = VerifyOf(verify),
                               .chunk_bytes = chunk_bytes,
                               .queue_depth = queue_depth,
                               .read_threads = read_threads,
                               .pinned_max_bytes = pinned_max_bytes,
                               .streams = streams,
                               .tick = std::ref(python_tick)};
  const Result<HydrateReport> report = [&]() -> Result<HydrateReport> {
    const nb::gil_scoped_release release;
    ASSIGN_OR_RETURN(const std::unique_ptr<Gpu> gpu, OpenGpu(device));
    return Hydrate(artifact, targets, *gpu, options);
  }();
  // Losing the device outranks whatever cancelled the restore: the process must learn of it.
  if (report.status().code() == Code::kCancelled) python_tick.RethrowIfRaised();
  ThrowIfError(report.status());
  return DictOf(*report);
}

}  // namespace

void BindHydrate(nb::module_& m) {
  m.def("hydrate", &Run, "artifact"_a, "ranges"_a, "device"_a, "route"_a, "verify"_a, "chunk_bytes"_a, "queue_depth"_a,
        "read_threads"_a, "pinned_max_bytes"_a, "streams"_a, "tick"_a.none(),
        "Fills ranges (extent, address, nbytes) of `device` from the artifact; `coldsnap.hydrate` is the checked "
        "form.\n\n"
        "`tick(done, total)` runs in the calling thread at most 20 times a second; True cancels, and so does what it "
        "raises.");
}

}  // namespace coldsnap
