// What this machine is and does: for receipts and for the calibration's ceilings.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "cc/base/hex.h"
#include "cc/device/copy_probe.h"
#include "cc/device/cuda_gpu.h"
#include "cc/digest/crc32.h"
#include "cc/digest/sha256.h"
#include "cc/gds/gds.h"
#include "cc/sys/files.h"
#include "cc/sys/limits.h"
#include "py/coldsnap/_native/bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace coldsnap {
namespace {

using Buffer = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::span<const std::byte> BytesIn(const Buffer& buffer) {
  return std::as_bytes(std::span(buffer.data(), buffer.size()));
}

// "cuda:3" -> 3; the host has no such description.
int OrdinalOf(const std::string& device) {
  const std::unique_ptr<Gpu> gpu = ValueOrThrow(OpenGpu(device));
  if (gpu->Name() == "host")
    Throw(Status(Code::kRequestInvalid, "describe device \"host\": only CUDA devices have names"));
  return std::stoi(device.substr(device.find(':') + 1));
}

std::pair<uint64_t, uint64_t> FileResidency(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const UniqueFd dir = ValueOrThrow(OpenDirectory(folder));
  const UniqueFd fd = ValueOrThrow(OpenFileAt(dir.get(), path.substr(slash == std::string::npos ? 0 : slash + 1)));
  const uint64_t nbytes = ValueOrThrow(FileSize(fd.get(), path));
  return {ValueOrThrow(ResidentBytes(fd.get(), nbytes, path)), nbytes};
}

nb::dict DictOf(const Limits& limits) {
  nb::dict out;
  out["affinity_cpus"] = limits.affinity_cpus;
  out["cpu_quota"] = limits.cpu_quota;
  out["usable_cpus"] = limits.usable_cpus;
  out["local_ranks"] = limits.local_ranks;
  out["local_ranks_source"] = limits.local_ranks_source;
  out["cpus_per_rank"] = limits.cpus_per_rank;
  out["memory_headroom_bytes"] = limits.memory_headroom_bytes;
  out["memory_source"] = limits.memory_source;
  out["notes"] = limits.notes;
  return out;
}

double MeasureCopy(const std::string& device, bool to_device, uint64_t nbytes, uint64_t chunk_bytes) {
  const nb::gil_scoped_release release;
  const std::unique_ptr<Gpu> gpu = ValueOrThrow(OpenGpu(device));
  return ValueOrThrow(TimeCopies(*gpu, to_device, nbytes, chunk_bytes));
}

}  // namespace

void BindMachine(nb::module_& m) {
  m.def("residency", &FileResidency, "path"_a, nb::call_guard<nb::gil_scoped_release>(),
        "(bytes of the file in the page cache, bytes of the file).");
  m.def(
      "crc32",
      [](const Buffer& buffer) {
        const nb::gil_scoped_release release;
        return Crc32(0, BytesIn(buffer));
      },
      "buffer"_a, "zlib's crc32 over a contiguous uint8 array; one thread, without the GIL.");
  m.def(
      "sha256t",
      [](const Buffer& buffer) {
        const nb::gil_scoped_release release;
        return ToHex(TreeRoot(LeafDigests(BytesIn(buffer))));
      },
      "buffer"_a, "Root of the tree sha256-tree-65536 over a contiguous uint8 array; one thread, without the GIL.");
  m.attr("CUDA_RUNTIME_VERSION") = CudaRuntimeVersion();
  m.def(
      "cuda_devices",
      [] {
        const CudaDevices devices = CountCudaDevices();
        return std::make_pair(devices.count, devices.why);
      },
      "(how many CUDA devices this process sees, why none). Makes no context.");
  m.def(
      "device_name", [](const std::string& device) { return ValueOrThrow(DescribeCudaDevice(OrdinalOf(device))).name; },
      "device"_a, "The card's name.");
  m.def(
      "device_free_bytes",
      [](const std::string& device) { return ValueOrThrow(DescribeCudaDevice(OrdinalOf(device))).free_bytes; },
      "device"_a);
  m.def(
      "why_no_device_digests",
      [](const std::string& device) {
        const nb::gil_scoped_release release;
        return ValueOrThrow(OpenGpu(device))->CanHashLeaves().message();
      },
      "device"_a, "Empty where the device computes digests: tried, with a context on it.");
  m.def(
      "gds_driver",
      [] {
        const nb::gil_scoped_release release;
        const GdsEvidence evidence = ValueOrThrow(GdsDriver::Get())->expected();
        return std::make_pair(std::string(GdsPathName(evidence.path)), evidence.text);
      },
      "(path to be expected of cuFile, evidence). Opens its driver, which stays open while the process lives.");
  m.def("measure_copy", &MeasureCopy, "device"_a, "to_device"_a, "nbytes"_a, "chunk_bytes"_a,
        "Seconds for copying `nbytes` between pinned memory and the device, on one stream, in chunks.");
  m.def(
      "limits", [] { return DictOf(ReadLimits()); },
      "What affinity mask, control groups and local ranks leave to this process; `notes` has what could not be read.");
  m.def(
      "throttled_seconds", [] { return ThrottledSeconds(); },
      "Processor seconds that quotas have held back in this process's control groups; None where nothing counts them.");
}

}  // namespace coldsnap
