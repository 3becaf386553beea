// The parser's events go straight into the Manifest: a tree of 1,000,000 extents would cost more than the whole read.
#include "cc/artifact/manifest_reader.h"

#include <array>
#include <iterator>
#include <string>
#include <utility>

#include "cc/artifact/canonical_json.h"
#include "cc/artifact/json_text.h"
#include "cc/artifact/limits.h"
#include "cc/base/hex.h"
#include "rapidjson/error/en.h"
#include "rapidjson/memorystream.h"
#include "rapidjson/reader.h"

namespace coldsnap {
namespace {

// clang-format off
enum class Field : uint8_t {
  kUnknown,
  kBlobBytes, kDataStart, kExtensions, kExtents, kFormat, kHeaderSha256, kIdentity, kLayoutDigest, kLeavesSha256,
  kRequired, kScalars, kShardRoot, kTensors,                                                // top
  kCrc32, kFileOffset, kNbytes, kSha256t,                                                   // extents
  kAttrs, kDtypes, kExtent, kNames, kObjects, kOffset, kRoles, kShapes, kStrides,           // tensors
  kCount,
};

struct FieldInfo {
  std::string_view name;
  Field parent;  // kUnknown: the top
};
constexpr size_t kFields = static_cast<size_t>(Field::kCount);
constexpr std::array<FieldInfo, kFields> kInfo = {{
    {"", Field::kUnknown},
    {"blob_bytes", Field::kUnknown},    {"data_start", Field::kUnknown},    {"extensions", Field::kUnknown},
    {"extents", Field::kUnknown},       {"format", Field::kUnknown},        {"header_sha256", Field::kUnknown},
    {"identity", Field::kUnknown},      {"layout_digest", Field::kUnknown}, {"leaves_sha256", Field::kUnknown},
    {"required", Field::kUnknown},      {"scalars", Field::kUnknown},       {"shard_root", Field::kUnknown},
    {"tensors", Field::kUnknown},
    {"crc32", Field::kExtents},         {"file_offset", Field::kExtents},   {"nbytes", Field::kExtents},
    {"sha256t", Field::kExtents},
    {"attrs", Field::kTensors},         {"dtypes", Field::kTensors},        {"extent", Field::kTensors},
    {"names", Field::kTensors},         {"objects", Field::kTensors},       {"offset", Field::kTensors},
    {"roles", Field::kTensors},         {"shapes", Field::kTensors},        {"strides", Field::kTensors},
}};
// clang-format on

const FieldInfo& InfoOf(Field field) { return kInfo[static_cast<size_t>(field)]; }

Field FindField(Field parent, std::string_view name) {
  for (size_t i = 1; i < kFields; ++i) {
    if (kInfo[i].parent == parent && kInfo[i].name == name) return static_cast<Field>(i);
  }
  return Field::kUnknown;
}

std::string PathOf(Field field) {
  const FieldInfo& info = InfoOf(field);
  return info.parent == Field::kUnknown ? std::string(info.name) : StrCat(InfoOf(info.parent).name, ".", info.name);
}

class ManifestHandler {
 public:
  ManifestHandler(std::string_view text, const rapidjson::MemoryStream& stream) : text_(text), stream_(stream) {
    // An extent and its tensor take about 200 bytes of text. Too much reserved is memory never touched, too little is
    // one growth, so a guess does.
    manifest_.extents.reserve(text.size() / 160);
  }

  const std::string& problem() const { return problem_; }
  // After the last event: what no single event can show.
  std::string FindProblemOfWhole();
  Manifest TakeManifest() { return std::move(manifest_); }

