// Tensors on the test's device, and the shard that a plain writer makes of them: one extent after the other, in memory.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cc/artifact/layout.h"
#include "cc/artifact/manifest.h"
#include "cc/base/check.h"
#include "cc/device/gpu.h"
#include "cc/digest/crc32.h"
#include "cc/digest/sha256.h"
#include "cc/testing/pattern.h"
#include "cc/testing/test_device.h"

namespace coldsnap {

class SourcesForTest {
 public:
  // Tensor i is "t<i>" over a storage of sizes[i] pattern bytes.
  SourcesForTest(TestDevice& device, const std::vector<uint64_t>& sizes, uint64_t seed) : device_(device) {
    for (const uint64_t nbytes : sizes) {
      const DeviceRange range = device.Allocate(nbytes);
      storages_.push_back({.range = range, .bytes = PatternBytes(nbytes, seed * 1000 + storages_.size())});
      Put(storages_.back().range, storages_.back().bytes);
    }
  }

  std::vector<TensorSpec> Specs() const {
    std::vector<TensorSpec> specs;
    for (size_t i = 0; i < storages_.size(); ++i) {
      const DeviceRange& range = storages_[i].range;
      specs.push_back({.name = StrCat("t", i),
                       .dtype = "U8",
                       .shape = {range.nbytes},
                       .strides = {1},
                       .address = range.address,
                       .storage_address = range.address,
                       .storage_nbytes = range.nbytes,
                       .object = i,
                       .role = {},
                       .attrs = {}});
    }
    return specs;
  }
  Layout Plan() const {
    Result<Layout> layout = PlanLayout(Specs());
    COLDSNAP_CHECK(layout.ok());
    return *std::move(layout);
  }

  // Changes one byte of storage `index` on the device.
  void Flip(size_t index) const {
    const Storage& storage = storages_[index];
    const std::byte other = ~storage.bytes[0];
    Put({.address = storage.range.address, .nbytes = 1}, {&other, 1});
  }

  // By file name.
  std::map<std::string, std::string> PlainShard() const {
    const Layout layout = Plan();
    std::string blob = layout.header;
    blob.resize(layout.blob_bytes, '\0');
    std::vector<ExtentDigests> digests;
    std::vector<Sha256> leaves;
    for (size_t i = 0; i < layout.sources.size(); ++i) {
      const std::vector<std::byte>& bytes = BytesAt(layout.sources[i].address);
      COLDSNAP_CHECK(bytes.size() == layout.sources[i].nbytes);
      std::memcpy(blob.data() + layout.file_offsets[i], bytes.data(), bytes.size());
      const std::vector<Sha256> of_extent = LeafDigests(bytes);
      digests.push_back({.crc32 = Crc32(0, bytes), .sha256t = TreeRoot(of_extent)});
      leaves.insert(leaves.end(), of_extent.begin(), of_extent.end());
    }
    const auto leaf_bytes = std::as_bytes(std::span(leaves));
    const Result<Manifest> manifest = MakeManifest(layout, digests, Sha256Of(leaf_bytes), "{}", "{}");
    COLDSNAP_CHECK(manifest.ok());
    return {{"weights.safetensors", std::move(blob)},
            {"leaves.bin", std::string(reinterpret_cast<const char*>(leaf_bytes.data()), leaf_bytes.size())},
            {"manifest.json", WriteManifest(*manifest)}};
  }

 private:
  struct Storage {
    DeviceRange range;
    std::vector<std::byte> bytes;
  };

  const std::vector<std::byte>& BytesAt(uint64_t address) const {
    for (const Storage& storage : storages_) {
      if (storage.range.address == address && storage.range.nbytes != 0) return storage.bytes;
    }
    COLDSNAP_CHECK(false);
    return storages_.front().bytes;
  }

  void Put(const DeviceRange& to, std::span<const std::byte> bytes) const {
    if (bytes.empty()) return;
    const Result<std::unique_ptr<PinnedMemory>> pinned = device_.gpu().Pin(bytes.size());
    const Result<std::unique_ptr<Lane>> lane = device_.gpu().OpenLane();
    const Result<std::unique_ptr<Mark>> mark = device_.gpu().NewMark(false);
    COLDSNAP_CHECK(pinned.ok() && lane.ok() && mark.ok());
    std::memcpy((*pinned)->bytes().data(), bytes.data(), bytes.size());
    COLDSNAP_CHECK((*lane)->Begin(**mark).ok());
    COLDSNAP_CHECK((*lane)->CopyToDevice(to, (*pinned)->bytes().data()).ok());
    COLDSNAP_CHECK((*lane)->Record(**mark).ok() && (*mark)->Wait().ok());
  }

  TestDevice& device_;
  std::vector<Storage> storages_;
};

}  // namespace coldsnap
