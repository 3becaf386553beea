#include "cc/device/cuda_gpu.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <iterator>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "cc/device/hash_leaves.h"
#include "cc/device/host_gpu.h"
#include "cc/device/scatter.h"
#include "cc/sys/clock.h"
#include "cc/sys/memory.h"
#include "cc/sys/numa.h"
#include "cc/sys/owned.h"

namespace coldsnap {
namespace {

// The runtime keeps the last error until somebody asks; it must not surface in the engine's next innocent call.
Status FromCuda(cudaError_t error, std::string_view doing) {
  if (error == cudaSuccess) return Status::Ok();
  static_cast<void>(cudaGetLastError());
  const Code code = error == cudaErrorMemoryAllocation ? Code::kOutOfMemory : Code::kCuda;
  return Status(code, StrCat(doing, ": ", cudaGetErrorName(error), " (", cudaGetErrorString(error), ")"))
      .WithNative(Domain::kCuda, static_cast<int>(error));
}

// The thread's current device is the caller's: it is put back at the end, so one that can't be asked for is not left.
class ScopedDevice {
 public:
  explicit ScopedDevice(int ordinal) : status_(FromCuda(cudaGetDevice(&before_), "ask for the current CUDA device")) {
    known_ = status_.ok();
    if (known_) status_ = FromCuda(cudaSetDevice(ordinal), StrCat("select CUDA device ", ordinal));
  }
  ~ScopedDevice() {
    if (known_) static_cast<void>(FromCuda(cudaSetDevice(before_), "put the current CUDA device back"));
  }
  ScopedDevice(const ScopedDevice&) = delete;
  ScopedDevice& operator=(const ScopedDevice&) = delete;
  const Status& status() const { return status_; }

 private:
  int before_ = -1;
  bool known_ = false;
  Status status_;
};

struct StreamTraits {
  using Handle = cudaStream_t;
  static constexpr cudaStream_t kNone = nullptr;  // the default stream, which is never ours
  static Status Release(cudaStream_t stream) { return FromCuda(cudaStreamDestroy(stream), "destroy a stream"); }
};
struct EventTraits {
  using Handle = cudaEvent_t;
  static constexpr cudaEvent_t kNone = nullptr;
  static Status Release(cudaEvent_t event) { return FromCuda(cudaEventDestroy(event), "destroy an event"); }
};
struct RegistrationTraits {
  using Handle = void*;
  static constexpr void* kNone = nullptr;
  static Status Release(void* address) { return FromCuda(cudaHostUnregister(address), "unpin host memory"); }
};
struct AllocationTraits {
  using Handle = void*;
  static constexpr void* kNone = nullptr;
  static Status Release(void* address) { return FromCuda(cudaFree(address), "free device memory"); }
};
using Stream = Owned<StreamTraits>;
using Event = Owned<EventTraits>;
using Registration = Owned<RegistrationTraits>;
using Allocation = Owned<AllocationTraits>;

void* Pointer(const DeviceRange& range) {
  return reinterpret_cast<void*>(range.address);  // NOLINT(performance-no-int-to-ptr): the caller's address
}

// Waits by asking. An event that wakes its waiter by an interrupt stops the copy engine a little each time: 52 GB/s
// of copies of 4 MiB in place of 53 (H200), and 40 in place of 48 at 1 MiB. After a while asking leaves the core alone.
constexpr std::chrono::milliseconds kAskFor(2);
constexpr std::chrono::microseconds kRest(50);

class CudaMark final : public Mark {
 public:
  // `start` is empty in an untimed mark.
  CudaMark(Event start, Event end) : start_(std::move(start)), end_(std::move(end)) {}

  Status Wait() override {
    if (!recorded_) return Status::Ok();
    for (const Stopwatch watch;;) {
      const cudaError_t error = cudaEventQuery(end_.get());
      if (error != cudaErrorNotReady) return FromCuda(error, "wait for copies to the device");
      static_cast<void>(cudaGetLastError());  // "not ready" is kept as an error, too
      if (watch.Seconds() < std::chrono::duration<double>(kAskFor).count()) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(kRest);
      }
    }
  }
  double BusySeconds() override {
    float milliseconds = 0;
    if (!std::exchange(recorded_, false) || !start_) return 0;
    if (cudaEventElapsedTime(&milliseconds, start_.get(), end_.get()) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      return 0;
    }
    return milliseconds / 1e3;
  }
  Status RecordStart(cudaStream_t stream) {
    if (!start_) return Status::Ok();
    return FromCuda(cudaEventRecord(start_.get(), stream), "record the start of a copy");
  }
  Status RecordEnd(cudaStream_t stream) {
    RETURN_IF_ERROR(FromCuda(cudaEventRecord(end_.get(), stream), "record the end of a copy"));
    recorded_ = true;
    return Status::Ok();
  }

