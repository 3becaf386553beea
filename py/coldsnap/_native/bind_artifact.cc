// OpenArtifact, for Python: what the manifest says, and the descriptor that the Python provider reads from.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "cc/base/hex.h"
#include "cc/digest/crc32.h"
#include "cc/hydrate/open_artifact.h"
#include "cc/hydrate/route.h"
#include "cc/sys/files.h"
#include "py/coldsnap/_native/bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace coldsnap {
namespace {

nb::tuple TensorRow(const TensorRecord& tensor) {
  const nb::object extent = tensor.extent ? nb::object(nb::int_(*tensor.extent)) : nb::none();
  return nb::make_tuple(tensor.name, tensor.dtype, tensor.shape, tensor.strides, extent, tensor.offset, tensor.object,
                        tensor.role, tensor.attrs);
}

nb::list Tensors(const OpenArtifact& artifact) {
  nb::list rows;
  for (const TensorRecord& tensor : artifact.manifest().tensors) rows.append(TensorRow(tensor));
  return rows;
}

nb::list Extents(const OpenArtifact& artifact) {
  nb::list rows;
  for (const Extent& extent : artifact.manifest().extents) {
    rows.append(nb::make_tuple(extent.file_offset, extent.nbytes, ToHex(extent.crc32), ToHex(extent.sha256t)));
  }
  return rows;
}

nb::bytes Leaves(const OpenArtifact& artifact, size_t extent) {
  const size_t count = artifact.manifest().extents.size();
  if (extent >= count)
    Throw(Status(Code::kRequestInvalid, StrCat("there is no extent ", extent, ", the artifact has ", count)));
  const auto bytes = std::as_bytes(artifact.LeavesOfExtent(extent));
  return nb::bytes(bytes.data(), bytes.size());
}

std::vector<std::string> Shards(const OpenArtifact& artifact) {
  std::vector<std::string> names;
  for (const ShardRecord& shard : artifact.record().shards) names.push_back(shard.name);
  return names;
}

}  // namespace

void BindArtifact(nb::module_& m) {
  nb::class_<OpenArtifact>(m, "Artifact", "One shard of an artifact, open; all but the extents' data is checked.")
      .def_prop_ro("path", &OpenArtifact::path)
      .def_prop_ro("shard", [](const OpenArtifact& a) { return a.shard().name; })
      .def_prop_ro("shards", &Shards)
      .def_prop_ro("artifact_root", [](const OpenArtifact& a) { return ToHex(a.record().artifact_root); })
      .def_prop_ro(
          "identity", [](const OpenArtifact& a) { return a.record().identity; }, "Canonical JSON.")
      .def_prop_ro(
          "scalars", [](const OpenArtifact& a) { return a.manifest().scalars; }, "Canonical JSON.")
      .def_prop_ro(
          "capture", [](const OpenArtifact& a) { return a.record().capture; }, "Canonical JSON.")
      .def_prop_ro(
          "data_start", [](const OpenArtifact& a) { return a.manifest().data_start; }, "Bytes.")
      .def_prop_ro("blob_bytes", [](const OpenArtifact& a) { return a.manifest().blob_bytes; })
      .def_prop_ro("payload_bytes", &OpenArtifact::payload_bytes)
      .def_prop_ro("blob_fd", &OpenArtifact::blob_fd,
                   "The blob, open for buffered reads; the artifact's, not to be closed.")
      .def_prop_ro("shard_dir_fd", &OpenArtifact::shard_dir_fd, "The shard's folder; the artifact's, not to be closed.")
      .def_prop_ro("manifest_sha256", [](const OpenArtifact& a) { return ToHex(a.shard().manifest_sha256); })
      .def_prop_ro("shard_root", [](const OpenArtifact& a) { return ToHex(a.shard().shard_root); })
      .def_prop_ro(
          "header_sha256", [](const OpenArtifact& a) { return ToHex(a.manifest().header_sha256); },
          "Of the blob's bytes before data_start.")
      .def_prop_ro(
          "leaves_sha256", [](const OpenArtifact& a) { return ToHex(a.manifest().leaves_sha256); }, "Of leaves.bin.")
      .def("tensors", &Tensors,
           "Rows (name, dtype, shape, strides, extent or None, offset, object, role, attrs), by name.")
      .def("extents", &Extents, "Rows (file_offset, nbytes, crc32 hex, sha256t hex), in data order.")
      .def("leaves", &Leaves, "extent"_a, "The extent's leaf digests, 32 bytes for each 64 KiB.")
      .def(
          "residency", [](const OpenArtifact& a) { return ValueOrThrow(Residency(a)); },
          "The fraction of the blob that is in the page cache.")
      .def(
          "resident_bytes",
          [](const OpenArtifact& a, uint64_t offset, uint64_t nbytes) {
            return ValueOrThrow(ResidentBytes(a.blob_fd(), offset, nbytes, kBlobFile));
          },
          "offset"_a, "nbytes"_a, nb::call_guard<nb::gil_scoped_release>(),
          "How many bytes of a range of the blob are in the page cache; it begins at a page.")
      .def(
          "blob_memory_backed", [](const OpenArtifact& a) { return IsMemoryBacked(a.blob_fd()); },
          "Whether the blob's file system lives in memory (tmpfs, ramfs, hugetlbfs).");

  m.def(
      "open_artifact",
      [](const std::string& path, const std::optional<std::string>& shard) {
        return ValueOrThrow(OpenArtifact::Open(path, shard));
      },
      "path"_a, "shard"_a = nb::none(), nb::call_guard<nb::gil_scoped_release>(),
      "Opens one shard of the artifact at `path`; `coldsnap.open` is the checked form.");
  m.def(
      "artifact_shards", [](const std::string& path) { return ValueOrThrow(OpenArtifact::ShardNames(path)); }, "path"_a,
      nb::call_guard<nb::gil_scoped_release>(), "Names of the shards that the artifact at `path` lists.");
  m.def("crc32_combine", &Crc32Combine, "first"_a, "second"_a, "second_nbytes"_a,
        "The CRC-32 of A followed by B, from those of A and B and the length of B in bytes.");
}

}  // namespace coldsnap
