#include "cc/artifact/manifest.h"

#include <future>
#include <optional>
#include <utility>

#include "cc/artifact/canonical_json.h"
#include "cc/artifact/header.h"
#include "cc/artifact/json_text.h"
#include "cc/artifact/manifest_reader.h"
#include "cc/artifact/manifest_scanner.h"
#include "cc/artifact/manifest_text.h"
#include "cc/artifact/placement.h"
#include "cc/base/hex.h"
#include "cc/digest/sha256.h"

namespace coldsnap {
namespace {

Status Invalid(std::string_view message) { return Status(Code::kFormatInvalid, StrCat("manifest.json: ", message)); }

std::string TensorAt(const Manifest& manifest, size_t i) {
  return StrCat("tensors[", i, "] ", Quoted(manifest.tensors[i].name), ": ");
}

std::vector<uint64_t> SizesOf(std::span<const Extent> extents) {
  std::vector<uint64_t> nbytes;
  nbytes.reserve(extents.size());
  for (const Extent& extent : extents) nbytes.push_back(extent.nbytes);
  return nbytes;
}

Sha256 DigestOfText(std::string_view text) { return Sha256Of(std::as_bytes(std::span(text))); }

// The tensor by itself and its bytes inside its extent.
Status CheckTensor(const Manifest& manifest, const TensorRecord& tensor) {
  RETURN_IF_ERROR(CheckRecord(tensor));
  ASSIGN_OR_RETURN(const uint64_t span, SpanBytes(tensor));
  if (span == 0 && tensor.offset != 0) {
    return Status(Code::kFormatInvalid,
                  StrCat("offset is ", tensor.offset, " but the tensor has no bytes, so it is 0"));
  }
  if (!tensor.extent) {
    if (span == 0) return Status::Ok();
    return Status(Code::kFormatInvalid, StrCat("extent is null but the tensor has ", span, " bytes"));
  }
  if (*tensor.extent >= manifest.extents.size()) {
    return Status(Code::kFormatInvalid,
                  StrCat("extent is ", *tensor.extent, " but there are ", manifest.extents.size()));
  }
  const uint64_t nbytes = manifest.extents[*tensor.extent].nbytes;
  if (tensor.offset > nbytes || span > nbytes - tensor.offset) {
    return Status(Code::kFormatInvalid, StrCat(span, " bytes at offset ", tensor.offset, " reach outside extent ",
                                               *tensor.extent, " of ", nbytes, " bytes"));
  }
  return Status::Ok();
}

// Names ascend; objects are running numbers by first appearance, and names of one object agree.
Status CheckTensors(const Manifest& manifest) {
  std::vector<size_t> first_name;  // of each object
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    const TensorRecord& tensor = manifest.tensors[i];
    if (const Status status = CheckTensor(manifest, tensor); !status.ok()) {
      return Invalid(StrCat(TensorAt(manifest, i), status.message()));
    }
    if (i > 0 && tensor.name <= manifest.tensors[i - 1].name) {
      return Invalid(StrCat(TensorAt(manifest, i), "the name doesn't sort after ", Quoted(manifest.tensors[i - 1].name),
                            "; names are unique and in order of their bytes"));
    }
    if (tensor.object > first_name.size()) {
      return Invalid(
          StrCat(TensorAt(manifest, i), "object is ", tensor.object, " where the next new one is ", first_name.size()));
    }
    if (tensor.object == first_name.size()) {
      first_name.push_back(i);
    } else if (const TensorRecord& first = manifest.tensors[first_name[tensor.object]]; !SameBytes(first, tensor)) {
      return Invalid(StrCat(TensorAt(manifest, i), "object ", tensor.object, " differs from ", Quoted(first.name),
                            ", the same object, in dtype, shape, strides, extent or offset"));
    }
  }
  return Status::Ok();
}

// Every extent holds a tensor, and extents of one kind (large, small) are in the order of their smallest names.
Status CheckExtentOrder(const Manifest& manifest) {
  constexpr size_t kNobody = SIZE_MAX;
  std::vector<size_t> smallest(manifest.extents.size(), kNobody);
  for (size_t i = manifest.tensors.size(); i-- > 0;) {
    if (manifest.tensors[i].extent) smallest[*manifest.tensors[i].extent] = i;
  }
  for (size_t i = 0; i < smallest.size(); ++i) {
    if (smallest[i] == kNobody) return Invalid(StrCat("extents[", i, "]: no tensor refers to it"));
    if (i == 0 || IsLarge(manifest.extents[i].nbytes) != IsLarge(manifest.extents[i - 1].nbytes)) continue;
    if (smallest[i] < smallest[i - 1]) {
      return Invalid(StrCat("extents[", i, "] with ", Quoted(manifest.tensors[smallest[i]].name),
                            " stands after extents[", i - 1, "] with ", Quoted(manifest.tensors[smallest[i - 1]].name),
                            "; they go by their smallest names"));
    }
  }
  return Status::Ok();
}

// Places the extents and builds the header again.
Status CheckPlacement(const Manifest& manifest) {
  const std::vector<uint64_t> nbytes = SizesOf(manifest.extents);
  const auto placement = PlaceExtents(nbytes);
  if (!placement.ok()) return Invalid(placement.status().message());
  const auto header = DigestHeader(manifest.tensors, nbytes, *placement, manifest.data_start);
  if (!header.ok()) return Invalid(header.status().message());
  if (manifest.data_start != header->data_start) {
    return Invalid(
        StrCat("data_start is ", manifest.data_start, " but the header takes ", header->data_start, " bytes"));
  }
  for (size_t i = 0; i < nbytes.size(); ++i) {
    const uint64_t expected = manifest.data_start + placement->offsets[i];
    if (manifest.extents[i].file_offset != expected) {
      return Invalid(StrCat("extents.file_offset[", i, "] is ", manifest.extents[i].file_offset,
                            " but the sizes before it put it at ", expected));
    }
  }
  const uint64_t blob_bytes = manifest.data_start + placement->data_bytes;
  if (blob_bytes > kMaxInteger || manifest.blob_bytes != blob_bytes) {
    return Invalid(StrCat("blob_bytes is ", manifest.blob_bytes, " but header and extents take ", blob_bytes));
  }
  if (manifest.header_sha256 != header->sha256) {
    return Invalid(StrCat("header_sha256 is ", ToHex(manifest.header_sha256), " but the header of these tensors has ",
                          ToHex(header->sha256)));
  }
  return Status::Ok();
}

// The text is the one that WriteManifest gives.
Result<ManifestSlices> CheckForm(std::string_view text, const Manifest& manifest) {
  CompareSink canonical(text);
  const ManifestSlices slices = WriteManifestText(manifest, canonical);
  if (const std::string difference = std::move(canonical).Finish(); !difference.empty()) {
    return Invalid(StrCat("not canonical ", difference));
  }
  return slices;
}

// The digests that the manifest states are those of its text.
Status CheckDigests(const Manifest& manifest, const Sha256& layout, const Sha256& extents) {
  if (manifest.layout_digest != layout) {
    return Invalid(
        StrCat("layout_digest is ", ToHex(manifest.layout_digest), " but tensors and scalars have ", ToHex(layout)));
  }
  const Sha256 root = ShardRoot(manifest, extents);
  if (manifest.shard_root != root) {
    return Invalid(StrCat("shard_root is ", ToHex(manifest.shard_root), " but blob_bytes, extents and digests have ",
                          ToHex(root)));
  }
  return Status::Ok();
}

// What ScanManifest returned may be placed before all of its tensors have been looked at. The other half of the work is
// the digest of their text.
Result<Manifest> CheckScanned(ScannedManifest scanned, size_t text_bytes) {
  const Manifest& manifest = scanned.manifest;
  std::future<Status> placed = StartBeside(text_bytes, [&manifest] { return CheckPlacement(manifest); });
  const auto check_tensors = [&manifest]() -> Status {
    RETURN_IF_ERROR(CheckTensors(manifest));
    return CheckExtentOrder(manifest);
  };
  const Status tensors = check_tensors();
  const Sha256 layout = LayoutDigestOfText(manifest.scalars, scanned.tensors_text);
  const Status placement = placed.get();  // also before an error leaves: it uses what is here
  RETURN_IF_ERROR(tensors);               // first: it names the tensor or extent
  RETURN_IF_ERROR(placement);
  RETURN_IF_ERROR(CheckDigests(manifest, layout, scanned.extents_digest));
  return std::move(scanned.manifest);
}

// The two halves read the manifest and change nothing.
Result<Manifest> CheckRead(Manifest manifest, std::string_view text) {
  std::future<Status> as_text = StartBeside(text.size(), [&manifest, text]() -> Status {
    ASSIGN_OR_RETURN(const ManifestSlices slices, CheckForm(text, manifest));
    const auto slice = [text](size_t begin, size_t end) { return text.substr(begin, end - begin); };
    const std::string_view tensors = slice(slices.tensors_begin, slices.tensors_end);
    return CheckDigests(manifest, LayoutDigestOfText(manifest.scalars, tensors),
                        ExtentsDigestOfText(slice(slices.extents_begin, slices.extents_end)));
  });
  const auto check_meaning = [&manifest]() -> Status {
    RETURN_IF_ERROR(CheckTensors(manifest));
    RETURN_IF_ERROR(CheckExtentOrder(manifest));
    return CheckPlacement(manifest);
  };
  const Status meaning = check_meaning();
  const Status form = as_text.get();
  RETURN_IF_ERROR(meaning);
  RETURN_IF_ERROR(form);
  return manifest;
}

}  // namespace

