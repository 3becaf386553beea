#include "tests/large/sparse_artifact.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

#include "cc/artifact/artifact_json.h"
#include "cc/artifact/layout.h"
#include "cc/artifact/manifest.h"
#include "cc/base/check.h"
#include "cc/base/strcat.h"
#include "cc/digest/crc32.h"
#include "cc/digest/sha256.h"
#include "cc/sys/files.h"
#include "cc/testing/pattern.h"

namespace coldsnap {
namespace {

// Nothing is there; PlanLayout only wants addresses that don't overlap, and the number of the tensor comes back in
// them.
constexpr uint64_t kAddressStep = uint64_t{1} << 40;

struct LeafDigest {
  uint32_t crc32 = 0;
  Sha256 sha256{};
};

LeafDigest DigestOf(std::span<const std::byte> bytes) { return {.crc32 = Crc32(0, bytes), .sha256 = Sha256Of(bytes)}; }

Layout PlanOf(const std::vector<SparseTensor>& tensors) {
  std::vector<TensorSpec> specs;
  for (size_t i = 0; i < tensors.size(); ++i) {
    specs.push_back({.name = StrCat("t", i),
                     .dtype = "U8",
                     .shape = {tensors[i].nbytes},
                     .strides = {1},
                     .address = (i + 1) * kAddressStep,
                     .storage_address = (i + 1) * kAddressStep,
                     .storage_nbytes = tensors[i].nbytes,
                     .object = i,
                     .role = {},
                     .attrs = {}});
  }
  return *PlanLayout(std::move(specs));
}

// Writes the marks of one extent and digests the whole of it, leaf by leaf.
ExtentDigests WriteExtent(int fd, uint64_t file_offset, const SparseTensor& tensor, std::vector<Sha256>& all_leaves) {
  static const std::vector<std::byte> zeros(kLeafBytes);
  static const LeafDigest full = DigestOf(zeros);
  const uint64_t count = LeavesOf(tensor.nbytes);
  std::vector<Sha256> leaves;
  uint32_t crc = 0;
  for (uint64_t leaf = 0; leaf < count; ++leaf) {
    const uint64_t nbytes = std::min(kLeafBytes, tensor.nbytes - leaf * kLeafBytes);
    LeafDigest digest = nbytes == kLeafBytes ? full : DigestOf(std::span(zeros).first(nbytes));
    for (const Marked& mark : tensor.marks) {
      if (mark.leaf != leaf) continue;
      const std::vector<std::byte> bytes = PatternBytes(nbytes, mark.seed);
      COLDSNAP_CHECK(WriteExact(fd, bytes, file_offset + leaf * kLeafBytes, "blob").ok());
      digest = DigestOf(bytes);
    }
    leaves.push_back(digest.sha256);
    crc = Crc32Combine(crc, digest.crc32, nbytes);
  }
  all_leaves.insert(all_leaves.end(), leaves.begin(), leaves.end());
  return {.crc32 = crc, .sha256t = TreeRoot(leaves)};
}

void WriteFile(const std::string& path, std::span<const std::byte> bytes) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  COLDSNAP_CHECK(WriteExact(fd.get(), bytes, 0, path).ok());
}
std::span<const std::byte> BytesOf(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

SparseArtifact::SparseArtifact(std::vector<SparseTensor> tensors) {
  Layout layout = PlanOf(tensors);
  const std::string shard = ShardName(0, 0, 0);
  const std::string folder = path() + "/" + shard;
  std::filesystem::create_directory(folder);

  std::vector<ExtentDigests> digests;
  std::vector<Sha256> leaves;
  {
    const UniqueFd fd(::open(blob_path().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    COLDSNAP_CHECK(WriteExact(fd.get(), BytesOf(layout.header), 0, "blob").ok());
    COLDSNAP_CHECK(::ftruncate(fd.get(), static_cast<off_t>(layout.blob_bytes)) == 0);
    for (size_t i = 0; i < layout.sources.size(); ++i) {
      const SparseTensor& tensor = tensors[layout.sources[i].address / kAddressStep - 1];
      digests.push_back(WriteExtent(fd.get(), layout.file_offsets[i], tensor, leaves));
    }
    COLDSNAP_CHECK(::fsync(fd.get()) == 0);  // direct reads go to the drive
  }
  const auto leaf_bytes = std::as_bytes(std::span(leaves));
  WriteFile(folder + "/leaves.bin", leaf_bytes);
  const Manifest manifest = *MakeManifest(std::move(layout), digests, Sha256Of(leaf_bytes), "{}", "{}");
  const std::string manifest_text = WriteManifest(manifest);
  WriteFile(folder + "/manifest.json", BytesOf(manifest_text));
  const ArtifactRecord record = *MakeArtifact("{}", "{}", {MakeShardRecord(shard, manifest, manifest_text)});
  WriteFile(path() + "/artifact.json", BytesOf(WriteArtifact(record)));
}

std::string SparseArtifact::blob_path() const { return path() + "/" + ShardName(0, 0, 0) + "/weights.safetensors"; }

void SparseArtifact::FlipBit(uint64_t offset) const {
  const UniqueFd fd(::open(blob_path().c_str(), O_RDWR | O_CLOEXEC));
  std::byte byte{};
  COLDSNAP_CHECK(ReadExact(fd.get(), {&byte, 1}, offset, "blob").ok());
  byte ^= std::byte{0x10};
  COLDSNAP_CHECK(WriteExact(fd.get(), {&byte, 1}, offset, "blob").ok());
  COLDSNAP_CHECK(::fsync(fd.get()) == 0);
}

uint64_t SparseArtifact::disk_bytes() const {
  struct stat info{};
  COLDSNAP_CHECK(::stat(blob_path().c_str(), &info) == 0);
  return static_cast<uint64_t>(info.st_blocks) * 512;
}

}  // namespace coldsnap