 private:
  Event start_;
  Event end_;
  bool recorded_ = false;
};

// Below it the copy engines' time for each piece counts: 2.7 us one by one and 0.5 us in a batch, while a piece of 16
// KiB travels for 0.3 us (H200).
constexpr uint64_t kSmallBytes = kLeafBytes;
constexpr size_t kManyPieces = 4;

class CudaLane final : public Lane {
 public:
  // Two, so that the last digests don't wait for the ones before.
  using HashStreams = std::array<Stream, 2>;

  CudaLane(Stream stream, HashStreams hash_streams, bool scatters)
      : stream_(std::move(stream)), hash_streams_(std::move(hash_streams)), scatters_(scatters) {}

  Status Begin(Mark& mark) override { return static_cast<CudaMark&>(mark).RecordStart(stream_.get()); }
  Status CopyToDevice(std::span<const CopyIn> copies) override {
    small_.clear();
    for (const CopyIn& copy : copies) {
      if (copy.to.nbytes < kSmallBytes && copies.size() >= kManyPieces) {
        small_.push_back(copy);
      } else {
        RETURN_IF_ERROR(FromCuda(
            cudaMemcpyAsync(Pointer(copy.to), copy.from, copy.to.nbytes, cudaMemcpyHostToDevice, stream_.get()),
            StrCat("copy ", copy.to.nbytes, " bytes to the device")));
      }
    }
    if (small_.empty()) return Status::Ok();
    return scatters_ ? Scatter(small_) : CopyBatch(small_);
  }
  Status CopyToHost(std::byte* to, const DeviceRange& from) override {
    return FromCuda(cudaMemcpyAsync(to, Pointer(from), from.nbytes, cudaMemcpyDeviceToHost, stream_.get()),
                    StrCat("copy ", from.nbytes, " bytes from the device"));
  }
  Status Record(Mark& mark) override { return static_cast<CudaMark&>(mark).RecordEnd(stream_.get()); }
  Status HashLeaves(std::span<const DeviceRange> ranges, Verify verify, LeafDigest* out, Mark& mark) override {
    COLDSNAP_CHECK(ranges.size() <= kMaxHashRanges);
    HashTable table;
    table.out = out;
    for (const DeviceRange& range : ranges) {
      COLDSNAP_CHECK(range.nbytes <= std::numeric_limits<uint32_t>::max());
      table.ranges[table.count++] = {
          .address = range.address, .nbytes = static_cast<uint32_t>(range.nbytes), .first_leaf = table.leaves};
      table.leaves += static_cast<uint32_t>(LeavesOf(range.nbytes));
    }
    const cudaStream_t stream = hash_streams_[hashes_++ % hash_streams_.size()].get();
    RETURN_IF_ERROR(static_cast<CudaMark&>(mark).RecordStart(stream));
    RETURN_IF_ERROR(FromCuda(coldsnap_hash_leaves(&table, verify == Verify::kCrc32Sha256, stream),
                             StrCat("hash ", table.leaves, " leaves on the device")));
    return static_cast<CudaMark&>(mark).RecordEnd(stream);
  }
  Status Drain() override {
    Status first_error = FromCuda(cudaStreamSynchronize(stream_.get()), "wait for the copies of a stream");
    for (const Stream& stream : hash_streams_) {
      Status status = FromCuda(cudaStreamSynchronize(stream.get()), "wait for the digests of a stream");
      if (first_error.ok()) first_error = std::move(status);
    }
    return first_error;
  }

