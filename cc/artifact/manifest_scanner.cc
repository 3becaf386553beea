#include "cc/artifact/manifest_scanner.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "cc/artifact/canonical_json.h"
#include "cc/artifact/dtype.h"
#include "cc/artifact/json_text.h"
#include "cc/artifact/limits.h"
#include "cc/base/hex.h"

namespace coldsnap {
namespace {

// Takes one piece after another off the front of the text. After the first that is not there everything fails, so only
// the end has to be looked at.
class Scanner {
 public:
  explicit Scanner(std::string_view text = {}) : rest_(text) {}

  bool failed() const { return failed_; }
  bool Done() const { return !failed_ && rest_.empty(); }
  std::string_view rest() const { return rest_; }
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
  uint32_t Crc32() { return ValueOrFail(Crc32FromHex(Digits(8))); }
  Sha256 Digest() { return ValueOrFail(Sha256FromHex(Digits(64))); }
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
  // A string of that many bytes, whatever they are: what reads digits takes nothing else.
  std::string_view Digits(size_t count) {
    Expect("\"");
    const std::string_view value = rest_.substr(0, count);
    rest_.remove_prefix(value.size());
    Expect("\"");
    return value;
  }
  template <typename T>
  T ValueOrFail(const std::optional<T>& value) {
    if (!value) Fail();
    return value.value_or(T{});
  }