  bool Null() {
    if (Skipped()) return true;
    if (depth_ != 3 || column_ != Field::kExtent) return Problem("null");
    if (!HasRoom()) return false;
    Tensor().extent.reset();
    return true;
  }
  bool Bool(bool value) { return Skipped() || Problem(value ? "true" : "false"); }
  bool Int(int value) { return Int64(value); }
  bool Uint(unsigned value) { return Uint64(value); }
  bool Int64(int64_t value) { return Skipped() || Problem(StrCat("the negative number ", value)); }
  bool Double(double) { return Skipped() || Problem("a number that is no integer of 0..2^53-1"); }
  bool RawNumber(const char*, rapidjson::SizeType, bool) { return false; }  // only with kParseNumbersAsStringsFlag
  bool Uint64(uint64_t value) {
    if (Skipped()) return true;
    if (value > kMaxInteger) return Problem(StrCat("the integer ", value, ", past 2^53-1"));
    switch (depth_) {
      case 1:
        return TopInteger(value);
      case 3:
        return HasRoom() && ColumnInteger(value);
      case 4:
        return RowInteger(value);
      default:
        return Problem(StrCat("the integer ", value));
    }
  }
  bool String(const char* data, rapidjson::SizeType size, bool) {
    if (Skipped()) return true;
    const std::string_view value(data, size);
    switch (depth_) {
      case 1:
        return TopString(value);
      case 2:
        if (top_ != Field::kRequired) return Problem(StrCat("the string ", Quoted(value)));
        required_.emplace_back(value);
        return true;
      case 3:
        return HasRoom() && ColumnString(value);
      case 4:
        return RowString(value);
      default:
        return Problem(StrCat("the string ", Quoted(value)));
    }
  }
  bool Key(const char* data, rapidjson::SizeType size, bool) {
    if (skip_depth_ != 0) return true;
    const std::string_view name(data, size);
    Field& current = depth_ == 1 ? top_ : column_;
    current = FindField(depth_ == 1 ? Field::kUnknown : top_, name);
    if (current == Field::kUnknown) {
      // Not yet an error: a later `required` names the feature that brought the field, which says more.
      if (unknown_.empty()) unknown_ = depth_ == 1 ? std::string(name) : StrCat(InfoOf(top_).name, ".", name);
      return true;
    }
    bool& seen = seen_[static_cast<size_t>(current)];
    if (std::exchange(seen, true)) return Fail(StrCat(PathOf(current), " stands twice"));
    return true;
  }
  bool StartObject() {
    if (!Enter()) return false;
    if (skip_depth_ != 0 || depth_ == 1) return true;
    if (depth_ == 2 && (top_ == Field::kExtents || top_ == Field::kTensors)) return true;
    if (depth_ == 2 && IsEmbedded(top_)) {
      embedded_at_ = stream_.Tell() - 1;  // the parser is past the brace
      skip_depth_ = depth_;
      return true;
    }
    return ProblemInside("an object");
  }
  bool EndObject(rapidjson::SizeType) {
    if (skip_depth_ == depth_ && IsEmbedded(top_))
      *Embedded(top_) = text_.substr(embedded_at_, stream_.Tell() - embedded_at_);
    Leave();
    return true;
  }
  bool StartArray() {
    if (!Enter()) return false;
    if (skip_depth_ != 0) return true;
    if (depth_ == 2 && top_ == Field::kRequired) return true;
    if (depth_ == 3 && top_ != Field::kRequired) return true;  // a column
    if (depth_ == 4) return StartRow();
    return ProblemInside("an array");
  }
  bool EndArray(rapidjson::SizeType) {
    if (skip_depth_ == 0 && depth_ == 4) FinishRow();
    Leave();
    return true;
  }

 private:
  static bool IsEmbedded(Field field) {
    return field == Field::kIdentity || field == Field::kScalars || field == Field::kExtensions;
  }
  std::string* Embedded(Field field) {
    return field == Field::kIdentity  ? &manifest_.identity
           : field == Field::kScalars ? &manifest_.scalars
                                      : &manifest_.extensions;
  }
  // Whether the value at hand belongs to a field that is passed over: unknown, or taken as text.
  bool Skipped() const { return skip_depth_ != 0 || InUnknownField(); }
  bool InUnknownField() const {
    return (depth_ == 1 && top_ == Field::kUnknown) ||
           (depth_ == 2 && top_ != Field::kRequired && column_ == Field::kUnknown);
  }
  bool Enter() {
    if (depth_ == kMaxJsonDepth) return Fail(StrCat("objects and arrays nested deeper than ", kMaxJsonDepth));
    const bool skip = skip_depth_ == 0 && InUnknownField();
    ++depth_;
    if (skip) skip_depth_ = depth_;
    return true;
  }
  void Leave() {
    if (skip_depth_ == depth_) skip_depth_ = 0;
    --depth_;
    if (depth_ == 1) column_ = Field::kUnknown;
  }