Result<Manifest> MakeManifest(Layout layout, std::span<const ExtentDigests> digests, const Sha256& leaves_sha256,
                              std::string_view identity_json, std::string_view scalars_json) {
  if (digests.size() != layout.sources.size()) {
    return Status(Code::kRequestInvalid,
                  StrCat("write a manifest: ", digests.size(), " digests for ", layout.sources.size(), " extents"));
  }
  Manifest manifest;
  auto identity = CanonicalObject(identity_json);
  if (!identity.ok()) return std::move(identity).status().Prefixed("identity: ");
  auto scalars = CanonicalObject(scalars_json);
  if (!scalars.ok()) return std::move(scalars).status().Prefixed("scalars: ");
  manifest.identity = *std::move(identity);
  manifest.scalars = *std::move(scalars);
  manifest.extents.reserve(digests.size());
  for (size_t i = 0; i < digests.size(); ++i) {
    manifest.extents.push_back(
        {layout.file_offsets[i], layout.sources[i].nbytes, digests[i].crc32, digests[i].sha256t});
  }
  manifest.tensors = std::move(layout.tensors);
  manifest.data_start = layout.data_start;
  manifest.blob_bytes = layout.blob_bytes;
  manifest.header_sha256 = DigestOfText(layout.header);
  manifest.leaves_sha256 = leaves_sha256;
  manifest.layout_digest = LayoutDigest(manifest);
  manifest.shard_root = ShardRoot(manifest, ExtentsDigest(manifest));
  return manifest;
}

std::string WriteManifest(const Manifest& manifest) {
  StringSink sink;
  WriteManifestText(manifest, sink);
  return std::move(sink).Finish();
}

Result<Manifest> ParseManifest(std::string_view text) {
  if (std::optional<ScannedManifest> scanned = ScanManifest(text)) {
    return CheckScanned(*std::move(scanned), text.size());
  }
  ASSIGN_OR_RETURN(Manifest manifest, ReadManifestFields(text));
  return CheckRead(std::move(manifest), text);
}

std::string ExpectedHeader(const Manifest& manifest) {
  const std::vector<uint64_t> nbytes = SizesOf(manifest.extents);
  const auto placement = PlaceExtents(nbytes);
  COLDSNAP_CHECK(placement.ok());
  auto header = BuildHeader(manifest.tensors, nbytes, *placement);
  COLDSNAP_CHECK(header.ok());
  return *std::move(header);
}

uint64_t LeavesBytes(std::span<const Extent> extents) {
  uint64_t leaves = 0;
  for (const Extent& extent : extents) leaves += LeavesOf(extent.nbytes);
  return leaves * sizeof(Sha256);
}

}  // namespace coldsnap