 private:
  Status Scatter(std::span<const CopyIn> copies) {
    ScatterTable table;
    table.base = copies.front().from;
    for (const auto& [to, from] : copies) table.base = std::min(table.base, from);
    for (const auto& [to, from] : copies) {
      table.pieces[table.count++] = {.to = to.address,
                                     .from = static_cast<uint32_t>(from - table.base),
                                     .nbytes = static_cast<uint32_t>(to.nbytes)};
      if (table.count == std::size(table.pieces)) RETURN_IF_ERROR(Submit(table));
    }
    return Submit(table);
  }
  Status Submit(ScatterTable& table) {
    if (table.count == 0) return Status::Ok();
    Status status =
        FromCuda(coldsnap_scatter(&table, stream_.get()), StrCat("copy ", table.count, " pieces to the device"));
    table.count = 0;
    return status;
  }
  // For a device that the kernel was not built for.
  Status CopyBatch(std::span<const CopyIn> copies) {
    to_.clear(), from_.clear(), nbytes_.clear();
    for (const auto& [to, from] : copies) {
      to_.push_back(Pointer(to));
      from_.push_back(from);
      nbytes_.push_back(to.nbytes);
    }
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    size_t first = 0;  // the attributes hold from the first copy on
    return FromCuda(cudaMemcpyBatchAsync(to_.data(), from_.data(), nbytes_.data(), copies.size(), &attributes, &first,
                                         1, stream_.get()),
                    StrCat("copy ", copies.size(), " pieces to the device"));
  }

  // Streams share a few queues of the device, and what waits in one holds up what is behind it in the same queue. So
  // digests don't wait there for their copies: whoever submits them has waited.
  Stream stream_;
  HashStreams hash_streams_;
  size_t hashes_ = 0;
  bool scatters_;
  std::vector<CopyIn> small_;  // this and what follows: of the last copies, kept for their memory
  std::vector<void*> to_;
  std::vector<const void*> from_;
  std::vector<size_t> nbytes_;
};

class CudaPinned final : public PinnedMemory {
 public:
  CudaPinned(Mapping mapping, Registration registration)
      : mapping_(std::move(mapping)), registration_(std::move(registration)) {}
  std::span<std::byte> bytes() override { return BytesOf(mapping_); }

 private:
  Mapping mapping_;
  Registration registration_;  // after the mapping, so that it goes first
};

class CudaMemory final : public DeviceMemory {
 public:
  explicit CudaMemory(Allocation allocation) : allocation_(std::move(allocation)) {}
  uint64_t address() const override { return reinterpret_cast<uint64_t>(allocation_.get()); }

 private:
  Allocation allocation_;
};

class CudaGpu final : public Gpu {
 public:
  CudaGpu(int ordinal, std::optional<int> node) : ordinal_(ordinal), node_(node) {}

  std::string Name() const override { return StrCat("cuda:", ordinal_); }

  // Touched memory that is registered in one go: allocation by the driver pins at about 2 GB/s. Never write-combined,
  // since the digests read the slots.
  Result<std::unique_ptr<PinnedMemory>> Pin(uint64_t nbytes) override {
    const ScopedDevice device(ordinal_);
    RETURN_IF_ERROR(device.status());
    ASSIGN_OR_RETURN(Mapping mapping, MapTouched(nbytes));
    // Pinned pages can't move any more. A system that refuses costs speed on machines of several nodes, no more.
    if (node_) static_cast<void>(PreferNode(BytesOf(mapping), *node_));
    void* const address = mapping.get().address;
    RETURN_IF_ERROR(FromCuda(cudaHostRegister(address, mapping.get().nbytes, cudaHostRegisterPortable),
                             StrCat("pin ", mapping.get().nbytes, " bytes of host memory"))
                        .WithRemedy("lower COLDSNAP_PINNED_MAX_BYTES, or give the container more memory"));
    Registration registration(address);
    return std::unique_ptr<PinnedMemory>(std::make_unique<CudaPinned>(std::move(mapping), std::move(registration)));
  }

  Result<std::unique_ptr<DeviceMemory>> Allocate(uint64_t nbytes) override {
    const ScopedDevice device(ordinal_);
    RETURN_IF_ERROR(device.status());
    void* address = nullptr;
    RETURN_IF_ERROR(FromCuda(cudaMalloc(&address, nbytes), StrCat("allocate ", nbytes, " bytes on ", Name())));
    return std::unique_ptr<DeviceMemory>(std::make_unique<CudaMemory>(Allocation(address)));
  }

