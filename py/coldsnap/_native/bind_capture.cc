// Captures: a shard into a folder, the folder that becomes an artifact, and both at once for tests and calibration.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cc/artifact/layout.h"
#include "cc/base/hex.h"
#include "cc/capture/capture.h"
#include "cc/capture/write_artifact.h"
#include "cc/device/gpu.h"
#include "cc/device/place.h"
#include "cc/publish/incoming.h"
#include "cc/publish/publish_artifact.h"
#include "py/coldsnap/_native/bindings.h"
#include "py/coldsnap/_native/python_tick.h"
#include "py/coldsnap/_native/tensor_rows.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace coldsnap {
namespace {

nb::dict Write(std::string path, std::vector<TensorRow> tensors, std::string identity, std::string scalars,
               std::string capture) {
  WriteRequest request{.path = std::move(path),
                       .tensors = SpecsOf(std::move(tensors)),
                       .identity_json = std::move(identity),
                       .scalars_json = std::move(scalars),
                       .capture_json = std::move(capture)};
  const WriteReport report = [&request] {
    const nb::gil_scoped_release release;
    return ValueOrThrow(WriteHostArtifact(std::move(request)));
  }();
  nb::dict out;
  out["artifact_root"] = ToHex(report.artifact_root);
  out["payload_bytes"] = report.shard.payload_bytes;
  out["blob_bytes"] = report.shard.blob_bytes;
  out["extents"] = report.shard.extents;
  out["uncovered_bytes"] = report.shard.uncovered_bytes;
  return out;
}

// The entry of artifact.json, as text: what ranks send each other.
std::string TextOf(const ShardRecord& record) {
  nb::dict entry;
  entry["blob_bytes"] = record.blob_bytes;
  entry["leaves_bytes"] = record.leaves_bytes;
  entry["manifest_bytes"] = record.manifest_bytes;
  entry["manifest_sha256"] = ToHex(record.manifest_sha256);
  entry["name"] = record.name;
  entry["shard_root"] = ToHex(record.shard_root);
  return nb::cast<std::string>(nb::module_::import_("json").attr("dumps")(entry));
}

Sha256 DigestOf(const nb::handle& hex) {
  const std::optional<Sha256> digest = Sha256FromHex(nb::cast<std::string>(hex));
  if (!digest) Throw(Status(Code::kRequestInvalid, "read a shard's record: a digest is not 64 lower-case hex digits"));
  return *digest;
}

ShardRecord RecordOf(const std::string& text) {
  try {
    const nb::object entry = nb::module_::import_("json").attr("loads")(text);
    return {.name = nb::cast<std::string>(entry["name"]),
            .blob_bytes = nb::cast<uint64_t>(entry["blob_bytes"]),
            .leaves_bytes = nb::cast<uint64_t>(entry["leaves_bytes"]),
            .manifest_bytes = nb::cast<uint64_t>(entry["manifest_bytes"]),
            .manifest_sha256 = DigestOf(entry["manifest_sha256"]),
            .shard_root = DigestOf(entry["shard_root"])};
  } catch (const nb::cast_error&) {
    Throw(Status(Code::kRequestInvalid, "read a shard's record: a field has another type"));
  }
}

nb::dict DictOf(const CapturedShard& shard) {
  const CaptureReport& report = shard.report;
  nb::dict route;
  route["route"] = std::string(RouteName(report.route));
  route["bytes"] = report.payload_bytes;
  route["extents"] = report.extents;
  nb::list routes;
  if (report.extents != 0) routes.append(route);
  nb::dict stages;
  stages["open"] = report.stages_s.open;
  stages["ring"] = report.stages_s.ring;
  stages["copy"] = report.stages_s.copy;
  stages["digest"] = report.stages_s.digest;
  stages["write"] = report.stages_s.write;
  stages["source"] = report.stages_s.source;
  stages["sync"] = report.stages_s.sync;
  stages["reread"] = report.stages_s.reread;
  stages["publish"] = report.stages_s.publish;
  nb::dict out;
  out["record"] = TextOf(shard.record);
  out["routes"] = routes;
  out["reasons"] = ListOf(report.reasons);
  out["stages_s"] = stages;
  out["wall_s"] = report.wall_s;
  out["payload_bytes"] = report.payload_bytes;
  out["blob_bytes"] = report.blob_bytes;
  out["extents"] = report.extents;
  out["uncovered_bytes"] = report.uncovered_bytes;
  out["residency_after"] = report.residency_after ? nb::object(nb::float_(*report.residency_after)) : nb::none();
  out["chunk_bytes"] = report.chunk_bytes;
  out["queue_depth"] = report.queue_depth;
  out["write_threads"] = report.write_threads;
  out["pinned_bytes"] = report.pinned_bytes;
  out["place"] = std::string(PlaceName(report.place));
  return out;
}

nb::dict Capture(const std::string& folder, const std::string& shard, std::vector<TensorRow> tensors,
                 const std::string& identity, const std::string& scalars, const std::string& device,
                 const std::string& backend, uint64_t chunk_bytes, int64_t queue_depth, int64_t write_threads,
                 uint64_t pinned_max_bytes, bool preverified, bool check_source, const std::vector<uintptr_t>& streams,
                 nb::object progress, bool resume, const std::string& place) {
  const auto small = [](int64_t number) { return static_cast<int>(std::clamp<int64_t>(number, -1, 1000)); };
  PythonTick tick(std::move(progress));
  const CaptureOptions options{.backend = ValueOrThrow(WriteBackendNamed(backend)),
                               .chunk_bytes = chunk_bytes,
                               .queue_depth = small(queue_depth),
                               .write_threads = small(write_threads),
                               .pinned_max_bytes = pinned_max_bytes,
                               .place = ValueOrThrow(PlaceNamed(place)),
                               .check_source = check_source,
                               .preverified = preverified,
                               .resume = resume,
                               .streams = streams,
                               .tick = std::ref(tick)};
  const Result<CapturedShard> captured = [&]() -> Result<CapturedShard> {
    const nb::gil_scoped_release release;
    ASSIGN_OR_RETURN(Layout layout, PlanLayout(SpecsOf(std::move(tensors))));
    ASSIGN_OR_RETURN(const std::unique_ptr<Gpu> gpu, OpenGpu(device));
    return CaptureShard(folder, shard, std::move(layout), identity, scalars, *gpu, options);
  }();
  if (!captured.ok()) tick.RethrowIfRaised();
  ThrowIfError(captured.status());
  return DictOf(*captured);
}

// An Incoming that is there until it is published or closed.
class OpenIncoming {
 public:
  OpenIncoming(const std::string& parent, const std::string& name, bool keep_shards)
      : incoming_(ValueOrThrow(Incoming::Create(parent, name, keep_shards))), path_(incoming_->path()) {}
  const std::string& path() const { return path_; }
  void Close() {
    const nb::gil_scoped_release release;
    incoming_.reset();
  }
  Incoming Take() {
    if (!incoming_) Throw(Status(Code::kRequestInvalid, StrCat("publish ", path_, ": it is closed")));
    Incoming incoming = *std::move(incoming_);
    incoming_.reset();
    return incoming;
  }

