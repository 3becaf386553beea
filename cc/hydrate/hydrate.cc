#include "cc/hydrate/hydrate.h"

#include <algorithm>
#include <memory>

#include "cc/hydrate/plan.h"
#include "cc/hydrate/readers.h"
#include "cc/hydrate/route.h"
#include "cc/hydrate/verifier.h"
#include "cc/publish/handover.h"
#include "cc/ring/ring.h"
#include "cc/sys/clock.h"

namespace coldsnap {
namespace {

constexpr uint64_t kMaxChunkBytes = kGiB;

Status CheckNumber(std::string_view what, uint64_t value, uint64_t least, uint64_t most) {
  if (value >= least && value <= most) return Status::Ok();
  return Status(Code::kRequestInvalid, StrCat(what, " is ", value, ", it must be ", least, " to ", most));
}

Status CheckOptions(const HydrateOptions& options) {
  RETURN_IF_ERROR(CheckNumber("chunk_bytes", options.chunk_bytes, kLeafBytes, kMaxChunkBytes));
  if (!IsAligned(options.chunk_bytes, kLeafBytes)) {
    return Status(Code::kRequestInvalid,
                  StrCat("chunk_bytes is ", options.chunk_bytes, ", it must be a multiple of ", kLeafBytes));
  }
  RETURN_IF_ERROR(CheckNumber("queue_depth", static_cast<uint64_t>(options.queue_depth), 1, 64));
  return CheckNumber("read_threads", static_cast<uint64_t>(options.read_threads), 1, 64);
}

// Where each extent goes, by index; extents that nobody asked for stay empty.
Result<std::vector<DeviceRange>> RangesByExtent(const OpenArtifact& artifact, std::span<const ExtentTarget> targets,
                                                Gpu& gpu) {
  const std::vector<Extent>& extents = artifact.manifest().extents;
  std::vector<DeviceRange> ranges(extents.size());
  for (const auto& [extent, range] : targets) {
    if (extent >= extents.size()) {
      return Status(Code::kLayoutMismatch,
                    StrCat("there is no extent ", extent, ", the artifact has ", extents.size()));
    }
    if (range.nbytes != extents[extent].nbytes) {
      return Status(Code::kLayoutMismatch, StrCat(artifact.ExtentText(extent), " has ", extents[extent].nbytes,
                                                  " bytes, its destination ", range.nbytes));
    }
    if (ranges[extent].nbytes != 0) {
      return Status(Code::kLayoutMismatch, StrCat(artifact.ExtentText(extent), " has two destinations"));
    }
    if (Status status = gpu.CheckRange(range); !status.ok()) {
      return std::move(status).Prefixed(StrCat(artifact.ExtentText(extent), ": ")).WithStage("device");
    }
    ranges[extent] = range;
  }
  return ranges;
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

Result<std::unique_ptr<Ring>> MakeRing(Gpu& gpu, const ReadPlan& plan, const HydrateOptions& options,
                                       HydrateReport& report) {
  const int slots =
      std::max(1, std::min(options.queue_depth, static_cast<int>(std::min<size_t>(plan.windows.size(), 64))));
  const uint64_t wanted = static_cast<uint64_t>(slots) * plan.slot_bytes;
  if (options.pinned_max_bytes != 0 && wanted > options.pinned_max_bytes) {
    return Status(Code::kRequestInvalid,
                  StrCat("a ring of ", slots, " slots of ", plan.slot_bytes, " bytes needs ", wanted,
                         " bytes of pinned memory, the limit is ", options.pinned_max_bytes))
        .WithStage("ring")
        .WithRemedy("lower queue_depth or chunk_bytes, or raise COLDSNAP_PINNED_MAX_BYTES");
  }
  Result<std::unique_ptr<Ring>> made = Ring::Create(gpu, slots, plan.slot_bytes);
  if (!made.ok()) return std::move(made).status().WithStage("ring");
  std::unique_ptr<Ring> ring = *std::move(made);
  if (!ring->shrunk_because().ok()) {
    report.reasons.push_back(
        {"ring_shrunk", StrCat(slots, " slots became ", ring->slots(), ": ", ring->shrunk_because().message())});
  }
  // A blob of fewer reads than slots gets a smaller ring; that is no change of the setting, a failed pin is.
  report.queue_depth = ring->shrunk_because().ok() ? options.queue_depth : ring->slots();
  report.pinned_bytes = ring->pinned_bytes();
  return ring;
}

class Restore {
 public:
  Restore(const OpenArtifact& artifact, Gpu& gpu, const HydrateOptions& options)
      : artifact_(artifact), gpu_(gpu), options_(options) {}

  Result<HydrateReport> Run(std::span<const ExtentTarget> targets) {
    RETURN_IF_ERROR(CheckOptions(options_));
    ASSIGN_OR_RETURN(ranges_, RangesByExtent(artifact_, targets, gpu_));
    RETURN_IF_ERROR(CheckBlobSize(artifact_));
    const Result<ChosenRoute> chosen = ChooseRoute(artifact_, options_.backend);
    if (!chosen.ok()) return chosen.status().WithStage("file");
    const ChosenRoute& route = *chosen;
    plan_ =
        PlanReads(artifact_.manifest().extents, WantedExtents(), options_.chunk_bytes, route.reader.alignment_bytes());
    Describe(route);
    report_.stages_s.open = lap_.Lap();

    ASSIGN_OR_RETURN(Handover handover,
                     Handover::Claim(gpu_.Name(), ranges_, [this](auto ranges) { return gpu_.Poison(ranges); }));
    ASSIGN_OR_RETURN(const std::unique_ptr<Ring> ring, MakeRing(gpu_, plan_, options_, report_));
    report_.stages_s.ring = lap_.Lap();
    RETURN_IF_ERROR(gpu_.WaitForStreams(options_.streams).WithStage("device"));

    // From the first read on, not from the first copy: damage that the digests find in the first window must not leave
    // destinations that look untouched.
    handover.Begin();
    Verifier verifier(artifact_, plan_, options_.verify);
    Status status = MoveEverything(route.reader, *ring, verifier);
    if (status.ok()) status = verifier.Finish();
    if (!status.ok()) return std::move(handover).Abandon(std::move(status));
    std::move(handover).Publish();
    report_.stages_s.publish = lap_.Lap();
    return Finish();
  }

 private:
  std::vector<uint32_t> WantedExtents() const {
    std::vector<uint32_t> wanted;
    for (uint32_t i = 0; i < ranges_.size(); ++i) {
      if (ranges_[i].nbytes != 0) wanted.push_back(i);
    }
    return wanted;
  }

  void Describe(const ChosenRoute& route) {
    report_.route = route.reader.route();
    report_.reasons = route.reasons;
    report_.residency_before = route.residency;
    report_.read_bytes = plan_.read_bytes;
    report_.chunk_bytes = options_.chunk_bytes;
    report_.read_threads = options_.read_threads;
    for (const DeviceRange& range : ranges_) {
      report_.payload_bytes += range.nbytes;
      report_.extents += range.nbytes != 0 ? 1 : 0;
    }
  }

  // Returns with nothing in flight any more, whatever happened.
  Status MoveEverything(const BlobReader& reader, Ring& ring, Verifier& verifier) {
    Readers readers(reader, plan_, ranges_, ring, gpu_, verifier);
    Status status = readers.Run(options_.read_threads, [this](uint64_t done) {
      return options_.tick ? options_.tick(done, report_.payload_bytes) : Status::Ok();
    });
    report_.stages_s.read = readers.read_s();
    report_.stages_s.digest = readers.digest_s();
    const Stopwatch drain;
    if (Status drained = ring.Drain(); !drained.ok() && status.ok()) status = std::move(drained).WithStage("device");
    report_.stages_s.drain = drain.Seconds();
    report_.stages_s.copy = ring.copy_busy_s();
    lap_.Lap();
    return status;
  }

  Result<HydrateReport> Finish() {
    report_.wall_s = wall_.Seconds();
    // The restore has succeeded; that its trace in the page cache can't be read is no reason to fail it.
    if (const Result<double> residency = Residency(artifact_); residency.ok()) report_.residency_after = *residency;
    return std::move(report_);
  }

  const OpenArtifact& artifact_;
  Gpu& gpu_;
  const HydrateOptions& options_;
  Stopwatch wall_;
  Stopwatch lap_;
  std::vector<DeviceRange> ranges_;  // by extent
  ReadPlan plan_;
  HydrateReport report_;
};

}  // namespace

Result<HydrateReport> Hydrate(const OpenArtifact& artifact, std::span<const ExtentTarget> targets, Gpu& gpu,
                              const HydrateOptions& options) {
  Result<HydrateReport> report = Restore(artifact, gpu, options).Run(targets);
  if (report.ok()) return report;
  return std::move(report).status().Prefixed(StrCat("hydrate ", targets.size(), " extents of ", artifact.path(), ": "));
}

}  // namespace coldsnap
