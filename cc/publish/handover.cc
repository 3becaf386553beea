#include "cc/publish/handover.h"

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <mutex>
#include <utility>

namespace coldsnap {
namespace {

using Ranges = std::vector<DeviceRange>;

// The restores that run in this process. Few, so a list; each with many ranges, so they are compared in one pass.
struct Claimed {
  std::string device;
  std::shared_ptr<const Ranges> ranges;
};
struct Claims {
  std::mutex mutex;
  std::vector<Claimed> running;
};
Claims& AllClaims();

// A forked child has none of the threads that restore in its parent, and memory of its own at the same addresses.
// Holding the mutex over the fork keeps the child from getting it locked, or the list half changed.
void BeforeFork() { AllClaims().mutex.lock(); }
void AfterForkInParent() { AllClaims().mutex.unlock(); }
void AfterForkInChild() {
  AllClaims().running.clear();
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

// The first of `mine` that overlaps one of `others`; both are sorted and without overlaps of their own.
const DeviceRange* FirstOverlap(const Ranges& mine, const Ranges& others) {
  auto other = others.begin();
  for (const DeviceRange& range : mine) {
    while (other != others.end() && other->address + other->nbytes <= range.address) ++other;
    if (other != others.end() && other->address < range.address + range.nbytes) return &range;
  }
  return nullptr;
}

Status CheckDisjoint(const Ranges& sorted) {
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
  for (const Claimed& other : claims.running) {
    const DeviceRange* const clash = other.device == device ? FirstOverlap(ranges, *other.ranges) : nullptr;
    if (clash == nullptr) continue;
    return Status(Code::kPolicyRefused, StrCat("restore into ", Text(*clash), " of ", device,
                                               ": another restore of this process is writing there"))
        .WithStage("publish")
        .WithRemedy("wait until the other restore has ended");
  }
  auto shared = std::make_shared<const Ranges>(std::move(ranges));
  claims.running.push_back({.device = device, .ranges = shared});
  return Handover(std::move(shared), std::move(poison));
}

Handover::Handover(std::shared_ptr<const Ranges> ranges, Poison poison)
    : ranges_(std::move(ranges)), poison_(std::move(poison)) {}

Handover::Handover(Handover&& other) noexcept
    : ranges_(std::move(other.ranges_)),
      poison_(std::move(other.poison_)),
      claimed_(std::exchange(other.claimed_, false)),
      begun_(std::exchange(other.begun_, false)) {}

Handover::~Handover() {
  if (begun_) {
    if (const Status status = poison_(*ranges_); !status.ok())
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
    if (Status status = poison_(*ranges_); !status.ok()) {
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
  std::erase_if(claims.running, [this](const Claimed& claimed) { return claimed.ranges == ranges_; });
}

}  // namespace coldsnap
