#include "cc/hydrate/hydrate.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "cc/device/place.h"
#include "cc/hydrate/plan.h"
#include "cc/hydrate/verifier.h"
#include "cc/publish/handover.h"
#include "cc/sys/clock.h"
#include "cc/sys/files.h"

namespace coldsnap {
namespace {

constexpr uint64_t kMaxChunkBytes = kGiB;

Status CheckNumber(std::string_view what, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return Status::Ok();
  return Status(Code::kRequestInvalid, StrCat(what, " is ", value, ", it must be ", least, " to ", most));
}

Status CheckChunk(std::string_view what, uint64_t chunk_bytes, uint64_t most) {
  if (chunk_bytes < kLeafBytes || chunk_bytes > most) {
    return Status(Code::kRequestInvalid, StrCat(what, " is ", chunk_bytes, ", it must be ", kLeafBytes, " to ", most));
  }
  if (IsAligned(chunk_bytes, kLeafBytes)) return Status::Ok();
  return Status(Code::kRequestInvalid, StrCat(what, " is ", chunk_bytes, ", it must be a multiple of ", kLeafBytes));
}

Status CheckOptions(const HydrateOptions& options) {
  RETURN_IF_ERROR(CheckChunk("chunk_bytes", options.chunk_bytes, kMaxChunkBytes));
  if (options.direct_chunk_bytes != 0) {
    RETURN_IF_ERROR(CheckChunk("direct_chunk_bytes", options.direct_chunk_bytes, options.chunk_bytes));
  }
  RETURN_IF_ERROR(CheckNumber("queue_depth", options.queue_depth, 1, 64));
  RETURN_IF_ERROR(CheckNumber("read_threads", options.read_threads, 1, 64));
  RETURN_IF_ERROR(CheckNumber("hash_threads", options.hash_threads, 1, 64));
  RETURN_IF_ERROR(CheckNumber("direct_queue_depth", options.direct_queue_depth, 0, options.queue_depth));
  return CheckNumber("direct_read_threads", options.direct_read_threads, 0, 64);
}

// A file that was cut since it was opened is refused before the first byte is written anywhere.
Status CheckBlobSize(const OpenArtifact& artifact) {
  const Result<uint64_t> nbytes = FileSize(artifact.blob_fd(), kBlobFile);
  if (!nbytes.ok()) return nbytes.status().WithStage("file");
  if (*nbytes == artifact.manifest().blob_bytes) return Status::Ok();
  return Status(Code::kDataLoss,
                StrCat(kBlobFile, " has ", *nbytes, " bytes, the manifest says ", artifact.manifest().blob_bytes))
      .WithStage("file")
      .WithRemedy("copy the artifact again, or capture it again");
}

// Threads beyond slots or windows would only wait. Those that send are cores: they hash.
Hands HandsFor(const HydrateOptions& options, size_t buffered_windows, size_t direct_windows, int slots) {
  const auto useful = [slots](int wanted, size_t windows) {
    return static_cast<int>(std::min<size_t>(static_cast<size_t>(std::min(wanted, slots)), windows));
  };
  const int direct = options.direct_read_threads != 0 ? options.direct_read_threads : options.read_threads;
  return {.read_and_send = useful(options.read_threads, buffered_windows),
          .send = useful(options.hash_threads, direct_windows),
          .read = useful(direct, direct_windows)};
}

// What GPUDirect Storage reads passes no slot, so slots don't bound it, and nobody has to send it.
Hands HandsForGds(const HydrateOptions& options, size_t buffered_windows, size_t gds_windows, int slots) {
  Hands hands = HandsFor(options, buffered_windows, 0, slots);
  const int wanted = options.direct_read_threads != 0 ? options.direct_read_threads : options.read_threads;
  hands.read = static_cast<int>(std::min<size_t>(static_cast<size_t>(wanted), gds_windows));
  return hands;
}

// Without digests there is no place for them.
Result<Place> PlaceFor(const HydrateOptions& options, Gpu& gpu, Reason& reason) {
  return options.verify == Verify::kNone ? Place::kHost : ChoosePlace(options.place, gpu, reason);
}

HydrateReport::Part PartOf(const ReadPlan& plan, const Share& share) {
  HydrateReport::Part part;
  std::optional<uint32_t> last;  // windows and their segments stand in the extents' order
  for (const uint32_t index : share.windows) {
    for (const Segment& segment : SegmentsOf(plan, plan.windows[index])) {
      part.nbytes += segment.nbytes;
      if (segment.extent != last) ++part.extents;
      last = segment.extent;
    }
  }
  return part;
}

}  // namespace

class Restore {
 public:
  Restore(const OpenArtifact& artifact, Hydrator& with, const HydrateOptions& options)
      : artifact_(artifact), with_(with), gpu_(with.gpu_), options_(options) {}