  // The index of the column's element at hand.
  size_t& Count() { return counts_[static_cast<size_t>(column_)]; }
  // Whether the text can hold a whole row for that element; before one is made.
  bool HasRoom() {
    const size_t least = top_ == Field::kExtents ? kLeastExtentText : kLeastTensorText;
    if (Count() < text_.size() / least) return true;
    return Fail(StrCat(PathOf(column_), " has more than ", text_.size() / least, " elements, and whole rows of ",
                       InfoOf(top_).name, " for more don't fit the text"));
  }
  Extent& NextExtent() {
    const size_t i = Count()++;
    if (i >= manifest_.extents.size()) manifest_.extents.resize(i + 1);
    return manifest_.extents[i];
  }
  TensorRecord& Tensor() {
    const size_t i = Count()++;
    if (i >= manifest_.tensors.size()) {
      // Most tensors have an extent of their own; moving all of them on each doubling would cost as much as reading.
      if (i == 0) manifest_.tensors.reserve(manifest_.extents.size() + manifest_.extents.size() / 8);
      manifest_.tensors.resize(i + 1);
    }
    return manifest_.tensors[i];
  }
  bool TopInteger(uint64_t value) {
    switch (top_) {
      case Field::kBlobBytes:
        manifest_.blob_bytes = value;
        return true;
      case Field::kDataStart:
        manifest_.data_start = value;
        return true;
      case Field::kFormat:
        format_ = value;
        return true;
      default:
        return Problem(StrCat("the integer ", value));
    }
  }
  bool TopString(std::string_view value) {
    switch (top_) {
      case Field::kHeaderSha256:
        return TakeSha256(value, manifest_.header_sha256);
      case Field::kLayoutDigest:
        return TakeSha256(value, manifest_.layout_digest);
      case Field::kLeavesSha256:
        return TakeSha256(value, manifest_.leaves_sha256);
      case Field::kShardRoot:
        return TakeSha256(value, manifest_.shard_root);
      default:
        return Problem(StrCat("the string ", Quoted(value)));
    }
  }
  bool ColumnInteger(uint64_t value) {
    switch (column_) {
      case Field::kFileOffset:
        NextExtent().file_offset = value;
        return true;
      case Field::kNbytes:
        NextExtent().nbytes = value;
        return true;
      case Field::kOffset:
        Tensor().offset = value;
        return true;
      case Field::kObjects:
        Tensor().object = value;
        return true;
      case Field::kExtent:
        if (value > UINT32_MAX) return Problem(StrCat("the extent ", value, ", past 4294967295"));
        Tensor().extent = static_cast<uint32_t>(value);
        return true;
      default:
        return Problem(StrCat("the integer ", value));
    }
  }
  bool ColumnString(std::string_view value) {
    switch (column_) {
      case Field::kCrc32:
        if (const auto crc32 = Crc32FromHex(value)) return NextExtent().crc32 = *crc32, true;
        return Problem(StrCat(Quoted(value), ", not 8 lower-case hex digits"));
      case Field::kSha256t:
        if (const auto sha256t = Sha256FromHex(value)) return NextExtent().sha256t = *sha256t, true;
        return Problem(StrCat(Quoted(value), ", not 64 lower-case hex digits"));
      case Field::kNames:
        Tensor().name = value;
        return true;
      case Field::kDtypes:
        Tensor().dtype = value;
        return true;
      case Field::kRoles:
        Tensor().role = value;
        return true;
      default:
        return Problem(StrCat("the string ", Quoted(value)));
    }
  }
  bool StartRow() {
    if (column_ != Field::kShapes && column_ != Field::kStrides && column_ != Field::kAttrs)
      return ProblemInside("an array");
    return HasRoom();
  }
  bool RowInteger(uint64_t value) {
    if (column_ == Field::kAttrs) return Problem(StrCat("the integer ", value));
    integers_.push_back(value);
    return true;
  }
  bool RowString(std::string_view value) {
    if (column_ != Field::kAttrs) return Problem(StrCat("the string ", Quoted(value)));
    strings_.emplace_back(value);
    return true;
  }
  // Rows come together aside, so that each is allocated once, in its size.
  void FinishRow() {
    TensorRecord& tensor = Tensor();
    switch (column_) {
      case Field::kShapes:
        tensor.shape = integers_;
        break;
      case Field::kStrides:
        tensor.strides = integers_;
        break;
      default:
        tensor.attrs.assign(std::make_move_iterator(strings_.begin()), std::make_move_iterator(strings_.end()));
    }
    integers_.clear();
    strings_.clear();
  }
  bool TakeSha256(std::string_view value, Sha256& into) {
    const auto digest = Sha256FromHex(value);
    if (!digest) return Problem(StrCat(Quoted(value), ", not 64 lower-case hex digits"));
    into = *digest;
    return true;
  }

