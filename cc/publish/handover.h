// Stage 5 of a restore: who owns the destinations, and the one moment at which they become usable.
//
// A claim keeps two restores in this process from writing to the same bytes; a forked child begins without any. From
// Begin() on the destinations belong to the restore; if it ends in any way but Publish(), they are filled with 0xFF, so
// that nobody computes with half of it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/types.h"

namespace coldsnap {

class Handover {
 public:
  // Fills ranges with 0xFF and returns once that is done (Gpu::Poison).
  using Poison = std::function<Status(std::span<const DeviceRange>)>;

  // Claims the ranges, of one device ("host", "cuda:0"). kLayoutMismatch when two of them overlap; kPolicyRefused when
  // one overlaps a range of another restore that is still running.
  static Result<Handover> Claim(const std::string& device, std::vector<DeviceRange> ranges, Poison poison);

  Handover(Handover&& other) noexcept;
  Handover& operator=(Handover&&) = delete;
  ~Handover();  // poisons if it has begun and nothing was decided, and ends the claim

  void Begin() { begun_ = true; }
  bool begun() const { return begun_; }
  // Everything was verified: the bytes are the caller's.
  void Publish() &&;
  // Poisons if it has begun; `why` is returned, or the failure to poison (kDeviceLost) with `why` in it.
  Status Abandon(Status why) &&;

 private:
  using Ranges = std::vector<DeviceRange>;
  Handover(std::shared_ptr<const Ranges> ranges, Poison poison);
  void EndClaim();

  std::shared_ptr<const Ranges> ranges_;  // sorted; which object it is tells the claim from others
  Poison poison_;
  bool claimed_ = true;
  bool begun_ = false;
};

}  // namespace coldsnap