  Result<HydrateReport> Run(std::span<const ExtentTarget> targets) {
    RETURN_IF_ERROR(CheckOptions(options_));
    ASSIGN_OR_RETURN(ranges_, RangesByExtent(artifact_, targets, gpu_));
    RETURN_IF_ERROR(CheckBlobSize(artifact_));
    ASSIGN_OR_RETURN(report_.place, PlaceFor(options_, gpu_, place_reason_));
    Result<Routes> opened =
        Routes::Open(artifact_, {.backend = options_.backend,
                                 .needs_host = options_.verify != Verify::kNone && report_.place != Place::kDevice,
                                 .gds_driver = options_.gds_driver});
    if (!opened.ok()) return std::move(opened).status().WithStage("file");
    Routes routes = *std::move(opened);
    for_the_drive_ = routes.BoundByTheDrive();
    const bool own_chunk = for_the_drive_ && options_.direct_chunk_bytes != 0;
    plan_ = PlanReads(artifact_.manifest().extents, WantedExtents(),
                      own_chunk ? options_.direct_chunk_bytes : options_.chunk_bytes, routes.alignment_bytes());
    dealt_ = routes.Deal(plan_);
    gds_ = routes.gds();
    report_.residency_before = routes.residency();
    Describe();
    report_.stages_s.open = NextStage("ring");

    ASSIGN_OR_RETURN(Handover handover,
                     Handover::Claim(gpu_.Name(), ranges_, [this](auto ranges) { return gpu_.Poison(ranges); }));
    ASSIGN_OR_RETURN(const Hands hands, MakeReady());
    report_.stages_s.ring = NextStage("wait for streams");
    RETURN_IF_ERROR(gpu_.WaitForStreams(options_.streams).WithStage("device"));

    // From the first read on, not from the first copy: damage that the digests find in the first window must not leave
    // destinations that look untouched.
    handover.Begin();
    stage_.Next("move");
    Verifier on_host(artifact_, plan_, report_.place == Place::kDevice ? Verify::kNone : options_.verify);
    Verifier on_device(artifact_, plan_, options_.verify);
    Status status = MoveEverything(hands, on_host, on_device);
    if (status.ok()) stage_.Next("publish");
    if (status.ok()) status = on_host.Finish();
    if (status.ok() && OnDevice()) status = on_device.Finish();
    if (status.ok()) status = ProveGds();
    if (status.ok() && options_.confirm) status = options_.confirm();
    if (!status.ok()) {
      stage_.Next("poison");
      return std::move(handover).Abandon(std::move(status));
    }
    std::move(handover).Publish();
    report_.stages_s.publish = lap_.Lap();
    return Finish();
  }

 private:
  // Seconds of the stage that ends here.
  double NextStage(const char* name) {
    stage_.Next(name);
    return lap_.Lap();
  }

  std::vector<uint32_t> WantedExtents() const {
    std::vector<uint32_t> wanted;
    for (uint32_t i = 0; i < ranges_.size(); ++i) {
      if (ranges_[i].nbytes != 0) wanted.push_back(i);
    }
    return wanted;
  }

  bool OnDevice() const { return IsOnDevice(report_.place); }

  void Describe() {
    const Route past = gds_ != nullptr ? Route::kGds : Route::kDirect;
    report_.parts[static_cast<size_t>(Route::kBuffered)] = PartOf(plan_, dealt_.buffered);
    report_.parts[static_cast<size_t>(past)] = PartOf(plan_, dealt_.direct);
    report_.reasons = std::move(dealt_.reasons);
    if (!place_reason_.code.empty()) report_.reasons.push_back(place_reason_);
    report_.read_bytes = plan_.read_bytes;
    report_.chunk_bytes = options_.chunk_bytes;
    for (const DeviceRange& range : ranges_) {
      report_.payload_bytes += range.nbytes;
      report_.extents += range.nbytes != 0 ? 1 : 0;
    }
  }

  Result<Hands> MakeReady() {
    int slots = 0;
    if (StagedWindows() != 0) {
      ASSIGN_OR_RETURN(slots, ReadyRing());
    }
    const size_t buffered = dealt_.buffered.windows.size();
    const size_t direct = dealt_.direct.windows.size();
    const Hands hands =
        gds_ != nullptr ? HandsForGds(options_, buffered, direct, slots) : HandsFor(options_, buffered, direct, slots);
    lanes_ = Readers::LanesFor(hands, gds_ != nullptr, OnDevice());
    RETURN_IF_ERROR(with_.MakeHands(hands, lanes_, OnDevice()));
    report_.pinned_bytes += OnDevice() ? with_.desks_.pinned_bytes() : 0;
    if (gds_ != nullptr) RETURN_IF_ERROR(RegisterDestinations().WithStage("device"));
    if (const Status placed = with_.crew_.placement(); !placed.ok()) {
      report_.reasons.push_back({"numa_refused", placed.message()});
    }
    return hands;
  }

