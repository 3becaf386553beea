#include "cc/testing/fake_cuda.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <utility>

#include "cc/base/check.h"
#include "cc/base/strcat.h"
#include "cc/digest/crc32.h"
#include "cc/digest/sha256.h"
#include "cc/testing/fake_cuda_calls.h"

namespace coldsnap {
namespace {

constexpr int kDevices = 2;

struct Operation {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;  // none: fill with `value`
  int value = 0;
  size_t nbytes = 0;
  std::function<void()> run;  // in place of a copy or a fill of these bytes
};
struct FakeStream {
  std::deque<Operation> pending;
  uint64_t submitted = 0;
  uint64_t done = 0;
};
// Where in which stream it was recorded last. A stream that is gone is null: what it had is done by the device alone.
struct FakeEvent {
  FakeStream* stream = nullptr;
  uint64_t behind = 0;
  bool recorded = false;
  bool asked = false;  // since it was recorded
};

struct State {
  std::mutex mutex;
  std::set<FakeStream*> streams;
  std::set<FakeEvent*> events;
  std::map<std::byte*, size_t> registered;
  std::map<std::byte*, std::pair<std::unique_ptr<std::byte[]>, int>> allocated;  // and its device
  std::map<std::byte*, size_t> sizes;                                            // of the allocations
  std::vector<std::string> violations;
};
std::atomic<bool> active = false;
State& TheState() {
  static auto* const state = new State;
  return *state;
}
thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

bool Overlap(const std::byte* a, size_t a_bytes, const std::byte* b, size_t b_bytes) {
  return a != nullptr && b != nullptr && a < b + b_bytes && b < a + a_bytes;
}

void RunOne(FakeStream& stream) {
  const Operation operation = stream.pending.front();
  stream.pending.pop_front();
  ++stream.done;
  if (operation.run) {
    operation.run();
  } else if (operation.from == nullptr) {
    std::memset(operation.to, operation.value, operation.nbytes);
  } else {
    std::memcpy(operation.to, operation.from, operation.nbytes);
  }
}
void RunUntil(FakeStream& stream, uint64_t behind) {
  while (stream.done < behind) RunOne(stream);
}

// Reports work of streams other than `mine` that touches the bytes; nobody has waited for it. `gone`: the memory goes,
// so that work is made to move nothing, or it would bring the test down.
void ReportInFlight(State& state, const FakeStream* mine, const std::byte* start, size_t nbytes, bool gone,
                    const char* doing) {
  for (FakeStream* stream : state.streams) {
    if (stream == mine) continue;
    for (Operation& operation : stream->pending) {
      if (Overlap(operation.to, operation.nbytes, start, nbytes) ||
          (operation.from != nullptr && Overlap(operation.from, operation.nbytes, start, nbytes))) {
        state.violations.push_back(StrCat(doing, " while ", operation.nbytes, " bytes of it are in flight"));
        if (gone) operation.nbytes = 0;
      }
    }
  }
}

// Whether the bytes lie in one allocation.
bool IsDeviceMemory(const State& state, const std::byte* address, size_t nbytes) {
  return std::any_of(state.sizes.begin(), state.sizes.end(), [&](const auto& each) {
    return address >= each.first && address + nbytes <= each.first + each.second;
  });
}

template <typename Set, typename Handle>
cudaError_t NoHandle(State& state, const Set& known, Handle handle, const char* what) {
  if (known.contains(handle)) return cudaSuccess;
  state.violations.push_back(StrCat(what, ": there is no such handle"));
  return fake_cuda::Fail(cudaErrorInvalidResourceHandle);
}

cudaError_t Submit(cudaStream_t handle, const Operation& operation, const std::byte* device_side) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  auto* const stream = reinterpret_cast<FakeStream*>(handle);
  if (const cudaError_t error = NoHandle(state, state.streams, stream, "submit work to a stream")) return error;
  if (!IsDeviceMemory(state, device_side, operation.nbytes)) return fake_cuda::Fail(cudaErrorInvalidValue);
  ReportInFlight(state, stream, operation.to, operation.nbytes, false, "write to memory");
  stream->pending.push_back(operation);
  ++stream->submitted;
  return cudaSuccess;
}

}  // namespace

FakeCuda::FakeCuda() { COLDSNAP_CHECK(!active.exchange(true)); }
FakeCuda::~FakeCuda() {
  COLDSNAP_CHECK(LiveObjects() == 0);
  active.store(false);
}
std::vector<std::string> FakeCuda::TakeViolations() {
  const std::lock_guard lock(TheState().mutex);
  return std::exchange(TheState().violations, {});
}
uint64_t FakeCuda::PendingCopies() const {
  const std::lock_guard lock(TheState().mutex);
  uint64_t pending = 0;
  for (const FakeStream* stream : TheState().streams) pending += stream->pending.size();
  return pending;
}
uint64_t FakeCuda::LiveObjects() const {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  return state.streams.size() + state.events.size() + state.registered.size() + state.allocated.size();
}
int FakeCuda::LastError() const { return static_cast<int>(last_error); }
int FakeCuda::CurrentDevice() const { return current_device; }
void FakeCuda::SetCurrentDevice(int device) { current_device = device; }

