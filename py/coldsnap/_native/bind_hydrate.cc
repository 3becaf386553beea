// Restores.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cc/device/gpu.h"
#include "cc/device/place.h"
#include "cc/hydrate/hydrate.h"
#include "cc/hydrate/names.h"
#include "cc/hydrate/trace.h"
#include "py/coldsnap/_native/bindings.h"
#include "py/coldsnap/_native/python_tick.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace coldsnap {
namespace {

nb::object Fraction(const std::optional<double>& value) { return value ? nb::object(nb::float_(*value)) : nb::none(); }

nb::dict DictOf(const HydrateReport& report) {
  nb::list routes;
  for (const Route each : kRoutes) {
    const HydrateReport::Part& part = report.By(each);
    if (part.extents == 0) continue;
    nb::dict route;
    route["route"] = std::string(RouteName(each));
    route["bytes"] = part.nbytes;
    route["extents"] = part.extents;
    routes.append(route);
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
  out["reasons"] = ListOf(report.reasons);
  out["stages_s"] = stages;
  out["wall_s"] = report.wall_s;
  out["payload_bytes"] = report.payload_bytes;
  out["read_bytes"] = report.read_bytes;
  out["residency"] = residency;
  out["chunk_bytes"] = report.chunk_bytes;
  out["queue_depth"] = report.queue_depth;
  out["pinned_bytes"] = report.pinned_bytes;
  out["place"] = std::string(PlaceName(report.place));
  out["gds_path"] = report.gds ? nb::object(nb::str(std::string(GdsPathName(report.gds->path)).c_str())) : nb::none();
  out["gds_evidence"] = report.gds ? report.gds->text : "";
  return out;
}

using RangeRow = std::tuple<uint32_t, uint64_t, uint64_t>;  // extent, address, nbytes

// The names and meanings of HydrateOptions.
HydrateOptions OptionsOf(const nb::dict& settings) {
  const auto number = [&settings](const char* name) {
    if (!settings.contains(name)) Throw(Status(Code::kRequestInvalid, StrCat("settings have no ", name)));
    return nb::cast<int64_t>(settings[name]);
  };
  const auto small = [&number](const char* name) {
    return static_cast<int>(std::clamp<int64_t>(number(name), -1, 1000));
  };
  return {.chunk_bytes = static_cast<uint64_t>(number("chunk_bytes")),
          .queue_depth = small("queue_depth"),
          .read_threads = small("read_threads"),
          .direct_chunk_bytes = static_cast<uint64_t>(number("direct_chunk_bytes")),
          .direct_queue_depth = small("direct_queue_depth"),
          .direct_read_threads = small("direct_read_threads"),
          .hash_threads = small("hash_threads"),
          .pinned_max_bytes = static_cast<uint64_t>(number("pinned_max_bytes"))};
}

// A Hydrator with the device that it needs.
class DeviceHydrator {
 public:
  explicit DeviceHydrator(const std::string& device) : gpu_(ValueOrThrow(OpenGpu(device))), hydrator_(*gpu_) {}
  Gpu& gpu() { return *gpu_; }
  Hydrator& hydrator() { return hydrator_; }

 private:
  std::unique_ptr<Gpu> gpu_;
  Hydrator hydrator_;
};

nb::dict Run(DeviceHydrator& self, const OpenArtifact& artifact, const std::vector<RangeRow>& ranges,
             const std::string& route, const std::string& verify, const nb::dict& settings,
             const std::vector<uintptr_t>& streams, nb::object tick, const nb::object& confirm, Trace* trace,
             const std::string& place) {
  std::vector<ExtentTarget> targets;
  for (const auto& [extent, address, nbytes] : ranges) targets.push_back({extent, {address, nbytes}});
  PythonTick python_tick(std::move(tick));
  HydrateOptions options = OptionsOf(settings);
  options.backend = ValueOrThrow(BackendNamed(route));
  options.verify = ValueOrThrow(VerifyNamed(verify));
  options.place = ValueOrThrow(PlaceNamed(place));
  options.streams = streams;
  options.tick = std::ref(python_tick);
  options.confirm = [&] { return python_tick.Confirm(confirm); };
  options.trace = trace;
  const Result<HydrateReport> report = [&] {
    const nb::gil_scoped_release release;
    return self.hydrator().Hydrate(artifact, targets, options);
  }();
  // Losing the device outranks whatever stopped the restore: the process must learn of it.
  if (!report.ok() && report.status().code() != Code::kDeviceLost) python_tick.RethrowIfRaised();
  ThrowIfError(report.status());
  return DictOf(*report);
}

double Prepare(DeviceHydrator& self, const std::string& route, const nb::dict& settings) {
  HydrateOptions options = OptionsOf(settings);
  options.backend = ValueOrThrow(BackendNamed(route));
  const nb::gil_scoped_release release;
  return ValueOrThrow(self.hydrator().Prepare(options));
}

}  // namespace

void BindHydrate(nb::module_& m) {
  nb::class_<Trace>(m, "Trace",
                    "What each thread of the restores that got it did, and when: the first 1,000,000 spans.")
      .def(nb::init<>())
      .def("to_json", &Trace::ToJson, nb::call_guard<nb::gil_scoped_release>(),
           "For Perfetto and chrome://tracing; times are those of `time.monotonic_ns()`, in microseconds.")
      .def_prop_ro("dropped", &Trace::dropped, "Spans beyond the limit, which were not kept.");
  nb::class_<DeviceHydrator>(
      m, "Hydrator",
      "Restores into one device, and what they use again: pinned ring, threads, streams. "
      "`coldsnap.hydrate` and `coldsnap.Hydrator` are the checked forms.\n\n"
      "`settings` has whole numbers: chunk_bytes, queue_depth, read_threads, "
      "direct_chunk_bytes, direct_queue_depth, direct_read_threads, hash_threads, pinned_max_bytes.")
      .def(nb::init<const std::string&>(), "device"_a)
      .def("prepare", &Prepare, "route"_a, "settings"_a,
           "Makes ring, threads and streams before the first restore; seconds that it took.")
      .def("hydrate", &Run, "artifact"_a, "ranges"_a, "route"_a, "verify"_a, "settings"_a, "streams"_a, "tick"_a.none(),
           "confirm"_a.none() = nb::none(), "trace"_a.none() = nb::none(), "place"_a = "auto",
           "Fills ranges (extent, address, nbytes) of the device from the artifact.\n\n"
           "`tick(done, total)` runs in the calling thread at most 20 times a second; True cancels, and so does what "
           "it raises. `confirm()` has the last word before publishing: what it raises poisons. "
           "`trace` gets what the threads do, also when this raises.");
}

}  // namespace coldsnap