  // A value of the wrong kind; `has` says what is there.
  bool Problem(std::string_view has) {
    if (depth_ == 0) return Fail(StrCat("the document is ", has, ", not an object"));
    std::string path = PathOf(column_ != Field::kUnknown ? column_ : top_);
    if (depth_ >= 3) path.append(StrCat("[", Count(), "]"));
    return Fail(StrCat(path, " is ", has, ", which it can't be"));
  }
  // The same for a container, which has been entered already.
  bool ProblemInside(std::string_view has) {
    --depth_;
    return Problem(has);
  }
  bool Fail(std::string what) {
    problem_ = std::move(what);
    return false;
  }

  const std::string_view text_;
  const rapidjson::MemoryStream& stream_;
  Manifest manifest_;
  uint64_t format_ = 0;
  std::vector<std::string> required_;
  std::vector<uint64_t> integers_;  // of the row at hand
  std::vector<std::string> strings_;
  std::string unknown_;  // path of the first unknown field
  std::string problem_;

  int depth_ = 0;       // open objects and arrays
  int skip_depth_ = 0;  // the depth whose end ends the skipping; 0: not skipping
  size_t embedded_at_ = 0;
  Field top_ = Field::kUnknown;
  Field column_ = Field::kUnknown;
  std::array<bool, kFields> seen_{};
  std::array<size_t, kFields> counts_{};
};

std::string ManifestHandler::FindProblemOfWhole() {
  if (!seen_[static_cast<size_t>(Field::kFormat)]) return "format is missing";
  if (format_ != kFormatVersion) return StrCat("format is ", format_, "; this version reads format ", kFormatVersion);
  if (!required_.empty()) {
    return StrCat(
        "the artifact requires the feature ", Quoted(required_.front()),
        ", which this version doesn't know (it knows none); read it with the version that wrote it or a newer one");
  }
  if (!unknown_.empty()) return StrCat("the field ", Quoted(unknown_), " is none of format 1");
  for (size_t i = 1; i < kFields; ++i) {
    const Field field = static_cast<Field>(i);
    if (!seen_[i] && field != Field::kExtensions) return StrCat(PathOf(field), " is missing");
    const Field parent = kInfo[i].parent;
    if (parent == Field::kUnknown) continue;
    const size_t rows = parent == Field::kExtents ? manifest_.extents.size() : manifest_.tensors.size();
    if (counts_[i] != rows) {
      return StrCat(PathOf(field), " has ", counts_[i], " elements where another column of ", InfoOf(parent).name,
                    " has ", rows);
    }
  }
  return {};
}

Status Invalid(std::string_view message) { return Status(Code::kFormatInvalid, StrCat("manifest.json: ", message)); }

Status CheckEmbedded(std::string_view name, const std::string& text) {
  auto canonical = CanonicalObject(text);
  if (!canonical.ok()) return Invalid(StrCat(name, ": ", canonical.status().message()));
  if (*canonical != text) return Invalid(StrCat(name, " is not canonical JSON"));
  return Status::Ok();
}

}  // namespace

Result<Manifest> ReadManifestFields(std::string_view text) {
  rapidjson::MemoryStream stream(text.data(), text.size());
  ManifestHandler handler(text, stream);
  rapidjson::Reader reader;
  // The recursive parser is a quarter faster, and the handler ends it at a depth of 8. Every string that is kept is
  // held to UTF-8 later, names one by one and the objects as canonical JSON, so the parser need not.
  const auto result = reader.Parse<rapidjson::kParseNoFlags>(stream, handler);
  if (!handler.problem().empty()) return Invalid(StrCat("at byte ", result.Offset(), ": ", handler.problem()));
  if (result.IsError()) {
    return Invalid(
        StrCat("at byte ", result.Offset(), " of ", text.size(), ": ", rapidjson::GetParseError_En(result.Code())));
  }
  if (const std::string problem = handler.FindProblemOfWhole(); !problem.empty()) return Invalid(problem);
  Manifest manifest = handler.TakeManifest();
  RETURN_IF_ERROR(CheckEmbedded("identity", manifest.identity));
  RETURN_IF_ERROR(CheckEmbedded("scalars", manifest.scalars));
  if (!manifest.extensions.empty()) RETURN_IF_ERROR(CheckEmbedded("extensions", manifest.extensions));
  return manifest;
}

}  // namespace coldsnap
