#include "cc/artifact/manifest_text.h"

#include <utility>

#include "cc/artifact/json_text.h"
#include "cc/artifact/limits.h"
#include "cc/base/hex.h"
#include "cc/digest/sha256.h"

namespace coldsnap {
namespace {

constexpr std::string_view kExtentsKey = R"({"extents":)";
constexpr std::string_view kScalarsKey = R"({"scalars":)";
constexpr std::string_view kTensorsKey = R"(,"tensors":)";

// ToHex makes a string for each digest; a manifest has up to 1,000,000.
void AppendHexString(std::string& out, const Sha256& digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  char text[2 * sizeof(digest) + 2];
  char* to = text;
  *to++ = '"';
  for (const std::byte byte : digest) {
    *to++ = kDigits[std::to_integer<unsigned>(byte) >> 4];
    *to++ = kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  *to = '"';
  out.append(text, sizeof(text));
}

// [first,second]: `append` writes the text of one item.
template <typename Items, typename Append>
void AppendArray(std::string& out, const Items& items, Append append) {
  out.push_back('[');
  bool first = true;
  for (const auto& item : items) {
    if (!std::exchange(first, false)) out.push_back(',');
    append(item);
  }
  out.push_back(']');
}

// `key` and an array with one item for each row.
template <typename Rows, typename Append>
void WriteColumn(TextSink& sink, std::string_view key, const Rows& rows, Append append) {
  sink.out().append(key);
  AppendArray(sink.out(), rows, [&](const auto& row) {
    append(row);
    sink.Item();
  });
}

void WriteExtents(const std::vector<Extent>& extents, TextSink& sink) {
  std::string& out = sink.out();
  WriteColumn(sink, R"({"crc32":)", extents,
              [&](const Extent& e) { out.append("\"").append(ToHex(e.crc32)).append("\""); });
  WriteColumn(sink, R"(,"file_offset":)", extents, [&](const Extent& e) { AppendJsonInteger(out, e.file_offset); });
  WriteColumn(sink, R"(,"nbytes":)", extents, [&](const Extent& e) { AppendJsonInteger(out, e.nbytes); });
  WriteColumn(sink, R"(,"sha256t":)", extents, [&](const Extent& e) { AppendHexString(out, e.sha256t); });
  out.push_back('}');
}

void WriteTensors(const std::vector<TensorRecord>& tensors, TextSink& sink) {
  using T = TensorRecord;
  std::string& out = sink.out();
  const auto string = [&](const std::string& text) { AppendJsonString(out, text); };
  const auto integer = [&](uint64_t value) { AppendJsonInteger(out, value); };
  WriteColumn(sink, R"({"attrs":)", tensors, [&](const T& t) { AppendArray(out, t.attrs, string); });
  WriteColumn(sink, R"(,"dtypes":)", tensors, [&](const T& t) { string(t.dtype); });
  WriteColumn(sink, R"(,"extent":)", tensors,
              [&](const T& t) { t.extent ? integer(*t.extent) : void(out.append("null")); });
  WriteColumn(sink, R"(,"names":)", tensors, [&](const T& t) { string(t.name); });
  WriteColumn(sink, R"(,"objects":)", tensors, [&](const T& t) { integer(t.object); });
  WriteColumn(sink, R"(,"offset":)", tensors, [&](const T& t) { integer(t.offset); });
  WriteColumn(sink, R"(,"roles":)", tensors, [&](const T& t) { string(t.role); });
  WriteColumn(sink, R"(,"shapes":)", tensors, [&](const T& t) { AppendArray(out, t.shape, integer); });
  WriteColumn(sink, R"(,"strides":)", tensors, [&](const T& t) { AppendArray(out, t.strides, integer); });
  out.push_back('}');
}

}  // namespace

ManifestSlices WriteManifestText(const Manifest& manifest, TextSink& sink) {
  ManifestSlices slices;
  std::string& out = sink.out();
  out.append(StrCat(R"({"blob_bytes":)", manifest.blob_bytes, R"(,"data_start":)", manifest.data_start));
  if (!manifest.extensions.empty()) out.append(R"(,"extensions":)").append(manifest.extensions);
  out.append(R"(,"extents":)");
  slices.extents_begin = sink.position();
  WriteExtents(manifest.extents, sink);
  slices.extents_end = sink.position();
  out.append(StrCat(R"(,"format":)", kFormatVersion, R"(,"header_sha256":")", ToHex(manifest.header_sha256),
                    R"(","identity":)", manifest.identity, R"(,"layout_digest":")", ToHex(manifest.layout_digest),
                    R"(","leaves_sha256":")", ToHex(manifest.leaves_sha256), R"(","required":[],"scalars":)",
                    manifest.scalars, R"(,"shard_root":")", ToHex(manifest.shard_root), R"(","tensors":)"));
  slices.tensors_begin = sink.position();
  WriteTensors(manifest.tensors, sink);
  slices.tensors_end = sink.position();
  out.push_back('}');
  return slices;
}

Sha256 LayoutDigest(const Manifest& manifest) {
  HashSink sink;
  sink.out().append(kScalarsKey).append(manifest.scalars).append(kTensorsKey);
  WriteTensors(manifest.tensors, sink);
  sink.out().push_back('}');
  return std::move(sink).Finish();
}

Sha256 ExtentsDigest(const Manifest& manifest) {
  HashSink sink;
  sink.out().append(kExtentsKey);
  WriteExtents(manifest.extents, sink);
  sink.out().push_back('}');
  return std::move(sink).Finish();
}

Sha256 LayoutDigestOfText(std::string_view scalars, std::string_view tensors) {
  HashSink sink;
  sink.out().append(kScalarsKey).append(scalars).append(kTensorsKey);
  sink.Add(tensors);
  sink.out().push_back('}');
  return std::move(sink).Finish();
}

Sha256 ExtentsDigestOfText(std::string_view extents) {
  HashSink sink;
  sink.out().append(kExtentsKey);
  sink.Add(extents);
  sink.out().push_back('}');
  return std::move(sink).Finish();
}

Sha256 ShardRoot(const Manifest& manifest, const Sha256& extents_digest) {
  const std::string text =
      StrCat(R"({"blob_bytes":)", manifest.blob_bytes, R"(,"extents_digest":")", ToHex(extents_digest),
             R"(","header_sha256":")", ToHex(manifest.header_sha256), R"(","layout_digest":")",
             ToHex(manifest.layout_digest), R"(","leaves_sha256":")", ToHex(manifest.leaves_sha256), R"("})");
  return Sha256Of(std::as_bytes(std::span(text)));
}

}  // namespace coldsnap
