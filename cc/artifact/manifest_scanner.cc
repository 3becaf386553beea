#include "cc/artifact/manifest_scanner.h"

#include <string>
#include <utility>
#include <vector>

#include "cc/artifact/canonical_json.h"
#include "cc/artifact/json_text.h"
#include "cc/artifact/limits.h"
#include "cc/base/hex.h"

namespace coldsnap {
namespace {

// Takes one piece after another off the front of the text. After the first that is not there everything fails, so only
// the end has to be looked at.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text), rest_(text) {}

  bool Done() const { return !failed_ && rest_.empty(); }
  size_t position() const { return text_.size() - rest_.size(); }
  size_t size() const { return text_.size(); }
  void Fail() {
    failed_ = true;
    rest_ = {};
  }

  // Whether `piece` is next; if so, it is taken.
  bool Take(std::string_view piece) {
    if (!rest_.starts_with(piece)) return false;
    rest_.remove_prefix(piece.size());
    return true;
  }
  void Expect(std::string_view piece) {
    if (!Take(piece)) Fail();
  }
  uint64_t Integer() {
    constexpr size_t kMostOfFormat = 16;  // digits of 2^53-1
    uint64_t value = 0;
    size_t digits = 0;
    for (; digits < rest_.size() && rest_[digits] >= '0' && rest_[digits] <= '9'; ++digits) {
      if (digits == kMostOfFormat) return Fail(), 0;
      value = value * 10 + static_cast<uint64_t>(rest_[digits] - '0');
    }
    const bool leading_zero = digits > 1 && rest_[0] == '0';
    if (digits == 0 || leading_zero || value > kMaxInteger) return Fail(), 0;
    rest_.remove_prefix(digits);
    return value;
  }
  // One without escapes; all others are left to the parser.
  std::string_view String() {
    Expect("\"");
    const std::string_view value = rest_.substr(0, PlainBytes(rest_));
    rest_.remove_prefix(value.size());
    Expect("\"");
    return value;
  }
  uint32_t Crc32() { return ValueOrFail(Crc32FromHex(String())); }
  Sha256 Digest() { return ValueOrFail(Sha256FromHex(String())); }
  // An object in canonical form, as text.
  std::string Object() {
    size_t depth = 0;
    bool in_string = false;
    size_t end = 0;
    do {
      if (end == rest_.size()) return Fail(), "";
      const char c = rest_[end++];
      if (in_string && c == '\\') {
        ++end;  // maybe past the end; then the text is no object
      } else if (c == '"') {
        in_string = !in_string;
      } else if (!in_string) {
        depth += c == '{' ? 1 : 0;
        depth -= c == '}' ? 1 : 0;
      }
    } while (depth != 0 && end < rest_.size());
    std::string text(rest_.substr(0, end));
    if (const auto canonical = CanonicalObject(text); !canonical.ok() || *canonical != text) return Fail(), "";
    rest_.remove_prefix(end);
    return text;
  }
  // `item` takes one element.
  template <typename Item>
  void Array(Item item) {
    Expect("[");
    if (Take("]")) return;
    do item();
    while (Take(","));
    Expect("]");
  }

 private:
  template <typename T>
  T ValueOrFail(const std::optional<T>& value) {
    if (!value) Fail();
    return value.value_or(T{});
  }

