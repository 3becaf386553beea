#include "cc/publish/handover.h"

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>
#include <utility>

namespace coldsnap {
namespace {

// Ranges of the restores that run in this process, by device, then start: each with its end. They never overlap.
struct Claims {
  std::mutex mutex;
  std::map<std::string, std::map<uint64_t, uint64_t>> by_device;
};
Claims& AllClaims();

// A forked child has none of the threads that restore in its parent, and memory of its own at the same addresses.
// Holding the mutex over the fork keeps the child from getting it locked, or the maps half changed.
void BeforeFork() { AllClaims().mutex.lock(); }
void AfterForkInParent() { AllClaims().mutex.unlock(); }
void AfterForkInChild() {
  AllClaims().by_device.clear();
  AllClaims().mutex.unlock();
}

Claims& AllClaims() {
  // Never destroyed: a restore may still run while the process exits.
  static auto* const claims = [] {
    ::pthread_atfork(BeforeFork, AfterForkInParent, AfterForkInChild);  // fails for lack of memory only
    return new Claims;
  }();
  return *claims;
}

std::string Text(const DeviceRange& range) { return StrCat(range.nbytes, " bytes at address ", range.address); }

// The claimed range that overlaps `range`, if any; the claims are disjoint, so only two can.
const std::pair<const uint64_t, uint64_t>* Overlapping(const std::map<uint64_t, uint64_t>& claimed,
                                                       const DeviceRange& range) {
  auto next = claimed.upper_bound(range.address);
  if (next != claimed.end() && next->first < range.address + range.nbytes) return &*next;
  if (next == claimed.begin()) return nullptr;
  --next;
  return next->second > range.address ? &*next : nullptr;
}

Status CheckDisjoint(const std::vector<DeviceRange>& sorted) {
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i - 1].address + sorted[i - 1].nbytes > sorted[i].address) {
      return Status(Code::kLayoutMismatch, StrCat("claim ", sorted.size(), " destinations: ", Text(sorted[i - 1]),
                                                  " and ", Text(sorted[i]), " overlap"));
    }
  }
  return Status::Ok();
}

}  // namespace

Result<Handover> Handover::Claim(const std::string& device, std::vector<DeviceRange> ranges, Poison poison) {
  std::erase_if(ranges, [](const DeviceRange& range) { return range.nbytes == 0; });
  std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.address < b.address; });
  RETURN_IF_ERROR(CheckDisjoint(ranges).WithStage("publish"));

  Claims& claims = AllClaims();
  const std::lock_guard lock(claims.mutex);
  std::map<uint64_t, uint64_t>& claimed = claims.by_device[device];
  for (const DeviceRange& range : ranges) {
    if (Overlapping(claimed, range) == nullptr) continue;
    return Status(Code::kPolicyRefused, StrCat("restore into ", Text(range), " of ", device,
                                               ": another restore of this process is writing there"))
        .WithStage("publish")
        .WithRemedy("wait until the other restore has ended");
  }
  for (const DeviceRange& range : ranges) claimed.emplace(range.address, range.address + range.nbytes);
  return Handover(device, std::move(ranges), std::move(poison));
}

Handover::Handover(std::string device, std::vector<DeviceRange> ranges, Poison poison)
    : device_(std::move(device)), ranges_(std::move(ranges)), poison_(std::move(poison)) {}

Handover::Handover(Handover&& other) noexcept
    : device_(std::move(other.device_)),
      ranges_(std::move(other.ranges_)),
      poison_(std::move(other.poison_)),
      claimed_(std::exchange(other.claimed_, false)),
      begun_(std::exchange(other.begun_, false)) {}

Handover::~Handover() {
  if (begun_) {
    if (const Status status = poison_(ranges_); !status.ok())
      std::fprintf(stderr, "coldsnap: %s\n", status.message().c_str());
  }
  EndClaim();
}

void Handover::Publish() && {
  begun_ = false;
  EndClaim();
}

Status Handover::Abandon(Status why) && {
  if (std::exchange(begun_, false)) {
    if (Status status = poison_(ranges_); !status.ok()) {
      why = std::move(status).Prefixed(StrCat(why.message(), "; then ")).WithStage("publish");
    }
  }
  EndClaim();
  return why;
}

void Handover::EndClaim() {
  if (!std::exchange(claimed_, false)) return;
  Claims& claims = AllClaims();
  const std::lock_guard lock(claims.mutex);
  std::map<uint64_t, uint64_t>& claimed = claims.by_device[device_];
  for (const DeviceRange& range : ranges_) claimed.erase(range.address);
}

}  // namespace coldsnap
