// Short ways to describe tensors and to damage texts in the tests of this folder. Addresses are numbers only: nothing
// here reads memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/artifact/dtype.h"
#include "cc/artifact/layout.h"
#include "cc/artifact/manifest.h"
#include "cc/artifact/tensor.h"
#include "cc/base/hex.h"
#include "cc/digest/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace coldsnap {

constexpr uint64_t kBase = uint64_t{1} << 40;  // where made-up storages lie, far apart

inline std::vector<int64_t> RowMajor(const std::vector<uint64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= static_cast<int64_t>(shape[i]);
  }
  return strides;
}

// A contiguous tensor that fills a storage of its own at `address`, and is an object of its own.
inline TensorSpec Whole(std::string name, std::string dtype, std::vector<uint64_t> shape, uint64_t address) {
  TensorSpec spec{.name = std::move(name),
                  .dtype = std::move(dtype),
                  .shape = std::move(shape),
                  .address = address,
                  .storage_address = address,
                  .object = address};
  spec.strides = RowMajor(spec.shape);
  spec.storage_nbytes = FindDtype(spec.dtype)->element_bytes;
  for (const uint64_t dimension : spec.shape) spec.storage_nbytes *= dimension;
  return spec;
}

// `nbytes` of U8.
inline TensorSpec Raw(std::string name, uint64_t nbytes, uint64_t address) {
  return Whole(std::move(name), "U8", {nbytes}, address);
}

inline Layout MustPlan(std::vector<TensorSpec> specs, uint64_t header_limit = kMaxHeaderBytes) {
  auto layout = PlanLayout(std::move(specs), header_limit);
  EXPECT_TRUE(layout.ok()) << layout.status().message();
  return layout.ok() ? *std::move(layout) : Layout{};
}

// The header's JSON without padding.
inline std::string JsonOf(const std::string& header) {
  return header.substr(kHeaderPrefixBytes, header.find_last_not_of(' ') + 1 - kHeaderPrefixBytes);
}

// Digests that differ from extent to extent; the format doesn't know the data.
inline Manifest MustMake(Layout layout, std::string_view identity = "{}", std::string_view scalars = "{}") {
  std::vector<ExtentDigests> digests(layout.sources.size());
  for (size_t i = 0; i < digests.size(); ++i) {
    digests[i].crc32 = static_cast<uint32_t>(i * 2654435761U);
    digests[i].sha256t.fill(static_cast<std::byte>(i));
  }
  auto manifest = MakeManifest(std::move(layout), digests, Sha256{}, identity, scalars);
  EXPECT_TRUE(manifest.ok()) << manifest.status().message();
  return manifest.ok() ? *std::move(manifest) : Manifest{};
}

inline std::string ShaHex(std::string_view text) { return ToHex(Sha256Of(std::as_bytes(std::span(text)))); }

// What `parse` says of `good`, the text of `file`, after the first `from` in it has become `to`.
template <typename Parse>
std::string RefusalAfter(std::string_view from, std::string_view to, std::string good, std::string_view file,
                         Parse parse) {
  const size_t at = good.find(from);
  if (at == good.npos) return StrCat("the good text has no ", from);
  good.replace(at, from.size(), to);
  const Status status = parse(good).status();
  if (status.ok()) return "accepted";
  EXPECT_EQ(status.code(), Code::kFormatInvalid);
  EXPECT_THAT(status.message(), testing::StartsWith(StrCat(file, ": ")));
  return status.message();
}

}  // namespace coldsnap