  const std::string_view text_;
  std::string_view rest_;
  bool failed_ = false;
};

// `key` and an array with one element for each row, which `item` takes; the first column makes the rows, at most
// `most`.
template <typename Row, typename Item>
void FirstColumn(Scanner& in, std::string_view key, size_t most, std::vector<Row>& rows, Item item) {
  in.Expect(key);
  in.Array([&] { rows.size() < most ? item(rows.emplace_back()) : in.Fail(); });
}
template <typename Row, typename Item>
void Column(Scanner& in, std::string_view key, std::vector<Row>& rows, Item item) {
  in.Expect(key);
  size_t count = 0;
  in.Array([&] { count < rows.size() ? item(rows[count++]) : in.Fail(); });
  if (count != rows.size()) in.Fail();
}

void ScanExtents(Scanner& in, std::vector<Extent>& extents) {
  FirstColumn(in, R"({"crc32":)", in.size() / kLeastExtentText, extents, [&](Extent& e) { e.crc32 = in.Crc32(); });
  Column(in, R"(,"file_offset":)", extents, [&](Extent& e) { e.file_offset = in.Integer(); });
  Column(in, R"(,"nbytes":)", extents, [&](Extent& e) { e.nbytes = in.Integer(); });
  Column(in, R"(,"sha256t":)", extents, [&](Extent& e) { e.sha256t = in.Digest(); });
  in.Expect("}");
}

void ScanTensors(Scanner& in, std::vector<TensorRecord>& tensors) {
  using T = TensorRecord;
  // Rows come together aside, so that each is allocated once, in its size.
  std::vector<uint64_t> integers;
  const auto integer_row = [&](std::vector<uint64_t>& row) {
    integers.clear();
    in.Array([&] { integers.push_back(in.Integer()); });
    row = integers;
  };
  std::vector<std::string_view> strings;
  const auto string_row = [&](std::vector<std::string>& row) {
    strings.clear();
    in.Array([&] { strings.push_back(in.String()); });
    row.assign(strings.begin(), strings.end());
  };
  const auto extent = [&](T& t) {
    if (in.Take("null")) return;
    const uint64_t value = in.Integer();
    if (value > UINT32_MAX) in.Fail();
    t.extent = static_cast<uint32_t>(value);
  };
  FirstColumn(in, R"({"attrs":)", in.size() / kLeastTensorText, tensors, [&](T& t) { string_row(t.attrs); });
  Column(in, R"(,"dtypes":)", tensors, [&](T& t) { t.dtype = in.String(); });
  Column(in, R"(,"extent":)", tensors, extent);
  Column(in, R"(,"names":)", tensors, [&](T& t) { t.name = in.String(); });
  Column(in, R"(,"objects":)", tensors, [&](T& t) { t.object = in.Integer(); });
  Column(in, R"(,"offset":)", tensors, [&](T& t) { t.offset = in.Integer(); });
  Column(in, R"(,"roles":)", tensors, [&](T& t) { t.role = in.String(); });
  Column(in, R"(,"shapes":)", tensors, [&](T& t) { integer_row(t.shape); });
  Column(in, R"(,"strides":)", tensors, [&](T& t) { integer_row(t.strides); });
  in.Expect("}");
}

}  // namespace

std::optional<ScannedManifest> ScanManifest(std::string_view text) {
  Scanner in(text);
  ScannedManifest scanned;
  auto& [manifest, slices] = scanned;
  in.Expect(R"({"blob_bytes":)");
  manifest.blob_bytes = in.Integer();
  in.Expect(R"(,"data_start":)");
  manifest.data_start = in.Integer();
  if (in.Take(R"(,"extensions":)")) manifest.extensions = in.Object();
  in.Expect(R"(,"extents":)");
  // An extent and its tensor take about 200 bytes of text. Too much reserved is memory never touched, too little is
  // one growth, so a guess does.
  manifest.extents.reserve(text.size() / 160);
  slices.extents_begin = in.position();
  ScanExtents(in, manifest.extents);
  slices.extents_end = in.position();
  in.Expect(StrCat(R"(,"format":)", kFormatVersion, R"(,"header_sha256":)"));
  manifest.header_sha256 = in.Digest();
  in.Expect(R"(,"identity":)");
  manifest.identity = in.Object();
  in.Expect(R"(,"layout_digest":)");
  manifest.layout_digest = in.Digest();
  in.Expect(R"(,"leaves_sha256":)");
  manifest.leaves_sha256 = in.Digest();
  in.Expect(R"(,"required":[],"scalars":)");
  manifest.scalars = in.Object();
  in.Expect(R"(,"shard_root":)");
  manifest.shard_root = in.Digest();
  in.Expect(R"(,"tensors":)");
  // Most tensors have an extent of their own; moving all of them on each doubling would cost as much as reading.
  manifest.tensors.reserve(manifest.extents.size() + manifest.extents.size() / 8);
  slices.tensors_begin = in.position();
  ScanTensors(in, manifest.tensors);
  slices.tensors_end = in.position();
  in.Expect("}");
  if (!in.Done()) return std::nullopt;
  return scanned;
}

}  // namespace coldsnap
