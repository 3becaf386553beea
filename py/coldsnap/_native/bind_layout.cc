// Layout and manifest of one shard, for the writer in Python: the format has one planner and one writer of its texts,
// whoever moves the bytes.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/artifact/artifact_json.h"
#include "cc/artifact/canonical_json.h"
#include "cc/artifact/layout.h"
#include "cc/artifact/manifest.h"
#include "cc/base/hex.h"
#include "py/coldsnap/_native/bindings.h"
#include "py/coldsnap/_native/tensor_rows.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace coldsnap {
namespace {

Sha256 DigestOf(const std::string& hex) {
  const auto digest = Sha256FromHex(hex);
  if (!digest) Throw(Status(Code::kRequestInvalid, StrCat("'", hex, "' is not 64 lower-case hex digits")));
  return *digest;
}

nb::list Extents(const Layout& layout) {
  nb::list rows;
  for (size_t i = 0; i < layout.sources.size(); ++i) {
    rows.append(nb::make_tuple(layout.file_offsets[i], layout.sources[i].address, layout.sources[i].nbytes));
  }
  return rows;
}

nb::tuple ManifestOf(const Layout& layout, const std::string& shard, const std::vector<uint32_t>& crc32,
                     const std::vector<std::string>& sha256t, const std::string& leaves_sha256,
                     const std::string& identity, const std::string& scalars) {
  if (crc32.size() != sha256t.size()) {
    Throw(Status(Code::kRequestInvalid, StrCat(crc32.size(), " values of crc32 and ", sha256t.size(), " of sha256t")));
  }
  std::vector<ExtentDigests> digests;
  for (size_t i = 0; i < crc32.size(); ++i) digests.push_back({.crc32 = crc32[i], .sha256t = DigestOf(sha256t[i])});
  const Manifest manifest = ValueOrThrow(MakeManifest(layout, digests, DigestOf(leaves_sha256), identity, scalars));
  const std::string text = WriteManifest(manifest);
  const ShardRecord record = MakeShardRecord(shard, manifest, text);
  nb::dict fields;
  fields["blob_bytes"] = record.blob_bytes;
  fields["leaves_bytes"] = record.leaves_bytes;
  fields["manifest_bytes"] = record.manifest_bytes;
  fields["manifest_sha256"] = ToHex(record.manifest_sha256);
  fields["name"] = record.name;
  fields["shard_root"] = ToHex(record.shard_root);
  return nb::make_tuple(nb::bytes(text.data(), text.size()), fields);
}

}  // namespace

void BindLayout(nb::module_& m) {
  nb::class_<Layout>(m, "Layout", "Where the bytes of a capture are and where they go; from `plan_layout`.")
      .def_prop_ro(
          "header", [](const Layout& l) { return nb::bytes(l.header.data(), l.header.size()); },
          "The blob's first data_start bytes.")
      .def_ro("blob_bytes", &Layout::blob_bytes)
      .def_ro("uncovered_bytes", &Layout::uncovered_bytes, "Of the extents, outside every tensor.")
      .def("extents", &Extents, "Rows (file offset, address, nbytes), in data order.")
      .def("manifest", &ManifestOf, "shard"_a, "crc32"_a, "sha256t"_a, "leaves_sha256"_a, "identity_json"_a,
           "scalars_json"_a,
           "(bytes of manifest.json, the shard's entry in artifact.json), from the digests of each extent.");
  m.def(
      "plan_layout",
      [](std::vector<TensorRow> tensors) { return ValueOrThrow(PlanLayout(SpecsOf(std::move(tensors)))); }, "tensors"_a,
      "Rows of `tensors` as of `write_artifact`; nothing is read from their memory.");
  m.def(
      "canonical_object", [](const std::string& text) { return ValueOrThrow(CanonicalObject(text)); }, "text"_a,
      "The canonical text of a JSON object that becomes a field of a document.");
}

}  // namespace coldsnap