  // cuFile wants the device to be the thread's current one, and the caller's thread keeps its own.
  Status RegisterDestinations() {
    RETURN_IF_ERROR(with_.crew_.Grow(1, gpu_.NumaNode()));
    Status status;
    const auto work = [&](int) {
      status = gpu_.MakeCurrent();
      if (status.ok()) status = gds_->Register(ranges_, gpu_);
    };
    with_.crew_.Run(1, work, [] {});
    return status;
  }

  size_t StagedWindows() const { return gds_ != nullptr ? dealt_.buffered.windows.size() : plan_.windows.size(); }

  Result<int> ReadyRing() {
    // A blob of fewer reads than slots gets a smaller ring, unless a larger one is there; that is no change of the
    // setting, a failed pin is.
    const auto windows = static_cast<int>(std::min<size_t>(StagedWindows(), 64));
    const bool own_depth = for_the_drive_ && options_.direct_queue_depth != 0;
    const int slots = std::max(1, std::min(own_depth ? options_.direct_queue_depth : options_.queue_depth, windows));
    RETURN_IF_ERROR(
        with_.MakeRing(slots, SlotBytes(options_.chunk_bytes), options_.pinned_max_bytes).WithStage("ring"));
    const Ring& ring = *with_.ring_;
    if (!ring.shrunk_because().ok()) {
      report_.reasons.push_back({"ring_shrunk", StrCat(with_.asked_slots_, " slots became ", ring.slots(), ": ",
                                                       ring.shrunk_because().message())});
    }
    report_.queue_depth = ring.shrunk_because().ok() ? options_.queue_depth : ring.slots();
    report_.pinned_bytes = ring.pinned_bytes();
    const int in_use = std::min(slots, ring.slots());
    with_.ring_->Use(in_use);
    return in_use;
  }

  // Returns with nothing in flight any more, whatever happened.
  Status MoveEverything(const Hands& hands, Verifier& on_host, Verifier& on_device) {
    // Where the rest comes from the drive, reading ahead would read it twice.
    const bool jumps = hands.read_and_send != 0 && hands.read != 0;
    if (jumps) ExpectJumps(artifact_.blob_fd(), true);
    Ring* const ring = StagedWindows() != 0 ? with_.ring_.get() : nullptr;
    Readers readers({.plan = plan_,
                     .buffered = dealt_.buffered,
                     .direct = dealt_.direct,
                     .ranges = ranges_,
                     .gpu = gpu_,
                     .lanes = std::span(with_.lanes_).first(static_cast<size_t>(lanes_)),
                     .on_host = on_host,
                     .gds = gds_,
                     .ring = ring,
                     .on_device = OnDevice() ? &on_device : nullptr,
                     .desks = &with_.desks_,
                     .trace = options_.trace});
    Status status = readers.Run(with_.crew_, hands, [this](uint64_t done) {
      return options_.tick ? options_.tick(done, report_.payload_bytes) : Status::Ok();
    });
    if (jumps) ExpectJumps(artifact_.blob_fd(), false);
    report_.stages_s.read = readers.read_s();
    report_.stages_s.digest = readers.digest_s();
    const Stopwatch drain;
    stage_.Next("drain");
    if (ring != nullptr) {
      if (Status drained = ring->Drain(); !drained.ok() && status.ok()) status = std::move(drained).WithStage("device");
      report_.stages_s.copy = ring->TakeCopySeconds();
    }
    report_.stages_s.drain = drain.Seconds();
    lap_.Lap();
    return status;
  }

  // Before anything is published: bytes that bounced through host memory came by a path that nobody asked for.
  Status ProveGds() {
    if (gds_ == nullptr || dealt_.direct.windows.empty()) return Status::Ok();
    Result<GdsEvidence> evidence = gds_->Prove();
    if (!evidence.ok()) return std::move(evidence).status().WithStage("file");
    report_.gds = *std::move(evidence);
    return Status::Ok();
  }

  Result<HydrateReport> Finish() {
    stage_.End();
    report_.wall_s = wall_.Seconds();
    // The restore has succeeded; that its trace in the page cache can't be read is no reason to fail it.
    if (const Result<double> residency = Residency(artifact_); residency.ok()) report_.residency_after = *residency;
    return std::move(report_);
  }