 private:
  std::optional<Incoming> incoming_;
  std::string path_;
};

nb::dict Publish(OpenIncoming& incoming, const std::vector<std::string>& records, const std::string& identity,
                 const std::string& capture, const std::string& destination) {
  std::vector<ShardRecord> shards;
  for (const std::string& record : records) shards.push_back(RecordOf(record));
  const Result<Sha256> root = [&] {
    Incoming taken = incoming.Take();
    const nb::gil_scoped_release release;
    return PublishArtifact(std::move(taken), std::move(shards), identity, capture, destination);
  }();
  ThrowIfError(root.status());
  nb::dict out;
  out["artifact_root"] = ToHex(*root);
  return out;
}

}  // namespace

void BindCapture(nb::module_& m) {
  m.def(
      "write_artifact", &Write, "path"_a, "tensors"_a, "identity_json"_a, "scalars_json"_a, "capture_json"_a,
      "Writes an artifact of one shard from tensors in host memory, which must stay alive and unchanged meanwhile.\n\n"
      "Rows of `tensors`: (name, dtype, shape, strides in elements, address, storage address, storage bytes, object, "
      "role, attrs).");
  m.def("capture_shard", &Capture, "folder"_a, "shard"_a, "tensors"_a, "identity_json"_a, "scalars_json"_a, "device"_a,
        nb::kw_only(), "backend"_a, "chunk_bytes"_a, "queue_depth"_a, "write_threads"_a, "pinned_max_bytes"_a,
        "preverified"_a, "check_source"_a, "streams"_a, "progress"_a.none(), "resume"_a = false, "place"_a = "auto",
        "Writes the shard's folder under `folder` from memory of the device and returns once it is on the drive.\n\n"
        "`record` in the answer goes to `publish_artifact`. `progress(done, total)` runs in the calling thread at most "
        "20 times a second; True cancels, and so does what it raises. After a failure no folder stays.\n\n"
        "`resume` takes up what a killed capture of the same tensors, identity and chunk_bytes left in the folder, and "
        "keeps the journal that this takes.");
  nb::class_<OpenIncoming>(m, "Incoming", "A folder in which an artifact is built, locked; from `create_incoming`.")
      .def_prop_ro("path", &OpenIncoming::path)
      .def("close", &OpenIncoming::Close, "Removes the folder, unless it was published, and the lock.");
  m.def(
      "create_incoming",
      [](const std::string& parent, const std::string& name, bool keep_shards) {
        return OpenIncoming(parent, name, keep_shards);
      },
      "parent"_a, "name"_a, "keep_shards"_a = false,
      "Makes and locks `parent`/`name`; what an ended process left there is removed first, or with `keep_shards` what "
      "is no folder, for captures that resume.");
  m.def(
      "remove_stale_incoming", [](const std::string& parent) { return ValueOrThrow(Incoming::RemoveStale(parent)); },
      "parent"_a, nb::call_guard<nb::gil_scoped_release>(),
      "Removes the folders under `parent` that ended processes left; says how many.");
  m.def("publish_artifact", &Publish, "incoming"_a, "records"_a, "identity_json"_a, "capture_json"_a, "destination"_a,
        "Writes artifact.json over the shards and moves the folder to `destination`, where nothing may be.\n\n"
        "Whatever it raises, nothing is at `destination` and the folder is gone.");
}

}  // namespace coldsnap
