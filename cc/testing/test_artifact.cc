#include "cc/testing/test_artifact.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "cc/base/check.h"
#include "cc/testing/pattern.h"

namespace coldsnap {

TestArtifact::TestArtifact(std::vector<uint64_t> sizes) : sizes_(std::move(sizes)) {
  std::vector<std::vector<std::byte>> bytes;
  WriteRequest request{.path = path(), .tensors = {}};
  for (size_t i = 0; i < sizes_.size(); ++i) {
    bytes.push_back(PatternBytes(sizes_[i], i + 1));
    const auto address = reinterpret_cast<uint64_t>(bytes.back().data());
    request.tensors.push_back({.name = StrCat("t", i),
                               .dtype = "U8",
                               .shape = {sizes_[i]},
                               .strides = {1},
                               .address = address,
                               .storage_address = address,
                               .storage_nbytes = sizes_[i],
                               .object = i,
                               .role = {},
                               .attrs = {}});
  }
  const Result<WriteReport> report = WriteHostArtifact(std::move(request));
  if (!report.ok()) std::fprintf(stderr, "%s\n", report.status().message().c_str());
  COLDSNAP_CHECK(report.ok());
}

OpenArtifact TestArtifact::Open() const {
  Result<OpenArtifact> artifact = OpenArtifact::Open(path(), std::nullopt);
  if (!artifact.ok()) std::fprintf(stderr, "%s\n", artifact.status().message().c_str());
  return *std::move(artifact);
}

void TestArtifact::FlipBit(uint64_t offset) const {
  COLDSNAP_CHECK(::chmod(blob_path().c_str(), 0644) == 0);
  const UniqueFd fd(::open(blob_path().c_str(), O_RDWR | O_CLOEXEC));
  COLDSNAP_CHECK(fd.get() >= 0);
  std::byte byte{};
  COLDSNAP_CHECK(ReadExact(fd.get(), {&byte, 1}, offset, "blob").ok());
  byte ^= std::byte{0x10};
  COLDSNAP_CHECK(WriteExact(fd.get(), {&byte, 1}, offset, "blob").ok());
  COLDSNAP_CHECK(::fsync(fd.get()) == 0);
}

void TestArtifact::Truncate(uint64_t nbytes) const {
  COLDSNAP_CHECK(::chmod(blob_path().c_str(), 0644) == 0);
  COLDSNAP_CHECK(::truncate(blob_path().c_str(), static_cast<off_t>(nbytes)) == 0);
}

std::vector<TestArtifact::Destination> TestArtifact::Allocate(const OpenArtifact& artifact, TestDevice& device) const {
  std::vector<Destination> destinations;
  for (const TensorRecord& tensor : artifact.manifest().tensors) {
    if (!tensor.extent) continue;
    const uint64_t nbytes = artifact.manifest().extents[*tensor.extent].nbytes;
    destinations.push_back({.target = {.extent = *tensor.extent, .range = device.Allocate(nbytes)},
                            .seed = std::stoull(tensor.name.substr(1)) + 1,
                            .name = tensor.name});
  }
  return destinations;
}

std::vector<ExtentTarget> TargetsOf(const std::vector<TestArtifact::Destination>& destinations) {
  std::vector<ExtentTarget> targets;
  for (const TestArtifact::Destination& destination : destinations) targets.push_back(destination.target);
  return targets;
}

}  // namespace coldsnap