namespace fake_cuda {

bool Active() { return active.load(); }

cudaError_t Fail(cudaError_t error) {
  last_error = error;
  return error;
}
cudaError_t TakeLastError() { return std::exchange(last_error, cudaSuccess); }

cudaError_t GetDeviceCount(int* count) {
  *count = kDevices;
  return cudaSuccess;
}
cudaError_t GetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= kDevices) return Fail(cudaErrorInvalidDevice);
  *properties = {};
  std::strncpy(properties->name, "fake", sizeof(properties->name) - 1);
  return cudaSuccess;
}
cudaError_t MemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = *total_bytes = size_t{1} << 30;
  return cudaSuccess;
}
cudaError_t GetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t SetDevice(int device) {
  if (device < 0 || device >= kDevices) return Fail(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}
cudaError_t PointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  *attributes = {};
  attributes->device = -1;
  const auto* const start = static_cast<const std::byte*>(address);
  for (const auto& [base, memory] : state.allocated) {
    if (start < base || start >= base + state.sizes[base]) continue;
    attributes->type = cudaMemoryTypeDevice;
    attributes->device = memory.second;
  }
  return cudaSuccess;
}
int GetAddressRange(unsigned long long* base, size_t* nbytes, unsigned long long address) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  for (const auto& [start, size] : state.sizes) {
    const auto begin = reinterpret_cast<unsigned long long>(start);
    if (address < begin || address >= begin + size) continue;
    *base = begin;
    *nbytes = size;
    return cudaSuccess;
  }
  return cudaErrorInvalidValue;
}
cudaError_t Malloc(void** address, size_t nbytes) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  auto memory = std::make_unique<std::byte[]>(nbytes);
  std::byte* const base = memory.get();
  state.allocated[base] = {std::move(memory), current_device};
  state.sizes[base] = nbytes;
  *address = base;
  return cudaSuccess;
}
cudaError_t Free(void* address) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  auto* const base = static_cast<std::byte*>(address);
  if (const cudaError_t error = NoHandle(state, state.allocated, base, "free device memory")) return error;
  ReportInFlight(state, nullptr, base, state.sizes[base], true, "free device memory");
  state.allocated.erase(base);
  state.sizes.erase(base);
  return cudaSuccess;
}
cudaError_t HostRegister(void* address, size_t nbytes) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  if (!state.registered.emplace(static_cast<std::byte*>(address), nbytes).second) {
    return Fail(cudaErrorHostMemoryAlreadyRegistered);
  }
  return cudaSuccess;
}
cudaError_t HostUnregister(void* address) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  auto* const base = static_cast<std::byte*>(address);
  if (const cudaError_t error = NoHandle(state, state.registered, base, "unpin host memory")) return error;
  ReportInFlight(state, nullptr, base, state.registered[base], true, "unpin host memory");
  state.registered.erase(base);
  return cudaSuccess;
}
cudaError_t StreamCreate(cudaStream_t* handle) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  auto* const stream = *state.streams.insert(new FakeStream).first;
  *handle = reinterpret_cast<cudaStream_t>(stream);
  return cudaSuccess;
}
// The runtime lets the device finish; for the caller such work is lost from sight, so it is reported.
cudaError_t StreamDestroy(cudaStream_t handle) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  auto* const stream = reinterpret_cast<FakeStream*>(handle);
  if (const cudaError_t error = NoHandle(state, state.streams, stream, "destroy a stream")) return error;
  if (!stream->pending.empty()) {
    state.violations.push_back(StrCat("destroy a stream with ", stream->pending.size(), " copies in flight"));
  }
  RunUntil(*stream, stream->submitted);
  for (FakeEvent* event : state.events) {
    if (event->stream == stream) event->stream = nullptr;
  }
  state.streams.erase(stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t StreamSynchronize(cudaStream_t handle) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  auto* const stream = reinterpret_cast<FakeStream*>(handle);
  if (const cudaError_t error = NoHandle(state, state.streams, stream, "wait for a stream")) return error;
  RunUntil(*stream, stream->submitted);
  return cudaSuccess;
}
cudaError_t EventCreate(cudaEvent_t* handle) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  auto* const event = *state.events.insert(new FakeEvent).first;
  *handle = reinterpret_cast<cudaEvent_t>(event);
  return cudaSuccess;
}
cudaError_t EventDestroy(cudaEvent_t handle) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  auto* const event = reinterpret_cast<FakeEvent*>(handle);
  if (const cudaError_t error = NoHandle(state, state.events, event, "destroy an event")) return error;
  state.events.erase(event);
  delete event;
  return cudaSuccess;
}
cudaError_t EventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  auto* const event = reinterpret_cast<FakeEvent*>(handle);
  auto* const stream = reinterpret_cast<FakeStream*>(stream_handle);
  if (const cudaError_t error = NoHandle(state, state.events, event, "record an event")) return error;
  if (const cudaError_t error = NoHandle(state, state.streams, stream, "record an event")) return error;
  *event = {.stream = stream, .behind = stream->submitted, .recorded = true};
  return cudaSuccess;
}
// Not ready when it is asked first, and done the second time: whoever asks again is waiting.
cudaError_t EventQuery(cudaEvent_t handle) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  auto* const event = reinterpret_cast<FakeEvent*>(handle);
  if (const cudaError_t error = NoHandle(state, state.events, event, "ask an event")) return error;
  if (event->stream == nullptr || event->stream->done >= event->behind) return cudaSuccess;
  if (!std::exchange(event->asked, true)) return Fail(cudaErrorNotReady);
  RunUntil(*event->stream, event->behind);
  return cudaSuccess;
}
cudaError_t EventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  for (const cudaEvent_t handle : {start, end}) {
    auto* const event = reinterpret_cast<FakeEvent*>(handle);
    if (const cudaError_t error = NoHandle(state, state.events, event, "ask an event's time")) return error;
    if (!event->recorded) return Fail(cudaErrorInvalidResourceHandle);
    if (event->stream != nullptr && event->stream->done < event->behind) return Fail(cudaErrorNotReady);
  }
  *milliseconds = 0.01F;
  return cudaSuccess;
}
cudaError_t MemcpyAsync(void* to, const void* from, size_t nbytes, cudaStream_t stream) {
  const Operation operation{
      .to = static_cast<std::byte*>(to), .from = static_cast<const std::byte*>(from), .nbytes = nbytes};
  bool from_device = false;
  {
    const std::lock_guard lock(TheState().mutex);
    from_device = IsDeviceMemory(TheState(), operation.from, nbytes);
  }
  return Submit(stream, operation, from_device ? operation.from : operation.to);
}
cudaError_t MemcpyBatchAsync(void* const* to, const void* const* from, const size_t* nbytes, size_t count,
                             cudaStream_t stream) {
  for (size_t i = 0; i < count; ++i) {
    if (const cudaError_t error = MemcpyAsync(to[i], from[i], nbytes[i], stream)) return error;
  }
  return cudaSuccess;
}
cudaError_t Scatter(const ScatterTable& table, cudaStream_t stream) {
  for (uint32_t i = 0; i < table.count; ++i) {
    const ScatterPiece& piece = table.pieces[i];
    auto* const to = reinterpret_cast<void*>(piece.to);  // NOLINT(performance-no-int-to-ptr): a device address
    if (const cudaError_t error = MemcpyAsync(to, table.base + piece.from, piece.nbytes, stream)) return error;
  }
  return cudaSuccess;
}
cudaError_t HashLeaves(const HashTable& table, bool sha256, cudaStream_t stream) {
  for (uint32_t i = 0; i < table.count; ++i) {
    const HashRange& range = table.ranges[i];
    const auto* const from = reinterpret_cast<const std::byte*>(range.address);  // NOLINT(performance-no-int-to-ptr)
    LeafDigest* const out = table.out + range.first_leaf;
    const auto hash = [bytes = std::span(from, range.nbytes), sha256, out] {
      for (size_t leaf = 0; leaf * kLeafBytes < bytes.size(); ++leaf) {
        const auto start = bytes.subspan(leaf * kLeafBytes);
        const auto piece = start.first(std::min<size_t>(kLeafBytes, start.size()));
        out[leaf].crc32 = Crc32(0, piece);
        if (sha256) out[leaf].sha256 = Sha256Of(piece);
      }
    };
    // Two operations, since reading and writing differ in size: the first stands for the bytes that are read.
    if (const cudaError_t error = Submit(stream, {.from = from, .nbytes = range.nbytes, .run = hash}, from)) {
      return error;
    }
    const Operation written{
        .to = reinterpret_cast<std::byte*>(out), .nbytes = LeavesOf(range.nbytes) * sizeof(LeafDigest), .run = [] {}};
    const std::lock_guard lock(TheState().mutex);
    auto* const to = reinterpret_cast<FakeStream*>(stream);
    to->pending.push_back(written);
    ++to->submitted;
  }
  return cudaSuccess;
}
cudaError_t MemsetAsync(void* to, int value, size_t nbytes, cudaStream_t stream) {
  auto* const start = static_cast<std::byte*>(to);
  return Submit(stream, {.to = start, .value = value, .nbytes = nbytes}, start);
}

}  // namespace fake_cuda
}  // namespace coldsnap
