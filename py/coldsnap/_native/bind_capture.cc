// The writer over host buffers, for tests and calibration.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cc/base/hex.h"
#include "cc/capture/write_artifact.h"
#include "py/coldsnap/_native/bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace coldsnap {
namespace {

// name, dtype, shape, strides, address, storage_address, storage_nbytes, object, role, attrs
using TensorRow = std::tuple<std::string, std::string, std::vector<uint64_t>, std::vector<int64_t>, uint64_t, uint64_t,
                             uint64_t, uint64_t, std::string, std::vector<std::string>>;

TensorSpec SpecOf(TensorRow row) {
  TensorSpec spec;
  std::tie(spec.name, spec.dtype, spec.shape, spec.strides, spec.address, spec.storage_address, spec.storage_nbytes,
           spec.object, spec.role, spec.attrs) = std::move(row);
  return spec;
}

nb::dict Write(std::string path, std::vector<TensorRow> tensors, std::string identity, std::string scalars,
               std::string capture) {
  WriteRequest request{.path = std::move(path),
                       .tensors = {},
                       .identity_json = std::move(identity),
                       .scalars_json = std::move(scalars),
                       .capture_json = std::move(capture)};
  for (TensorRow& row : tensors) request.tensors.push_back(SpecOf(std::move(row)));
  const WriteReport report = [&request] {
    const nb::gil_scoped_release release;
    return ValueOrThrow(WriteHostArtifact(std::move(request)));
  }();
  nb::dict out;
  out["artifact_root"] = ToHex(report.artifact_root);
  out["payload_bytes"] = report.payload_bytes;
  out["blob_bytes"] = report.blob_bytes;
  out["extents"] = report.extents;
  out["uncovered_bytes"] = report.uncovered_bytes;
  return out;
}

}  // namespace

void BindCapture(nb::module_& m) {
  m.def(
      "write_artifact", &Write, "path"_a, "tensors"_a, "identity_json"_a, "scalars_json"_a, "capture_json"_a,
      "Writes an artifact of one shard from tensors in host memory, which must stay alive and unchanged meanwhile.\n\n"
      "Rows of `tensors`: (name, dtype, shape, strides in elements, address, storage address, storage bytes, object, "
      "role, attrs).");
}

}  // namespace coldsnap
