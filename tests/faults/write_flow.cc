// Writing an artifact beside one that is there, and describing a device: the flows that give no bytes to anybody.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "cc/base/check.h"
#include "cc/base/units.h"
#include "cc/capture/write_artifact.h"
#include "cc/device/copy_probe.h"
#include "cc/device/cuda_gpu.h"
#include "cc/testing/pattern.h"
#include "cc/testing/temp_dir.h"
#include "tests/faults/flows.h"

namespace coldsnap {
namespace {

// Every file below a folder, by its path there, with its bytes.
std::map<std::string, std::string> Tree(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    std::string bytes;
    if (entry.is_regular_file()) {
      std::ifstream file(entry.path(), std::ios::binary);
      bytes.assign(std::istreambuf_iterator<char>(file), {});
    }
    files[entry.path().lexically_relative(folder).string()] = bytes;
  }
  return files;
}

// tmpfs where there is one: each write syncs seven times, and the matrix writes a thousand artifacts.
std::string FastFolder() {
  return std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : std::filesystem::temp_directory_path().string();
}

class WriteFlow final : public Flow {
 public:
  WriteFlow(Gpu& device, const WriteSetting& setting)
      : Flow(FlowKind::kWrite, setting.name),
        device_(device),
        setting_(setting),
        temp_(setting.preverified ? std::filesystem::temp_directory_path().string() : FastFolder()) {
    for (size_t i = 0; i < kSizes.size(); ++i) memory_.push_back(OnDevice(PatternBytes(kSizes[i], i + 1)));
    COLDSNAP_CHECK(CaptureArtifact(Request("there"), device_, {}).ok());
    there_ = Tree(temp_.path() + "/there");
    if (setting.taken_up) LeaveHalf();
  }
  void Prepare() override {
    std::filesystem::remove_all(temp_.path() + "/new");
    if (!setting_.taken_up) return;
    constexpr auto kAll = std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing;
    std::filesystem::copy(half_.path(), temp_.path(), kAll);
  }
  Status Run() override {
    return CaptureArtifact(Request(setting_.meanwhile ? "there" : "new"), device_,
                           {.backend = setting_.backend,
                            .chunk_bytes = kLeafBytes,
                            .queue_depth = 2,
                            .write_threads = 2,
                            .place = setting_.place,
                            .check_source = setting_.check_source,
                            .preverified = setting_.preverified,
                            .resume = setting_.resume || setting_.taken_up,
                            .journal_bytes = kLeafBytes})
        .status();
  }
  std::string WhyNot() override {
    const Status status = Run();
    return status.code() == Code::kRouteUnavailable ? status.message() : "";
  }
  std::string Wrong(const Status& status, const CallCounts& /*calls*/) override {
    size_t entries = 0;
    for (const auto& entry : std::filesystem::directory_iterator(temp_.path())) {
      static_cast<void>(entry);
      ++entries;
    }
    if (Tree(temp_.path() + "/there") != there_) return "the artifact that was there before has changed";
    // Who can't get the lock leaves what the killed capture left.
    const bool untouched = setting_.taken_up && !status.ok() && entries == 3;
    if (entries != (status.ok() ? 2U : 1U) && !untouched) return StrCat(entries, " entries are in the folder");
    // Same tensors, same bytes: the artifact that was written without a fault says what this one has to be.
    if (status.ok() && Tree(temp_.path() + "/new") != there_) return "the new artifact has other bytes";
    return "";
  }
  std::string Doing() const override { return "write artifact "; }
  std::optional<std::pair<FaultPoint, Fault>> Base() const override {
    if (setting_.meanwhile) return std::pair(FaultPoint::kAccess, Fault{.error = ENOENT, .times = 0});
    return setting_.base;
  }
  Code BaseCode() const override { return setting_.meanwhile ? Code::kExists : Code::kOk; }

