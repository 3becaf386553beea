#include "cc/gds/errors.h"

#include <algorithm>

namespace coldsnap {
namespace {

template <int... kNumbers>
constexpr int kList[] = {kNumbers...};

constexpr GdsErrorGroup kGroups[] = {
    {kList<5001>, "cuFile has no direct path here: nvidia-fs is not loaded, and PCI P2PDMA or CUDA's driver is missing",
     "load the kernel module nvidia-fs, or use a kernel and a driver with PCI P2PDMA; else use the direct route"},
    {kList<5033>, "cuFile could not set itself up: no usable CUDA driver (libcuda.so.1), or nvidia-fs did not start",
     "see that nvidia-smi lists the GPU here, and look into dmesg for nvidia-fs"},
    {kList<5004, 5005>, "the version of nvidia-fs does not fit libcufile, or can't be read",
     "install nvidia-fs and libcufile of the same CUDA release"},
    {kList<5006, 5026>, "another part of this process has cuFile open with its own settings, or is closing it",
     "restore before anything else in the process uses cuFile, or use the direct route"},
    {kList<5007, 5009, 5029>, "this platform or GPU can't do GPUDirect Storage",
     "use the direct route; gdscheck -p lists what is supported"},
    {kList<5027>,
     "cuFile does not know the file: its file system was not recognised, often because udev has no "
     "ID_FS_USAGE for the drive",
     "make /run/udev visible (in a container: mount it) and see ID_FS_USAGE in udevadm info for the drive"},
    {kList<5008, 5018, 5019, 5020, 5034>,
     "cuFile can't read this file directly: its type, its file system or the way it "
     "was opened, or cufile.json forbids it",
     "keep the artifact on ext4 or XFS on a local NVMe drive, or use the direct route"},
    {kList<5016, 5036, 5043, 5045>, "the GPU memory can't be pinned: no room in BAR1, or a limit of cufile.json",
     "see BAR1 in nvidia-smi -q and properties.max_device_pinned_mem_size_kb in cufile.json"},
    {kList<5012, 5013, 5014, 5017, 5023, 5024, 5028>,
     "this memory or file is registered already, or is not what cuFile "
     "can register",
     "give memory of one cudaMalloc that nothing else in the process has registered"},
    {kList<5011, 5015, 5047>, "a CUDA call of cuFile failed, or another device's context is current",
     "make the destination's device current; see dmesg for Xid errors"},
    {kList<5025, 5031>, "access to nvidia-fs or to the file was denied",
     "make /dev/nvidia-fs* visible and readable (in a container: pass them in)"},
    {kList<5002, 5003, 5022>, "cuFile was given a value that it does not take",
     "look through /etc/cufile.json, or the file that CUFILE_ENV_PATH_JSON names"},
    {kList<5044>, "the drive or file system failed while cuFile read", "see dmesg for errors of the drive"},
    {kList<5010, 5030, 5046, 5048, 5050>, "cuFile or nvidia-fs failed inside",
     "set CUFILE_LOGFILE_PATH to a file and look there and into dmesg"},
    {kList<5035, 5037, 5038, 5039, 5040, 5041, 5042, 5049>,
     "a batch or stream call of cuFile failed, which coldsnap "
     "does not make",
     "report it"},
};
constexpr GdsErrorGroup kUnknown{
    {}, "a number that this version does not know", "set CUFILE_LOGFILE_PATH to a file and look there"};

}  // namespace

std::span<const GdsErrorGroup> GdsErrorGroups() { return kGroups; }

const GdsErrorGroup& ExplainGdsError(int number) {
  const auto* found = std::ranges::find_if(kGroups, [number](const GdsErrorGroup& group) {
    return std::ranges::find(group.numbers, number) != group.numbers.end();
  });
  return found == std::end(kGroups) ? kUnknown : *found;
}

Status GdsStatus(cufile::Error error, std::string_view doing, Code code) {
  if (error.number == 0) return Status::Ok();
  const GdsErrorGroup& group = ExplainGdsError(error.number);
  const std::string cuda = error.number == cufile::kCudaDriverError ? StrCat(" (CUDA error ", error.cuda, ")") : "";
  return Status(code, StrCat(doing, ": cuFile error ", error.number, cuda, ": ", group.cause))
      .WithNative(Domain::kGds, error.number)
      .WithRemedy(group.remedy);
}

}  // namespace coldsnap