  std::string_view rest_;
  bool failed_ = false;
};

// Where `key` first stands at or after `from`; the text's size if nowhere. It has a colon, which is rare in names and
// impossible in digests and numbers: looking for that alone goes at the speed of memory.
size_t Find(std::string_view text, std::string_view key, size_t from) {
  const size_t colon = key.find(':');
  for (size_t at = from + colon; at < text.size(); ++at) {
    const void* const found = std::memchr(text.data() + at, ':', text.size() - at);
    if (found == nullptr) break;
    at = static_cast<size_t>(static_cast<const char*>(found) - text.data());
    if (text.substr(at - colon, key.size()) == key) return at - colon;
  }
  return text.size();
}

// The columns of a table, each from behind its opening bracket to before its closing one, so that rows are read across
// and each is written once. `keys` stand before the columns, the first at the begin of `table`.
//
// Looking for them is a guess that can't go wrong unnoticed: what stands in between has to be read to its last byte.
template <size_t kColumns>
std::optional<std::array<Scanner, kColumns>> ColumnsOf(std::string_view table,
                                                       const std::array<std::string_view, kColumns>& keys) {
  constexpr std::string_view kEnd = "]}";
  if (!table.starts_with(keys[0]) || !table.ends_with(kEnd)) return std::nullopt;
  table.remove_suffix(kEnd.size());
  std::array<Scanner, kColumns> columns;
  size_t begin = keys[0].size();
  for (size_t i = 0; i < kColumns; ++i) {
    const size_t end = i + 1 < kColumns ? Find(table, keys[i + 1], begin) : table.size();
    if (begin > end) return std::nullopt;
    columns[i] = Scanner(table.substr(begin, end - begin));
    if (i + 1 < kColumns) begin = end + keys[i + 1].size();
  }
  return columns;
}

// As many rows as a column of integers has. What is reserved and not written is not touched, so a column that lies
// costs nothing.
template <typename Row>
void Reserve(std::vector<Row>& rows, const Scanner& integers, size_t most) {
  const std::string_view column = integers.rest();
  const auto commas = static_cast<size_t>(std::count(column.begin(), column.end(), ','));
  if (!column.empty()) rows.reserve(std::min(commas + 1, most));
}

// `item` takes one element of each column. Whether all ended with the same row.
template <size_t kColumns, typename Row, typename Item>
bool ReadRows(std::array<Scanner, kColumns>& columns, std::vector<Row>& rows, Item item) {
  const auto every = [&columns](auto test) { return std::all_of(columns.begin(), columns.end(), test); };
  bool more = !columns[0].Done();
  while (more) {
    item(rows.emplace_back());
    more = columns[0].Take(",");
    if (more && !every([&](Scanner& in) { return &in == columns.data() || in.Take(","); })) return false;
    if (!every([](const Scanner& in) { return !in.failed(); })) return false;
  }
  return every([](const Scanner& in) { return in.Done(); });
}

bool ScanExtents(std::string_view table, std::vector<Extent>& extents) {
  constexpr std::array<std::string_view, 4> kKeys = {R"({"crc32":[)", R"(],"file_offset":[)", R"(],"nbytes":[)",
                                                     R"(],"sha256t":[)"};
  auto columns = ColumnsOf(table, kKeys);
  if (!columns) return false;
  auto& [crc32, file_offset, nbytes, sha256t] = *columns;
  Reserve(extents, nbytes, table.size() / kLeastExtentText);
  return ReadRows(*columns, extents, [&](Extent& e) {
    e.crc32 = crc32.Crc32();
    e.file_offset = file_offset.Integer();
    e.nbytes = nbytes.Integer();
    e.sha256t = sha256t.Digest();
  });
}

bool ScanTensors(std::string_view table, std::vector<TensorRecord>& tensors) {
  constexpr std::array<std::string_view, 9> kKeys = {R"({"attrs":[)",  R"(],"dtypes":[)",  R"(],"extent":[)",
                                                     R"(],"names":[)", R"(],"objects":[)", R"(],"offset":[)",
                                                     R"(],"roles":[)", R"(],"shapes":[)",  R"(],"strides":[)"};
  auto columns = ColumnsOf(table, kKeys);
  if (!columns) return false;
  auto& [attrs, dtypes, extent, names, objects, offset, roles, shapes, strides] = *columns;
  Reserve(tensors, objects, table.size() / kLeastTensorText);
  // Arrays come together aside, so that each is allocated once, in its size.
  std::vector<uint64_t> integers;
  const auto integer_row = [&integers](Scanner& in, std::vector<uint64_t>& row) {
    integers.clear();
    in.Array([&] { integers.push_back(in.Integer()); });
    row.assign(integers.begin(), integers.end());
  };
  std::vector<std::string_view> strings;
  return ReadRows(*columns, tensors, [&](TensorRecord& t) {
    strings.clear();
    attrs.Array([&] { strings.push_back(attrs.String()); });
    t.attrs.assign(strings.begin(), strings.end());
    t.dtype = dtypes.String();
    if (!extent.Take("null")) {
      const uint64_t value = extent.Integer();
      if (value > UINT32_MAX) extent.Fail();
      t.extent = static_cast<uint32_t>(value);
    }
    t.name = names.String();
    t.object = objects.Integer();
    t.offset = offset.Integer();
    t.role = roles.String();
    integer_row(shapes, t.shape);
    integer_row(strides, t.strides);
    if (FindDtype(t.dtype) == nullptr || t.shape.size() != t.strides.size()) dtypes.Fail();
  });
}

// The long values of the text, and what stands around them.
struct Parts {
  std::string_view head, extents, middle, tensors;
};

Parts Split(std::string_view text) {
  constexpr std::string_view kTensorsKey = R"(,"tensors":)";
  const size_t extents = Find(text, R"({"crc32":[)", 0);
  const size_t middle = Find(text, R"(,"format":)", extents);
  const size_t tensors = std::min(Find(text, R"(,"tensors":{"attrs":[)", middle) + kTensorsKey.size(), text.size());
  const size_t end = text.ends_with('}') ? text.size() - 1 : text.size();
  return {.head = text.substr(0, extents),
          .extents = text.substr(extents, middle - extents),
          .middle = text.substr(middle, tensors - middle),
          .tensors = text.substr(tensors, std::max(tensors, end) - tensors)};
}

bool ScanHead(std::string_view text, Manifest& manifest) {
  Scanner in(text);
  in.Expect(R"({"blob_bytes":)");
  manifest.blob_bytes = in.Integer();
  in.Expect(R"(,"data_start":)");
  manifest.data_start = in.Integer();
  if (in.Take(R"(,"extensions":)")) manifest.extensions = in.Object();
  in.Expect(R"(,"extents":)");
  return in.Done();
}

bool ScanMiddle(std::string_view text, Manifest& manifest) {
  Scanner in(text);
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
  return in.Done();
}

}  // namespace

std::optional<ScannedManifest> ScanManifest(std::string_view text) {
  const Parts parts = Split(text);
  ScannedManifest scanned;
  Manifest& manifest = scanned.manifest;
  std::vector<TensorRecord> tensors;
  std::future<bool> all_but_tensors = StartBeside(text.size(), [&] {
    if (!ScanHead(parts.head, manifest) || !ScanMiddle(parts.middle, manifest)) return false;
    if (!ScanExtents(parts.extents, manifest.extents)) return false;
    scanned.extents_digest = ExtentsDigestOfText(parts.extents);
    return true;
  });
  const bool tensors_fit = ScanTensors(parts.tensors, tensors);
  if (!all_but_tensors.get() || !tensors_fit || !text.ends_with('}')) return std::nullopt;
  const size_t extents = manifest.extents.size();
  const auto inside = [extents](const TensorRecord& t) { return !t.extent || *t.extent < extents; };
  if (!std::all_of(tensors.begin(), tensors.end(), inside)) return std::nullopt;
  manifest.tensors = std::move(tensors);
  scanned.tensors_text = parts.tensors;
  return scanned;
}

}  // namespace coldsnap