  const OpenArtifact& artifact_;
  Hydrator& with_;
  Gpu& gpu_;
  const HydrateOptions& options_;
  Stopwatch wall_;
  Stopwatch lap_;
  SpanScope stage_{options_.trace != nullptr ? &options_.trace->TrackOf(Trace::kCaller, "caller") : nullptr, "open"};
  std::vector<DeviceRange> ranges_;  // by extent
  ReadPlan plan_;
  Routes::Dealt dealt_;
  GdsReader* gds_ = nullptr;
  int lanes_ = 0;
  bool for_the_drive_ = false;  // chunk and depth are those for reads from the drive
  Reason place_reason_;         // none where its code is empty
  HydrateReport report_;
};

Hydrator::~Hydrator() {
  if (::getpid() == crew_.pid()) return;
  // The parent goes on using the device, and none of its objects can be given back from here.
  static_cast<void>(ring_.release());
  for (std::unique_ptr<Lane>& lane : lanes_) static_cast<void>(lane.release());
}

Status Hydrator::CheckFree() {
  if (::getpid() != crew_.pid()) {
    return Status(Code::kPolicyRefused, StrCat("process ", ::getpid(), " was forked from process ", crew_.pid(),
                                               ", which made this hydrator, and has none of its threads"))
        .WithStage("ring")
        .WithRemedy("make a hydrator in the child, before CUDA is used in the parent");
  }
  if (!busy_.exchange(true)) return Status::Ok();
  return Status(Code::kPolicyRefused, "this hydrator is in use by another thread")
      .WithStage("ring")
      .WithRemedy("wait for it, or make another one");
}

Status Hydrator::MakeRing(int slots, uint64_t slot_bytes, uint64_t pinned_max_bytes) {
  const uint64_t wanted = static_cast<uint64_t>(slots) * slot_bytes;
  if (pinned_max_bytes != 0 && wanted > pinned_max_bytes) {
    return Status(Code::kRequestInvalid, StrCat("a ring of ", slots, " slots of ", slot_bytes, " bytes needs ", wanted,
                                                " bytes of pinned memory, the limit is ", pinned_max_bytes))
        .WithRemedy("lower queue_depth or chunk_bytes, or raise COLDSNAP_PINNED_MAX_BYTES");
  }
  if (ring_ != nullptr && ring_->slot_bytes() == slot_bytes && slots <= asked_slots_) return Status::Ok();
  ring_.reset();  // first: both might be more than the machine has
  ASSIGN_OR_RETURN(ring_, Ring::Create(gpu_, slots, slot_bytes));
  asked_slots_ = slots;
  return Status::Ok();
}

Status Hydrator::MakeHands(const Hands& hands, int lanes, bool on_device) {
  while (static_cast<int>(lanes_.size()) < lanes) {
    Result<std::unique_ptr<Lane>> lane = gpu_.OpenLane();
    if (!lane.ok()) return std::move(lane).status().WithStage("device");
    lanes_.push_back(*std::move(lane));
  }
  if (on_device) RETURN_IF_ERROR(desks_.Grow(gpu_, static_cast<size_t>(lanes)));
  return crew_.Grow(hands.all(), gpu_.NumaNode());
}

Result<double> Hydrator::Prepare(const HydrateOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  RETURN_IF_ERROR(CheckFree());
  const Stopwatch watch;
  Status status = MakeRing(options.queue_depth, SlotBytes(options.chunk_bytes), options.pinned_max_bytes);
  const bool buffered = options.backend != Backend::kDirect;
  const bool direct = options.backend != Backend::kBuffered;
  if (status.ok()) {
    const Hands hands = HandsFor(options, buffered ? 64 : 0, direct ? 64 : 0, ring_->slots());
    Reason reason;
    const Result<Place> place = PlaceFor(options, gpu_, reason);
    status = place.ok() ? MakeHands(hands, Readers::LanesFor(hands, false, IsOnDevice(*place)), IsOnDevice(*place))
                        : place.status();
  }
  busy_ = false;
  if (!status.ok()) return std::move(status).Prefixed("prepare restores: ").WithStage("ring");
  return watch.Seconds();
}

Result<HydrateReport> Hydrator::Hydrate(const OpenArtifact& artifact, std::span<const ExtentTarget> targets,
                                        const HydrateOptions& options) {
  const auto failed = [&](Status status) {
    return std::move(status).Prefixed(StrCat("hydrate ", targets.size(), " extents of ", artifact.path(), ": "));
  };
  if (Status status = CheckFree(); !status.ok()) return failed(std::move(status));
  Result<HydrateReport> report = Restore(artifact, *this, options).Run(targets);
  busy_ = false;
  if (report.ok()) return report;
  return failed(std::move(report).status());
}

Result<HydrateReport> Hydrate(const OpenArtifact& artifact, std::span<const ExtentTarget> targets, Gpu& gpu,
                              const HydrateOptions& options) {
  return Hydrator(gpu).Hydrate(artifact, targets, options);
}

}  // namespace coldsnap