  Result<std::unique_ptr<Lane>> OpenLane() override {
    ASSIGN_OR_RETURN(Stream stream, NewStream());
    const ScopedDevice device(ordinal_);
    RETURN_IF_ERROR(device.status());
    CudaLane::HashStreams hash_streams;
    for (Stream& each : hash_streams) {
      ASSIGN_OR_RETURN(each, NewStream());
    }
    return std::unique_ptr<Lane>(
        std::make_unique<CudaLane>(std::move(stream), std::move(hash_streams), coldsnap_scatter_works()));
  }

  Result<std::unique_ptr<Mark>> NewMark(bool timed) override {
    const ScopedDevice device(ordinal_);
    RETURN_IF_ERROR(device.status());
    Event start;
    if (timed) {
      ASSIGN_OR_RETURN(start, NewEvent(cudaEventDefault));
    }
    ASSIGN_OR_RETURN(Event end, NewEvent(timed ? cudaEventDefault : cudaEventDisableTiming));
    return std::unique_ptr<Mark>(std::make_unique<CudaMark>(std::move(start), std::move(end)));
  }

  Result<DeviceRange> AllocationOf(uint64_t address) override {
    const ScopedDevice device(ordinal_);
    RETURN_IF_ERROR(device.status());
    cudaPointerAttributes attributes{};
    const std::string doing = StrCat("find the allocation at address ", address, " on ", Name());
    RETURN_IF_ERROR(FromCuda(cudaPointerGetAttributes(&attributes, Pointer({.address = address})), doing));
    const bool ours = attributes.type == cudaMemoryTypeDevice && attributes.device == ordinal_;
    if (!ours && attributes.type != cudaMemoryTypeManaged) {
      return Status(Code::kLayoutMismatch,
                    StrCat(doing, ": the driver says memory type ", static_cast<int>(attributes.type), " of device ",
                           attributes.device, " (2 is device memory)"));
    }
    ASSIGN_OR_RETURN(const AddressRangeFunction range_of, FindAddressRangeFunction());
    unsigned long long base = 0;
    size_t nbytes = 0;
    // The driver's numbers are the runtime's for everything that this call can answer.
    RETURN_IF_ERROR(FromCuda(static_cast<cudaError_t>(range_of(&base, &nbytes, address)), doing));
    return DeviceRange{.address = base, .nbytes = nbytes};
  }

  std::optional<int> NumaNode() const override { return node_; }
  Status CanHashLeaves() override {
    const ScopedDevice device(ordinal_);
    RETURN_IF_ERROR(device.status());
    if (coldsnap_hash_leaves_works()) return Status::Ok();
    return Status(Code::kRouteUnavailable,
                  StrCat("compute digests on ", Name(), ": this build has no kernel that runs on it"))
        .WithRemedy("set COLDSNAP_VERIFY_PLACE=host");
  }
  bool IsHost() const override { return false; }
  Status MakeCurrent() override { return FromCuda(cudaSetDevice(ordinal_), StrCat("select ", Name())); }
  Status WaitForStreams(std::span<const uintptr_t> streams) override {
    const ScopedDevice device(ordinal_);
    RETURN_IF_ERROR(device.status());
    for (const uintptr_t handle : streams) {
      auto* const stream = reinterpret_cast<cudaStream_t>(handle);  // NOLINT(performance-no-int-to-ptr)
      RETURN_IF_ERROR(FromCuda(cudaStreamSynchronize(stream), StrCat("wait for the caller's stream ", handle)));
    }
    return Status::Ok();
  }

  Status Poison(std::span<const DeviceRange> ranges) override {
    const Status status = TryPoison(ranges);
    if (status.ok()) return status;
    return Status(Code::kDeviceLost, StrCat("fill ", ranges.size(), " ranges of ", Name(),
                                            " with 0xFF after a failed restore: ", status.message()))
        .WithNative(status.domain(), status.native())
        .WithRemedy("end this process: nobody knows what the destinations hold");
  }

