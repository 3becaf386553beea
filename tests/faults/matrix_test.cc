// Every point at which a flow calls the system or CUDA, every fault that is possible there, at the first, second,
// middle and last of its calls: the flow succeeds with the right bytes, or says what went wrong and leaves nothing.
//
// A run without faults counts each flow's calls, so a point that the core calls anew is walked without a change here,
// and one without faults in cases.cc stops the test. Whatever the fault, the same flow has to succeed afterwards.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/base/check.h"
#include "cc/base/units.h"
#include "cc/device/copy_probe.h"
#include "cc/device/cuda_gpu.h"
#include "cc/device/host_gpu.h"
#include "cc/testing/fake_cuda.h"
#include "cc/testing/fault.h"
#include "tests/faults/cases.h"
#include "tests/faults/flows.h"
#include "tests/faults/leaks.h"
#include "tests/faults/watchdog.h"

namespace coldsnap {
namespace {

constexpr int kMostFailures = 25;  // a broken core fails everywhere; the first ones say why

// The calls that are made to fail, of `calls`. Sanitizers make each case up to twenty times as long: there the ends do.
// How often a mark is asked depends on the device's pace; how often the timed one is used, and in how many batches the
// device hashes, on how the threads share the work: there only the first calls are sure to come.
std::set<uint64_t> Positions(FaultPoint point, uint64_t calls) {
  if (point == FaultPoint::kCudaEventQuery) return {1, 2};
  if (point == FaultPoint::kCudaEventElapsedTime) return {1};
  if (point == FaultPoint::kHashLeaves) return {1};
  if (point == FaultPoint::kCudaEventRecord) return {1, 2, calls / 2};
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return {1, calls};
#else
  return {1, std::min<uint64_t>(2, calls), (calls + 1) / 2, calls};
#endif
}

// The device under test: CudaGpu over the fake, or over the real runtime where COLDSNAP_TEST_DEVICE names a card.
class CudaUnderTest {
 public:
  CudaUnderTest() {
    const char* const named = std::getenv("COLDSNAP_TEST_DEVICE");
    if (named != nullptr && std::string_view(named) != "host") {
      name_ = named;
    } else {
      fake_.emplace();
      name_ = "cuda:1";  // not the thread's current device, so putting that back is seen
    }
    Result<std::unique_ptr<Gpu>> gpu = OpenGpu(name_);
    COLDSNAP_CHECK(gpu.ok());
    gpu_ = *std::move(gpu);
    // A driver makes its context, threads and descriptors at first use; they are no leak of the flow that comes first.
    COLDSNAP_CHECK(TimeCopies(*gpu_, true, kLeafBytes, kLeafBytes).ok());
  }
  Gpu& gpu() { return *gpu_; }
  FakeCuda* fake() { return fake_ ? &*fake_ : nullptr; }
  const std::string& name() const { return name_; }

 private:
  std::optional<FakeCuda> fake_;
  std::string name_;
  std::unique_ptr<Gpu> gpu_;
};

class MatrixTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { watchdog_ = new Watchdog(std::chrono::seconds(60)); }
  static void TearDownTestSuite() {
    delete watchdog_;
    watchdog_ = nullptr;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
    std::printf("fault matrix: %zu points, %zu cases, %.1f seconds\n", points_.size(), cases_, seconds.count());
  }

  // Walks the flow's points; those of CUDA only where the flow is there for them.
  void Walk(Flow& flow, CudaUnderTest* cuda) {
    fake_ = cuda == nullptr ? nullptr : cuda->fake();
    watchdog_->Watch(flow.name());
    if (const std::string why = flow.WhyNot(); !why.empty()) {
      std::printf("fault matrix: not walked: %s: %s\n", flow.name().c_str(), why.c_str());
      return;
    }
    RunOnce(flow, "without a fault");
    const std::array<uint64_t, kFaultPoints> calls = calls_;
    if (failures_ != 0) return;
    for (size_t i = 0; i < kFaultPoints; ++i) {
      const auto point = static_cast<FaultPoint>(i);
      if (calls[i] == 0 || (flow.Base() && flow.Base()->first == point)) continue;
      points_.insert(point);
      for (const FaultCase& each : FaultCasesOf(point, flow)) {
        for (const uint64_t on_call : Positions(point, calls[i])) {
          RunCase(flow, point, each, on_call, calls[i]);
          if (failures_ >= kMostFailures) return;
        }
      }
    }
  }

