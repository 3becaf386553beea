// The flows that the fault matrix walks, each as one thing that can be run again and again.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/capture/capture.h"
#include "cc/device/gpu.h"
#include "cc/hydrate/hydrate.h"
#include "cc/testing/fake_cuda.h"
#include "cc/testing/fault.h"

namespace coldsnap {

enum class FlowKind : uint8_t { kOpen, kRestore, kWrite, kDevice };

class Flow {
 public:
  Flow(FlowKind kind, std::string name) : kind_(kind), name_(std::move(name)) {}
  virtual ~Flow() = default;
  Flow(const Flow&) = delete;
  Flow& operator=(const Flow&) = delete;

  FlowKind kind() const { return kind_; }
  const std::string& name() const { return name_; }

  // Puts everything back to where a run starts; called without faults.
  virtual void Prepare() {}
  virtual Status Run() = 0;
  // Why this machine can't run the flow as it is meant; empty when it can. Called once, without faults.
  virtual std::string WhyNot() { return ""; }
  // What is wrong with what the run left, having ended with `status`; empty when nothing is. `calls`: made by the run.
  virtual std::string Wrong(const Status& status, const CallCounts& calls) = 0;
  // What every message begins with.
  virtual std::string Doing() const = 0;
  // A fault that belongs to the flow and is armed in every run, the one without another fault too.
  virtual std::optional<std::pair<FaultPoint, Fault>> Base() const { return std::nullopt; }
  // How it ends without another fault.
  virtual Code BaseCode() const { return Code::kOk; }

 private:
  FlowKind kind_;
  std::string name_;
};

// What restores need to know.
struct RestoreSetting {
  std::string name;
  Backend backend = Backend::kBuffered;
  Verify verify = Verify::kCrc32;
  Place place = Place::kAuto;
  bool cold = false;  // out of the page cache before each run
  int read_threads = 2;
  std::optional<std::pair<FaultPoint, Fault>> base;
  Code base_code = Code::kOk;
};

// What captures need to know.
struct WriteSetting {
  std::string name;
  WriteBackend backend = WriteBackend::kBuffered;
  Place place = Place::kAuto;
  bool check_source = false;
  bool preverified = false;  // on a drive, since there is no past the page cache in memory
  bool resume = false;       // with a journal
  bool taken_up = false;     // a killed capture left its journal and half of the blob
  bool meanwhile = false;    // an artifact is there already, and the check for it has failed
  std::optional<std::pair<FaultPoint, Fault>> base;
};

// All must outlive the flows. `device` is for memory and copies of the test's own.
std::unique_ptr<Flow> MakeOpenFlow();
std::unique_ptr<Flow> MakeRestoreFlow(Gpu& device, const RestoreSetting& setting);
// Writes a new artifact from the device's memory.
std::unique_ptr<Flow> MakeWriteFlow(Gpu& device, const WriteSetting& setting);
// Describes the device and times copies of its own.
std::unique_ptr<Flow> MakeDeviceFlow(const std::string& device);

}  // namespace coldsnap
