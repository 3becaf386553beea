#include "tests/fuzz/damage.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include "cc/artifact/header.h"
#include "cc/artifact/limits.h"
#include "cc/artifact/manifest_text.h"
#include "cc/artifact/placement.h"
#include "cc/artifact/tensor.h"
#include "cc/digest/sha256.h"
#include "cc/testing/mutate.h"

namespace coldsnap {
namespace {

constexpr std::string_view kWords[] = {
    "0",
    "00",
    "-1",
    "1.0",
    "1e9",
    "9007199254740991",
    "9007199254740992",
    "18446744073709551616",
    "null",
    "true",
    "[]",
    "{}",
    "[[[[[[[[[[",
    "{\"a\":",
    "\"\"",
    "\"\\u0000\"",
    "\\",
    "\\n",
    "\\\"",
    "\\udc00",
    "\\ud83d",
    "\xC3\xA9",
    "\xED\xA0\x80",
    "\xFF",
    "\x01",
    "\x7F",
    " ",
    "\"a\",",
    "[1],",
    "\"encoding\":[],",
    "\"required\":[",
    "\"extensions\":{},",
    "//x\n",
    "}",
    "]",
    "NaN",
};
// Where sizes and offsets change their meaning.
constexpr uint64_t kNumbers[] = {
    0,
    1,
    2,
    511,
    512,
    513,
    65535,
    65536,
    65537,
    4 * kMiB,
    UINT32_MAX,
    uint64_t{1} << 32,
    kMaxInteger,
    kMaxInteger - 1,
    kMaxInteger - 65535,
    kMaxInteger / 2,
    kMaxInteger + 1,
    UINT64_MAX,
};
constexpr std::string_view kNames[] = {"",     "a",        "b",   "zz", "__metadata__", "__pad__.0", "__storage__.0",
                                       "x\"y", "\xC3\xA9", "\xFF"};
constexpr std::string_view kDtypes[] = {"U8", "BF16", "F64", "C128", "F4", "F6_E2M3", "bf16", ""};

class Dice {
 public:
  explicit Dice(std::mt19937& random) : random_(random) {}
  size_t Below(size_t bound) { return random_() % bound; }
  bool OneIn(size_t bound) { return Below(bound) == 0; }
  template <typename T, size_t kSize>
  const T& Of(const T (&items)[kSize]) {
    return items[Below(kSize)];
  }
  template <typename T>
  T& Of(std::vector<T>& items) {
    return items[Below(items.size())];
  }
  // Near what is there, or one of the odd ones.
  uint64_t Number(uint64_t now) { return OneIn(2) ? Of(kNumbers) : now + Below(3) - 1; }

 private:
  std::mt19937& random_;
};

void ChangeRow(std::vector<uint64_t>& row, Dice& dice) {
  if (row.empty() || dice.OneIn(6)) {
    row.insert(row.begin() + static_cast<std::ptrdiff_t>(dice.Below(row.size() + 1)), dice.Of(kNumbers));
  } else if (dice.OneIn(6)) {
    row.pop_back();
  } else {
    uint64_t& value = dice.Of(row);
    value = dice.Number(value);
  }
}

void ChangeTensor(Manifest& manifest, Dice& dice) {
  TensorRecord& tensor = dice.Of(manifest.tensors);
  switch (dice.Below(8)) {
    case 0:
      tensor.name = dice.OneIn(2) ? std::string(dice.Of(kNames)) : dice.Of(manifest.tensors).name;
      return;
    case 1:
      tensor.dtype = dice.Of(kDtypes);
      return;
    case 2:
      ChangeRow(tensor.shape, dice);
      return;
    case 3:
      ChangeRow(tensor.strides, dice);
      return;
    case 4:
      if (dice.OneIn(3)) {
        tensor.extent.reset();
      } else {
        tensor.extent = static_cast<uint32_t>(dice.Number(tensor.extent.value_or(0)));
      }
      return;
    case 5:
      tensor.offset = dice.Number(tensor.offset);
      return;
    case 6:
      tensor.object = dice.Number(tensor.object);
      return;
    default:
      tensor.attrs.emplace_back(dice.OneIn(2) ? "k=v" : dice.Of(kNames));
  }
}

void ChangeSomething(Manifest& manifest, Dice& dice) {
  if (!manifest.extents.empty() && dice.OneIn(3)) {
    Extent& extent = dice.Of(manifest.extents);
    uint64_t& number = dice.OneIn(3) ? extent.file_offset : extent.nbytes;
    number = dice.Number(number);
  } else if (dice.OneIn(12)) {
    uint64_t& number = dice.OneIn(2) ? manifest.data_start : manifest.blob_bytes;
    number = dice.Number(number);
  } else if (!manifest.extents.empty() && dice.OneIn(12)) {
    manifest.extents.pop_back();
  } else if (!manifest.tensors.empty() && dice.OneIn(12)) {
    manifest.tensors.push_back(dice.Of(manifest.tensors));
  } else if (!manifest.tensors.empty() && dice.OneIn(12)) {
    std::swap(dice.Of(manifest.tensors), dice.Of(manifest.tensors));
  } else if (!manifest.tensors.empty()) {
    ChangeTensor(manifest, dice);
  }
}

// The header of these tensors, where they are fit to be in one.
void FitPlaces(Manifest& manifest) {
  std::vector<uint64_t> nbytes;
  for (const Extent& extent : manifest.extents) nbytes.push_back(extent.nbytes);
  const auto placement = PlaceExtents(nbytes);
  if (!placement.ok()) return;
  for (const TensorRecord& tensor : manifest.tensors) {
    if (!CheckRecord(tensor).ok() || (tensor.extent && *tensor.extent >= nbytes.size())) return;
  }
  const auto header = BuildHeader(manifest.tensors, nbytes, *placement);
  if (!header.ok()) return;
  manifest.data_start = header->size();
  manifest.header_sha256 = Sha256Of(std::as_bytes(std::span(*header)));
  manifest.blob_bytes = manifest.data_start + placement->data_bytes;
  for (size_t i = 0; i < nbytes.size(); ++i)
    manifest.extents[i].file_offset = manifest.data_start + placement->offsets[i];
}

}  // namespace

std::string DamagedText(const std::vector<std::string>& texts, std::mt19937& random) {
  Dice dice(random);
  std::string text = texts[dice.Below(texts.size())];
  for (size_t left = 1 + dice.Below(3); left > 0; --left) {
    if (text.empty() || dice.OneIn(4)) {
      text.insert(dice.Below(text.size() + 1), dice.Of(kWords));
    } else if (dice.OneIn(10)) {
      const std::string& other = texts[dice.Below(texts.size())];
      text.replace(dice.Below(text.size()), text.npos, other, dice.Below(other.size() + 1), other.npos);
    } else {
      text = Mutated(std::move(text), random);
    }
  }
  return text;
}

std::string DamagedManifest(Manifest manifest, std::mt19937& random) {
  Dice dice(random);
  for (size_t left = 1 + dice.Below(3); left > 0; --left) ChangeSomething(manifest, dice);
  if (!dice.OneIn(4)) {
    std::sort(manifest.tensors.begin(), manifest.tensors.end(),
              [](const TensorRecord& a, const TensorRecord& b) { return a.name < b.name; });
  }
  if (!dice.OneIn(4)) FitPlaces(manifest);
  manifest.layout_digest = LayoutDigest(manifest);
  manifest.shard_root = ShardRoot(manifest, ExtentsDigest(manifest));
  return WriteManifest(manifest);
}

}  // namespace coldsnap