 private:
  // The flow as it is, with the fault that belongs to it; leaves the calls of each point in calls_.
  void RunOnce(Flow& flow, const std::string& when) {
    flow.Prepare();
    const Resources before = ResourcesNow(fake_);
    const CallCounts counts;
    Status status;
    {
      std::optional<ScopedFault> base;
      if (flow.Base()) base.emplace(flow.Base()->first, flow.Base()->second);
      status = flow.Run();
    }
    for (size_t i = 0; i < kFaultPoints; ++i) calls_[i] = counts.Of(static_cast<FaultPoint>(i));
    if (status.code() != flow.BaseCode()) Fail(flow.name() + " " + when, "", status);
    Judge(flow, flow.name() + " " + when, before, status, counts);
  }

  void RunCase(Flow& flow, FaultPoint point, const FaultCase& each, uint64_t on_call, uint64_t calls) {
    const std::string name =
        StrCat(flow.name(), ": ", FaultPointName(point), " ", each.text, " at call ", on_call, " of ", calls);
    watchdog_->Watch(name);
    ++cases_;
    flow.Prepare();
    const Resources before = ResourcesNow(fake_);
    Fault fault = each.fault;
    fault.on_call = on_call;
    const CallCounts counts;
    Status status;
    {
      std::optional<ScopedFault> base;
      if (flow.Base()) base.emplace(flow.Base()->first, flow.Base()->second);
      const ScopedFault injected(point, fault);
      status = flow.Run();
      if (injected.fired() == 0) Fail(name, "the fault did not fire", status);
    }
    // From the middle on a fault that hits every later call may meet only those that nobody minds.
    const bool any = fault.times == 0 && on_call != 1;
    if (each.ending == Ending::kSuccess && !status.ok()) Fail(name, "it failed", status);
    if (each.ending == Ending::kFailure && status.ok() && !any) Fail(name, "it succeeded", status);
    if (!status.ok()) {
      if (const std::string wrong = WrongFailure(status, point, fault, flow); !wrong.empty()) Fail(name, wrong, status);
    }
    const bool device_kept = point != FaultPoint::kCudaSetDevice;  // nobody can put back what can't be set
    if (fake_ != nullptr && device_kept && fake_->CurrentDevice() != 0)
      Fail(name, "the thread has another device", status);
    if (fake_ != nullptr) fake_->SetCurrentDevice(0);
    Judge(flow, name, before, status, counts);
    const int failures = failures_;
    RunOnce(flow, StrCat("after ", name));
    if (failures_ != failures) Fail(name, "the flow is not the same afterwards", status);
  }

  void Judge(Flow& flow, const std::string& name, const Resources& before, const Status& status,
             const CallCounts& counts) {
    if (fake_ != nullptr) {
      for (const std::string& violation : fake_->TakeViolations()) Fail(name, violation, status);
      if (fake_->LastError() != 0) Fail(name, "it left a CUDA error behind", status);
    }
    if (const std::string leaked = Leaked(before, fake_); !leaked.empty()) Fail(name, "it leaks: " + leaked, status);
    if (const std::string wrong = flow.Wrong(status, counts); !wrong.empty()) Fail(name, wrong, status);
  }

  void Fail(const std::string& name, const std::string& what, const Status& status) {
    ++failures_;
    ADD_FAILURE() << name << "\n  " << what << "\n  it ended with " << CodeName(status.code()) << " in stage \""
                  << status.stage() << "\": " << status.message();
  }

