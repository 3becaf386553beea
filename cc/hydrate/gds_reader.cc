#include "cc/hydrate/gds_reader.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "cc/base/check.h"
#include "cc/sys/files.h"

namespace coldsnap {

Result<GdsReader> GdsReader::Open(const OpenArtifact& artifact, SharedGdsDriver driver) {
  if (driver == nullptr) {
    ASSIGN_OR_RETURN(driver, GdsDriver::Get());
  }
  ASSIGN_OR_RETURN(const GdsReads before, driver->CountReads());
  ASSIGN_OR_RETURN(UniqueFd fd, ReopenFile(artifact.blob_fd(), O_DIRECT, kBlobFile));
  ASSIGN_OR_RETURN(GdsFile file, GdsFile::Register(driver, std::move(fd), kBlobFile));
  return GdsReader(std::move(driver), before, std::move(file));
}

Status GdsReader::Register(std::span<const DeviceRange> destinations, Gpu& gpu) {
  std::vector<DeviceRange> wanted;
  for (const DeviceRange& range : destinations) {
    if (range.nbytes != 0) wanted.push_back(range);
  }
  std::ranges::sort(wanted, {}, &DeviceRange::address);
  for (size_t i = 0; i < wanted.size();) {
    ASSIGN_OR_RETURN(const DeviceRange allocation, gpu.AllocationOf(wanted[i].address));
    const uint64_t begin = wanted[i].address;
    uint64_t end = begin;
    for (; i < wanted.size() && wanted[i].address - allocation.address < allocation.nbytes; ++i) {
      end = std::max(end, wanted[i].address + wanted[i].nbytes);
    }
    // The GPU maps 64 KiB at a time.
    const uint64_t from = std::max(allocation.address, AlignDown(begin, kLeafBytes));
    ASSIGN_OR_RETURN(GdsBuffer buffer, GdsBuffer::Register(driver_, {.address = from, .nbytes = end - from}));
    buffers_.push_back(std::move(buffer));
  }
  return Status::Ok();
}

Status GdsReader::Read(uint64_t file_offset, const DeviceRange& into) const {
  const auto behind = std::ranges::upper_bound(buffers_, into.address, {},
                                               [](const GdsBuffer& buffer) { return buffer.range().address; });
  COLDSNAP_CHECK(behind != buffers_.begin());
  const GdsBuffer& buffer = *std::prev(behind);
  return file_.Read(buffer, into.address - buffer.range().address, file_offset, into.nbytes);
}

}  // namespace coldsnap
