#include "cc/device/copy_probe.h"

#include <memory>

#include "cc/base/units.h"
#include "cc/sys/clock.h"

namespace coldsnap {

Result<double> TimeCopies(Gpu& gpu, bool to_device, uint64_t nbytes, uint64_t chunk_bytes) {
  if (nbytes == 0 || chunk_bytes == 0) {
    return Status(Code::kRequestInvalid,
                  StrCat("time copies of ", nbytes, " bytes in chunks of ", chunk_bytes, ": both must be above 0"));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<PinnedMemory> host, gpu.Pin(chunk_bytes));
  ASSIGN_OR_RETURN(const std::unique_ptr<DeviceMemory> device, gpu.Allocate(chunk_bytes));
  ASSIGN_OR_RETURN(const std::unique_ptr<Mark> mark, gpu.NewMark(false));
  ASSIGN_OR_RETURN(const std::unique_ptr<Lane> lane, gpu.OpenLane());
  const DeviceRange range{.address = device->address(), .nbytes = chunk_bytes};
  const auto copy = [&]() -> Status {
    RETURN_IF_ERROR(lane->Begin(*mark));
    for (uint64_t done = 0; done < nbytes; done += chunk_bytes) {
      RETURN_IF_ERROR(to_device ? lane->CopyToDevice(range, host->bytes().data())
                                : lane->CopyToHost(host->bytes().data(), range));
    }
    RETURN_IF_ERROR(lane->Record(*mark));
    return mark->Wait();
  };
  const Stopwatch watch;
  Status status = copy();
  const double seconds = watch.Seconds();
  if (status.ok()) return seconds;
  static_cast<void>(lane->Drain());  // both buffers go now: nothing may be in flight between them
  return status;
}

}  // namespace coldsnap