  static Watchdog* watchdog_;
  static std::chrono::steady_clock::time_point start_;
  static std::set<FaultPoint> points_;
  static size_t cases_;
  FakeCuda* fake_ = nullptr;
  int failures_ = 0;
  std::array<uint64_t, kFaultPoints> calls_{};
};
Watchdog* MatrixTest::watchdog_ = nullptr;
std::chrono::steady_clock::time_point MatrixTest::start_ = std::chrono::steady_clock::now();
std::set<FaultPoint> MatrixTest::points_;
size_t MatrixTest::cases_ = 0;

constexpr Fault kNoCachestat{.error = ENOSYS, .times = 0};
constexpr Fault kEveryTime{.times = 0};

TEST_F(MatrixTest, OpeningAnArtifact) { Walk(*MakeOpenFlow(), nullptr); }

std::vector<WriteSetting> WriteSettings() {
  const std::pair nothing_reserved(FaultPoint::kFallocate, Fault{.error = EOPNOTSUPP, .times = 0});
  return {
      {.name = "write from host buffered", .check_source = true},
      {.name = "write from host direct", .backend = WriteBackend::kDirect},
      {.name = "write from host auto preverified", .backend = WriteBackend::kAuto, .preverified = true},
      {.name = "write from host where nothing can be reserved", .base = nothing_reserved},
      {.name = "write from host with a journal", .resume = true},
      {.name = "write from host where another one came meanwhile", .meanwhile = true},
  };
}

TEST_F(MatrixTest, WritingFromHostMemory) {
  const std::unique_ptr<Gpu> gpu = OpenHostGpu(CopyTime::kLatest);
#ifdef __SANITIZE_THREAD__
  // A child of a process with threads may have none of its own there, and the rest would take minutes.
  std::printf("fault matrix: not walked under ThreadSanitizer: all but the first write, and what is taken up\n");
  Walk(*MakeWriteFlow(*gpu, WriteSettings().front()), nullptr);
#else
  for (const WriteSetting& setting : WriteSettings()) Walk(*MakeWriteFlow(*gpu, setting), nullptr);
  Walk(*MakeWriteFlow(*gpu, {.name = "write what is taken up", .taken_up = true}), nullptr);
#endif
}

TEST_F(MatrixTest, WritingFromACudaDevice) {
  CudaUnderTest cuda;
  // What happens to the files is the same for every device.
  Walk(*MakeWriteFlow(cuda.gpu(), {.name = "write from cuda buffered", .place = Place::kHost, .check_source = true}),
       &cuda);
  Walk(*MakeWriteFlow(cuda.gpu(), {.name = "write from cuda, digests in both places", .place = Place::kBoth}), &cuda);
  Walk(*MakeWriteFlow(cuda.gpu(), {.name = "write from cuda direct", .backend = WriteBackend::kDirect}), &cuda);
}

std::vector<RestoreSetting> Settings(const std::string& device) {
  const std::pair no_cachestat(FaultPoint::kCachestat, kNoCachestat);
  return {
      {.name = device + " buffered crc32"},
      {.name = device + " buffered crc32+sha256", .verify = Verify::kCrc32Sha256},
      {.name = device + " buffered crc32 in both places", .place = Place::kBoth},
      {.name = device + " direct crc32+sha256 on the host",
       .backend = Backend::kDirect,
       .verify = Verify::kCrc32Sha256,
       .place = Place::kHost},
      {.name = device + " direct crc32+sha256 on the device",
       .backend = Backend::kDirect,
       .verify = Verify::kCrc32Sha256,
       .place = Place::kDevice},
      {.name = device + " direct crc32", .backend = Backend::kDirect},
      {.name = device + " direct crc32+sha256", .backend = Backend::kDirect, .verify = Verify::kCrc32Sha256},
      {.name = device + " auto warm crc32+sha256", .backend = Backend::kAuto, .verify = Verify::kCrc32Sha256},
      {.name = device + " auto cold crc32", .backend = Backend::kAuto, .cold = true},
      {.name = device + " buffered without cachestat", .base = no_cachestat},
  };
}

TEST_F(MatrixTest, RestoringIntoHostMemory) {
  const std::unique_ptr<Gpu> gpu = OpenHostGpu(CopyTime::kLatest);
  for (const RestoreSetting& setting : Settings("host")) Walk(*MakeRestoreFlow(*gpu, setting), nullptr);
}

TEST_F(MatrixTest, RestoringIntoACudaDevice) {
  CudaUnderTest cuda;
  for (const RestoreSetting& setting : Settings("cuda")) Walk(*MakeRestoreFlow(cuda.gpu(), setting), &cuda);
  const std::pair without(FaultPoint::kScatterWorks, kEveryTime);
  Walk(*MakeRestoreFlow(cuda.gpu(), {.name = "cuda buffered without the kernel", .base = without}), &cuda);
  const std::pair no_digests(FaultPoint::kHashLeavesWorks, kEveryTime);
  Walk(*MakeRestoreFlow(cuda.gpu(), {.name = "cuda buffered without the kernel for digests", .base = no_digests}),
       &cuda);
}

// What happens after a failure: draining, filling with 0xFF, and what to say when that fails too.
TEST_F(MatrixTest, RestoringWhileACopyFails) {
  CudaUnderTest cuda;
  const Fault illegal_address{.error = 700, .on_call = 3};
  Walk(*MakeRestoreFlow(cuda.gpu(), {.name = "cuda buffered whose third copy fails",
                                     .read_threads = 1,  // else chance says what runs after the third copy
                                     .base = std::pair(FaultPoint::kCudaMemcpyAsync, illegal_address),
                                     .base_code = Code::kCuda}),
       &cuda);
}

TEST_F(MatrixTest, OpeningADevice) {
  CudaUnderTest cuda;
  Walk(*MakeDeviceFlow(cuda.name()), &cuda);
}

}  // namespace
}  // namespace coldsnap