 private:
  // cuMemGetAddressRange, which the runtime has no function for. Through the runtime, so that no driver is linked.
  using AddressRangeFunction = int (*)(unsigned long long* base, size_t* nbytes, unsigned long long address);
  static Result<AddressRangeFunction> FindAddressRangeFunction() {
    constexpr unsigned kSince = 3020;  // the version of CUDA whose signature it has
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    RETURN_IF_ERROR(
        FromCuda(cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &function, kSince, cudaEnableDefault, &found),
                 "look up cuMemGetAddressRange in the driver"));
    if (function == nullptr) return Status(Code::kCuda, "look up cuMemGetAddressRange in the driver: it has none");
    return reinterpret_cast<AddressRangeFunction>(function);
  }
  Result<Stream> NewStream() {
    const ScopedDevice device(ordinal_);
    RETURN_IF_ERROR(device.status());
    cudaStream_t stream = nullptr;
    RETURN_IF_ERROR(FromCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "create a stream"));
    return Stream(stream);
  }
  static Result<Event> NewEvent(unsigned flags) {
    cudaEvent_t event = nullptr;
    RETURN_IF_ERROR(FromCuda(cudaEventCreateWithFlags(&event, flags), "create an event"));
    return Event(event);
  }
  // Fills what it can and waits for that, also when one range fails; the first failure counts.
  Status TryPoison(std::span<const DeviceRange> ranges) {
    ASSIGN_OR_RETURN(const Stream stream, NewStream());
    Status first_error;
    const auto keep = [&first_error](Status status) {
      if (first_error.ok()) first_error = std::move(status);
    };
    for (const DeviceRange& range : ranges) {
      keep(FromCuda(cudaMemsetAsync(Pointer(range), 0xFF, range.nbytes, stream.get()),
                    StrCat("fill ", range.nbytes, " bytes")));
    }
    keep(FromCuda(cudaStreamSynchronize(stream.get()), "wait for the fill"));
    return first_error;
  }

  int ordinal_;
  std::optional<int> node_;
};

std::optional<int> NodeOf(int ordinal) {
  std::array<char, 32> bus_id{};
  const Status known = FromCuda(cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), ordinal),
                                StrCat("ask for the bus of CUDA device ", ordinal));
  if (!known.ok()) return std::nullopt;
  const Result<std::optional<int>> node = NodeOfPciDevice(bus_id.data());
  return node.ok() ? *node : std::nullopt;
}

}  // namespace

std::string CudaRuntimeVersion() { return StrCat(CUDART_VERSION / 1000, ".", CUDART_VERSION % 1000 / 10); }

CudaDevices CountCudaDevices() {
  CudaDevices devices;
  if (const cudaError_t error = cudaGetDeviceCount(&devices.count); error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    devices.count = 0;
    devices.why = error == cudaErrorInsufficientDriver
                      ? "no NVIDIA driver, or one older than 580 (CUDA 13.0 needs 580 or newer)"
                      : StrCat(cudaGetErrorName(error), " (", cudaGetErrorString(error), ")");
  } else if (devices.count == 0) {
    devices.why = "the driver lists no device";
  }
  return devices;
}

Result<CudaDeviceInfo> DescribeCudaDevice(int ordinal) {
  const ScopedDevice device(ordinal);
  RETURN_IF_ERROR(device.status());
  cudaDeviceProp properties{};
  const std::string doing = StrCat("describe CUDA device ", ordinal);
  RETURN_IF_ERROR(FromCuda(cudaGetDeviceProperties(&properties, ordinal), doing));
  CudaDeviceInfo info{.name = properties.name};
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  RETURN_IF_ERROR(FromCuda(cudaMemGetInfo(&free_bytes, &total_bytes), doing));
  info.free_bytes = free_bytes;
  return info;
}

Result<std::unique_ptr<Gpu>> OpenCudaGpu(int ordinal) {
  const CudaDevices devices = CountCudaDevices();
  if (ordinal < 0 || ordinal >= devices.count) {
    return Status(Code::kRouteUnavailable, StrCat("open cuda:", ordinal, ": this process sees ", devices.count,
                                                  " CUDA devices", devices.why.empty() ? "" : ": ", devices.why));
  }
  return std::unique_ptr<Gpu>(std::make_unique<CudaGpu>(ordinal, NodeOf(ordinal)));
}

Result<std::unique_ptr<Gpu>> OpenGpu(const std::string& name) {
  constexpr std::string_view kCuda = "cuda:";
  if (name == "host") return OpenHostGpu();
  int ordinal = -1;
  const char* const end = name.data() + name.size();
  if (name.starts_with(kCuda) && std::from_chars(name.data() + kCuda.size(), end, ordinal).ptr == end && ordinal >= 0) {
    return OpenCudaGpu(ordinal);
  }
  return Status(Code::kRequestInvalid, StrCat("open device \"", name, "\": a device is \"host\" or \"cuda:N\""));
}

}  // namespace coldsnap
