#include "cc/artifact/header.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "cc/artifact/dtype.h"
#include "cc/artifact/json_text.h"
#include "cc/artifact/text_sink.h"

namespace coldsnap {
namespace {

// The length of what follows, little-endian.
std::string PrefixOf(uint64_t data_start) {
  const uint64_t length = data_start - kHeaderPrefixBytes;
  std::string prefix;
  for (size_t i = 0; i < kHeaderPrefixBytes; ++i) prefix.push_back(static_cast<char>(length >> (8 * i)));
  return prefix;
}

// Appends entries in data order. A gap before an entry is declared by an entry of its own, since safetensors wants
// offsets without holes.
class HeaderText {
 public:
  HeaderText(TextSink& sink, std::string_view prefix) : sink_(sink), text_(sink.out()) {
    text_.append(prefix).append(R"({"__metadata__":{"format":"pt","coldsnap.format":"1"})");
  }

  void Tensor(const TensorRecord& tensor, uint64_t begin, uint64_t end) {
    PadTo(begin);
    Open(tensor.name, tensor.dtype);
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
      if (i > 0) text_.push_back(',');
      const bool doubled = IsF4(tensor.dtype) && i + 1 == tensor.shape.size();  // one packed byte is two values
      AppendJsonInteger(text_, doubled ? 2 * tensor.shape[i] : tensor.shape[i]);
    }
    Close(begin, end);
  }

  // U8, named by a running number.
  void Numbered(std::string_view stem, uint64_t number, uint64_t begin, uint64_t end) {
    PadTo(begin);
    Bytes(stem, number, begin, end);
  }

  void PadTo(uint64_t begin) {
    if (begin > at_) Bytes("__pad__.", pads_++, at_, begin);
  }

  uint64_t size() const { return sink_.position(); }

  // Closes and pads the text, and returns its size.
  uint64_t Finish() {
    text_.push_back('}');
    text_.append(AlignUp(size(), kGroupAlignment) - size(), ' ');
    return size();
  }

 private:
  void Bytes(std::string_view stem, uint64_t number, uint64_t begin, uint64_t end) {
    name_.assign(stem);
    AppendJsonInteger(name_, number);
    Open(name_, "U8");
    AppendJsonInteger(text_, end - begin);
    Close(begin, end);
  }
  void Open(std::string_view name, std::string_view dtype) {
    text_.push_back(',');
    AppendJsonString(text_, name);
    text_.append(R"(:{"dtype":")").append(dtype).append(R"(","shape":[)");
  }
  void Close(uint64_t begin, uint64_t end) {
    text_.append(R"(],"data_offsets":[)");
    AppendJsonInteger(text_, begin);
    text_.push_back(',');
    AppendJsonInteger(text_, end);
    text_.append("]}");
    sink_.Item();
    at_ = end;
  }

  TextSink& sink_;
  std::string& text_;
  std::string name_;
  uint64_t at_ = 0;
  uint64_t pads_ = 0;
};

struct HeaderInput {
  std::span<const TensorRecord> tensors;
  std::span<const uint64_t> nbytes;
  const Placement& placement;
  std::vector<size_t> names;
};

void AddExtent(HeaderText& header, const HeaderInput& in, size_t extent) {
  const uint64_t begin = in.placement.offsets[extent];
  const uint64_t end = begin + in.nbytes[extent];
  if (in.names[extent] == kUnnamed) {
    header.Numbered("__storage__.", extent, begin, end);
  } else {
    header.Tensor(in.tensors[in.names[extent]], begin, end);
  }
}

// Returns the size; nothing when it would pass `limit_bytes`.
std::optional<uint64_t> Write(const HeaderInput& in, bool whole_groups, uint64_t limit_bytes, std::string_view prefix,
                              TextSink& sink) {
  HeaderText header(sink, prefix);
  for (const TensorRecord& tensor : in.tensors) {
    if (!tensor.extent && FitsHeader(tensor)) header.Tensor(tensor, 0, 0);
  }
  const size_t one_by_one = whole_groups ? in.placement.large_count : in.nbytes.size();
  for (size_t i = 0; i < one_by_one; ++i) {
    AddExtent(header, in, i);
    if (header.size() > limit_bytes + kHeaderPrefixBytes) return std::nullopt;  // don't build what is thrown away
  }
  if (whole_groups) {
    for (size_t i = 0; i < in.placement.small_groups.size(); ++i) {
      header.Numbered("__group__.", i, in.placement.small_groups[i].begin, in.placement.small_groups[i].end);
    }
  }
  header.PadTo(in.placement.data_bytes);
  const uint64_t data_start = header.Finish();
  if (data_start > limit_bytes + kHeaderPrefixBytes) return std::nullopt;
  return data_start;
}

Status TooLong(const HeaderInput& in, uint64_t limit_bytes) {
  return Status(
      Code::kRequestInvalid,
      StrCat("the header of ", in.tensors.size(), " tensors in ", in.nbytes.size(), " extents passes ", limit_bytes,
             " bytes even with one entry for each group of small extents; capture the tensors in several "
             "shards"));
}

}  // namespace

std::vector<size_t> NameExtents(std::span<const TensorRecord> tensors, std::span<const uint64_t> nbytes) {
  std::vector<size_t> names(nbytes.size(), kUnnamed);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorRecord& tensor = tensors[i];
    if (!tensor.extent || tensor.offset != 0 || names[*tensor.extent] != kUnnamed) continue;
    const auto span = SpanBytes(tensor);
    if (!span.ok() || *span != nbytes[*tensor.extent]) continue;
    if (IsContiguous(tensor) && FitsHeader(tensor)) names[*tensor.extent] = i;
  }
  return names;
}

Result<std::string> BuildHeader(std::span<const TensorRecord> tensors, std::span<const uint64_t> nbytes,
                                const Placement& placement, uint64_t limit_bytes) {
  const HeaderInput in{tensors, nbytes, placement, NameExtents(tensors, nbytes)};
  for (const bool whole_groups : {false, true}) {
    // Ample for names of 60 bytes, gaps included; what stays unused is never touched.
    StringSink sink(kGroupAlignment + std::min(limit_bytes, 256 * uint64_t{nbytes.size()}));
    const auto data_start = Write(in, whole_groups, limit_bytes, PrefixOf(kHeaderPrefixBytes), sink);
    if (!data_start) continue;
    std::string text = std::move(sink).Finish();
    text.replace(0, kHeaderPrefixBytes, PrefixOf(*data_start));
    return text;
  }
  return TooLong(in, limit_bytes);
}

Result<HeaderDigest> DigestHeader(std::span<const TensorRecord> tensors, std::span<const uint64_t> nbytes,
                                  const Placement& placement, uint64_t data_start) {
  const HeaderInput in{tensors, nbytes, placement, NameExtents(tensors, nbytes)};
  for (const bool whole_groups : {false, true}) {
    HashSink sink;
    const auto size = Write(in, whole_groups, kMaxHeaderBytes, PrefixOf(data_start), sink);
    if (size) return HeaderDigest{*size, std::move(sink).Finish()};
  }
  return TooLong(in, kMaxHeaderBytes);
}

}  // namespace coldsnap