 private:
  // Keeps what a capture leaves that is killed at its last write of data.
  void LeaveHalf() {
    const pid_t child = ::fork();
    if (child == 0) {
      const ScopedFault kill(FaultPoint::kFdatasync, {.kind = FaultKind::kKill, .on_call = 5});
      ::_exit(Run().ok() ? 0 : 1);
    }
    int status = 0;
    COLDSNAP_CHECK(::waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    for (const char* name : {".new.incoming", ".new.incoming.lock"}) {
      std::filesystem::rename(temp_.path() + "/" + name, half_.path() + "/" + name);
    }
  }

  static constexpr std::array<uint64_t, 2> kSizes = {100, 2 * kLeafBytes + 7};

  std::unique_ptr<DeviceMemory> OnDevice(const std::vector<std::byte>& bytes) {
    Result<std::unique_ptr<DeviceMemory>> memory = device_.Allocate(bytes.size());
    const Result<std::unique_ptr<PinnedMemory>> pinned = device_.Pin(bytes.size());
    const Result<std::unique_ptr<Lane>> lane = device_.OpenLane();
    const Result<std::unique_ptr<Mark>> mark = device_.NewMark(false);
    COLDSNAP_CHECK(memory.ok() && pinned.ok() && lane.ok() && mark.ok());
    std::ranges::copy(bytes, (*pinned)->bytes().begin());
    const DeviceRange to{.address = (*memory)->address(), .nbytes = bytes.size()};
    COLDSNAP_CHECK((*lane)->Begin(**mark).ok() && (*lane)->CopyToDevice(to, (*pinned)->bytes().data()).ok());
    COLDSNAP_CHECK((*lane)->Record(**mark).ok() && (*mark)->Wait().ok());
    return *std::move(memory);
  }

  WriteRequest Request(const std::string& name) const {
    WriteRequest request{.path = temp_.path() + "/" + name, .tensors = {}};
    for (size_t i = 0; i < memory_.size(); ++i) {
      const uint64_t address = memory_[i]->address();
      request.tensors.push_back({.name = StrCat("t", i),
                                 .dtype = "U8",
                                 .shape = {kSizes[i]},
                                 .strides = {1},
                                 .address = address,
                                 .storage_address = address,
                                 .storage_nbytes = kSizes[i],
                                 .object = i,
                                 .role = {},
                                 .attrs = {}});
    }
    return request;
  }

  Gpu& device_;
  WriteSetting setting_;
  TempDir temp_;
  TempDir half_{FastFolder()};
  std::vector<std::unique_ptr<DeviceMemory>> memory_;
  std::map<std::string, std::string> there_;
};

class DeviceFlow final : public Flow {
 public:
  explicit DeviceFlow(std::string device)
      : Flow(FlowKind::kDevice, "open and measure a device"), device_(std::move(device)) {}
  Status Run() override {
    ASSIGN_OR_RETURN(const std::unique_ptr<Gpu> gpu, OpenGpu(device_));
    ASSIGN_OR_RETURN(const CudaDeviceInfo info, DescribeCudaDevice(device_.back() - '0'));
    COLDSNAP_CHECK(!info.name.empty());
    for (const bool to_device : {true, false}) {
      ASSIGN_OR_RETURN(const double seconds, TimeCopies(*gpu, to_device, 2 * kLeafBytes, kLeafBytes));
      COLDSNAP_CHECK(seconds > 0);
    }
    return Status::Ok();
  }
  std::string Wrong(const Status& /*status*/, const CallCounts& /*calls*/) override { return ""; }
  std::string Doing() const override { return ""; }

 private:
  std::string device_;
};

}  // namespace

std::unique_ptr<Flow> MakeWriteFlow(Gpu& device, const WriteSetting& setting) {
  return std::make_unique<WriteFlow>(device, setting);
}
std::unique_ptr<Flow> MakeDeviceFlow(const std::string& device) { return std::make_unique<DeviceFlow>(device); }

}  // namespace coldsnap
