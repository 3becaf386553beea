#include "cc/capture/capture.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <utility>

#include "cc/artifact/canonical_json.h"
#include "cc/artifact/manifest.h"
#include "cc/capture/digester.h"
#include "cc/capture/journal.h"
#include "cc/capture/pass.h"
#include "cc/capture/plan.h"
#include "cc/capture/reread.h"
#include "cc/capture/shard_folder.h"
#include "cc/capture/source_digests.h"
#include "cc/device/allocations.h"
#include "cc/device/place.h"
#include "cc/digest/sha256.h"
#include "cc/file/blob_writer.h"
#include "cc/hydrate/crew.h"
#include "cc/ring/ring.h"
#include "cc/sys/clock.h"
#include "cc/sys/files.h"
#include "cc/sys/new_file.h"

namespace coldsnap {
namespace {

constexpr const char* kBlobName = "weights.safetensors";
constexpr uint64_t kMaxChunkBytes = kGiB;
constexpr std::string_view kSourceNow = "the source now";
constexpr std::string_view kSourceRemedy = "capture again once nothing writes to the tensors any more";

Status CheckNumber(std::string_view what, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return Status::Ok();
  return Status(Code::kRequestInvalid, StrCat(what, " is ", value, ", it must be ", least, " to ", most));
}

Status CheckOptions(const CaptureOptions& options) {
  if (options.chunk_bytes < kLeafBytes || options.chunk_bytes > kMaxChunkBytes ||
      !IsAligned(options.chunk_bytes, kLeafBytes)) {
    return Status(Code::kRequestInvalid, StrCat("chunk_bytes is ", options.chunk_bytes, ", it must be a multiple of ",
                                                kLeafBytes, " up to ", kMaxChunkBytes));
  }
  RETURN_IF_ERROR(CheckNumber("queue_depth", options.queue_depth, 1, 64));
  return CheckNumber("write_threads", options.write_threads, 1, 64);
}

class ShardCapture {
 public:
  ShardCapture(Layout layout, Gpu& gpu, const CaptureOptions& options)
      : gpu_(gpu), options_(options), layout_(std::move(layout)), plan_(PlanWrites(layout_, options.chunk_bytes)) {}

  Result<CapturedShard> Run(const std::string& parent, const std::string& shard, std::string_view identity_json,
                            std::string_view scalars_json) {
    Describe();
    RETURN_IF_ERROR(CheckSources().WithStage("device"));
    ASSIGN_OR_RETURN(report_.place, PlaceOfDigests());
    ASSIGN_OR_RETURN(ShardFolder folder, ShardFolder::Create(parent, shard, options_.resume));
    const Sha256 key = KeyOf(identity_json, scalars_json);
    Result<BlobWriter> opened = OpenBlob(folder, key);
    if (!opened.ok()) return std::move(opened).status().WithStage("file");
    BlobWriter blob = *std::move(opened);
    report_.stages_s.open = lap_.Lap();
    RETURN_IF_ERROR(MakeReady());
    report_.stages_s.ring = lap_.Lap();
    RETURN_IF_ERROR(gpu_.WaitForStreams(options_.streams).WithStage("device"));

    if (OnDevice()) RETURN_IF_ERROR(DigestSources());
    report_.stages_s.digest = lap_.Lap();
    RETURN_IF_ERROR(Move(blob));
    lap_.Lap();
    if (OnDevice()) {
      RETURN_IF_ERROR(CheckSourceOnDevice());
    } else if (options_.check_source) {
      RETURN_IF_ERROR(CheckSource());
    }
    report_.stages_s.source = lap_.Lap();
    RETURN_IF_ERROR(blob.Sync().WithStage("file"));
    NoteResidency(blob.fd());
    RETURN_IF_ERROR(journal_->Remove().WithStage("file"));
    RETURN_IF_ERROR(std::move(blob).Close().WithStage("file"));
    report_.stages_s.sync = lap_.Lap();
    if (options_.preverified) RETURN_IF_ERROR(ReadAgain(folder.fd()));
    report_.stages_s.reread = lap_.Lap();

    CapturedShard captured;
    ASSIGN_OR_RETURN(captured.record, WriteDescription(folder.fd(), shard, identity_json, scalars_json));
    std::move(folder).Keep();
    report_.stages_s.publish = lap_.Lap();
    report_.wall_s = wall_.Seconds();
    captured.report = std::move(report_);
    return captured;
  }

 private:
  // Of one thread.
  struct Times {
    double copy = 0;
    double digest = 0;
    double write = 0;
  };

  void Describe() {
    report_.payload_bytes = plan_.payload_bytes;
    report_.blob_bytes = layout_.blob_bytes;
    report_.extents = layout_.sources.size();
    report_.uncovered_bytes = layout_.uncovered_bytes;
    report_.chunk_bytes = options_.chunk_bytes;
  }

  Result<Place> PlaceOfDigests() {
    Reason reason;
    Result<Place> place = ChoosePlace(options_.place, gpu_, reason);
    if (!reason.code.empty()) report_.reasons.push_back(std::move(reason));
    return place;
  }
  bool OnDevice() const { return IsOnDevice(report_.place); }

  Status CheckSources() {
    Allocations allocations(gpu_);
    for (uint32_t i = 0; i < layout_.sources.size(); ++i) {
      if (Status status = allocations.Check(layout_.sources[i]); !status.ok()) {
        return std::move(status).Prefixed(digester_.ExtentText(i) + ": ");
      }
    }
    return Status::Ok();
  }

  // Of what is captured, and how it is cut into windows.
  Sha256 KeyOf(std::string_view identity_json, std::string_view scalars_json) const {
    std::string text = StrCat(layout_.header.size(), ":", layout_.header, options_.chunk_bytes, ",",
                              identity_json.size(), ":", identity_json, scalars_json.size(), ":", scalars_json);
    for (size_t i = 0; i < layout_.sources.size(); ++i) {
      text += StrCat(",", layout_.file_offsets[i], "+", layout_.sources[i].nbytes);
    }
    return Sha256Of(std::as_bytes(std::span(text)));
  }

  Result<BlobWriter> OpenBlob(ShardFolder& folder, const Sha256& key) {
    ASSIGN_OR_RETURN(std::optional<BlobWriter> blob, TakeUp(folder, key));
    if (!blob) {
      if (folder.taken_up()) RETURN_IF_ERROR(folder.Empty());
      ASSIGN_OR_RETURN(blob, BlobWriter::Create(folder.fd(), kBlobName, layout_.blob_bytes));
      MakeJournal(folder, *blob, key);
    }
    RETURN_IF_ERROR(ChooseRoute(*blob, folder.fd()));
    report_.route = blob->route();
    return *std::move(blob);
  }

  // What a killed capture left, if it can be gone on with.
  Result<std::optional<BlobWriter>> TakeUp(const ShardFolder& folder, const Sha256& key) {
    if (!folder.taken_up() || folder.HasMoreThan(kBlobName, Journal::kName)) return std::optional<BlobWriter>();
    Result<BlobWriter> blob = BlobWriter::Reopen(folder.fd(), kBlobName, layout_.blob_bytes);
    if (!blob.ok()) return std::optional<BlobWriter>();
    MakeJournal(folder, *blob, key);
    ASSIGN_OR_RETURN(const bool known, journal_->TakeUp());
    if (!known) return std::optional<BlobWriter>();
    return std::optional<BlobWriter>(*std::move(blob));
  }

  void MakeJournal(const ShardFolder& folder, const BlobWriter& blob, const Sha256& key) {
    journal_.emplace(folder.fd(), blob.fd(), key, options_.resume ? options_.journal_bytes : 0);
  }

  Status ChooseRoute(BlobWriter& blob, int folder_fd) {
    if (options_.backend == WriteBackend::kBuffered) return Status::Ok();
    const bool automatic = options_.backend == WriteBackend::kAuto;
    const bool in_memory = IsMemoryBacked(blob.fd());
    if (in_memory) report_.reasons.push_back({"direct_served_from_memory", "the file system lives in memory"});
    if (automatic && in_memory) return Status::Ok();
    Status direct = blob.UseDirect(folder_fd);
    if (!automatic) return direct;
    if (direct.code() == Code::kRouteUnavailable) {
      report_.reasons.push_back({"direct_refused_probe", direct.message()});
      return Status::Ok();
    }
    RETURN_IF_ERROR(direct);
    report_.reasons.push_back({"aligned", "each write is a multiple of 65536 bytes, and a trial write succeeded"});
    return Status::Ok();
  }

  Status MakeReady() {
    const auto windows = static_cast<int>(std::min<size_t>(plan_.windows.size(), 64));
    const int slots = std::min({options_.queue_depth, options_.write_threads, windows});  // a thread has one at a time
    const uint64_t wanted = static_cast<uint64_t>(slots) * plan_.slot_bytes;
    if (options_.pinned_max_bytes != 0 && wanted > options_.pinned_max_bytes) {
      return Status(Code::kRequestInvalid,
                    StrCat("make a ring of ", slots, " slots of ", plan_.slot_bytes, " bytes: that is ", wanted,
                           " bytes of pinned memory, the limit is ", options_.pinned_max_bytes))
          .WithStage("ring")
          .WithRemedy("lower queue_depth or chunk_bytes, or raise COLDSNAP_PINNED_MAX_BYTES");
    }
    ASSIGN_OR_RETURN(ring_, Ring::Create(gpu_, slots, plan_.slot_bytes));
    if (!ring_->shrunk_because().ok()) {
      report_.reasons.push_back(
          {"ring_shrunk", StrCat(slots, " slots became ", ring_->slots(), ": ", ring_->shrunk_because().message())});
    }
    report_.queue_depth = ring_->shrunk_because().ok() ? options_.queue_depth : ring_->slots();
    report_.pinned_bytes = ring_->pinned_bytes();
    threads_ = ring_->slots();
    report_.write_threads = threads_;
    for (int i = 0; i < threads_; ++i) {
      Result<std::unique_ptr<Lane>> lane = gpu_.OpenLane();
      if (!lane.ok()) return std::move(lane).status().WithStage("device");
      lanes_.push_back(*std::move(lane));
    }
    return crew_.Grow(threads_, gpu_.NumaNode());
  }

  Status Move(const BlobWriter& blob) {
    std::vector<Times> times(static_cast<size_t>(threads_));
    std::vector<BlobWriter::Hand> hands(static_cast<size_t>(threads_), BlobWriter::Hand(blob));
    const auto work = [&](int member, const BlobWindow& window, EmptySlot& slot) -> Status {
      const auto bytes = slot.bytes().first(window.nbytes);
      auto& [copy_s, digest_s, write_s] = times[static_cast<size_t>(member)];
      Stopwatch watch;
      if (!IsOnTheDrive(window)) RETURN_IF_ERROR(Fill(member, window, slot));
      copy_s += watch.Lap();
      RETURN_IF_ERROR(DigestStaged(window, bytes));
      const Sha256 digest = digester_.WindowDigest(window);
      digest_s += watch.Lap();
      RETURN_IF_ERROR(Write(hands[static_cast<size_t>(member)], window, bytes, digest).WithStage("file"));
      write_s += watch.Lap();
      return Status::Ok();
    };
    RETURN_IF_ERROR(RunPass(work));
    if (resumed_ != 0) {
      report_.reasons.push_back({"resumed", StrCat(resumed_.load(), " of ", plan_.windows.size(),
                                                   " writes were left out: a capture that was killed had done them")});
    }
    for (const Times& each : times) {
      report_.stages_s.copy += each.copy / threads_;
      report_.stages_s.digest += each.digest / threads_;
      report_.stages_s.write += each.write / threads_;
    }
    return Status::Ok();
  }

  Status Write(BlobWriter::Hand& hand, const BlobWindow& window, std::span<const std::byte> bytes,
               const Sha256& digest) {
    const uint32_t index = IndexOf(window);
    if (window.segments == 0) return hand.Write(bytes, window.file_offset);
    if (journal_->Has(index, digest)) {
      ++resumed_;
    } else {
      if (journal_->Knows(index)) RETURN_IF_ERROR(journal_->Void());
      RETURN_IF_ERROR(hand.Write(bytes, window.file_offset));
    }
    return journal_->Wrote(index, digest, window.nbytes);
  }

  // What a killed capture has written of the sources as they are now; without digests nobody knows what they are.
  bool IsOnTheDrive(const BlobWindow& window) const {
    if (report_.place != Place::kDevice || window.segments == 0) return false;
    return journal_->Has(IndexOf(window), digester_.WindowDigest(window));
  }
  uint32_t IndexOf(const BlobWindow& window) const { return static_cast<uint32_t>(&window - plan_.windows.data()); }

  Status DigestStaged(const BlobWindow& window, std::span<const std::byte> bytes) {
    if (!IsOnHost(report_.place)) return Status::Ok();
    if (OnDevice()) {
      return CompareSegments(window, bytes, "the staging memory",
                             "capture again; if it happens twice, suspect the memory");
    }
    for (uint32_t i = window.first_segment; i < window.first_segment + window.segments; ++i) {
      digester_.Add(i, bytes.subspan(plan_.segments[i].slot_offset, plan_.segments[i].nbytes));
    }
    return Status::Ok();
  }

  Status DigestSources() {
    return RunOnDevice([this](size_t index, uint64_t offset, std::span<const LeafDigest> leaves) {
      digester_.Put(index, offset, leaves);
      return Status::Ok();
    });
  }

  Status CheckSourceOnDevice() {
    return RunOnDevice([this](size_t index, uint64_t offset, std::span<const LeafDigest> leaves) {
      return digester_.Compare(index, offset, leaves, kSourceNow, kSourceRemedy);
    });
  }

  Status RunOnDevice(const SourceDigests::Sink& sink) {
    SourceDigests digests(layout_, plan_, gpu_, *ring_, lanes_);
    RETURN_IF_ERROR(digests.Run(crew_, sink, [this](uint64_t done) { return Tick(done); }));
    passed_bytes_ += plan_.payload_bytes;
    return Status::Ok();
  }

  Status CheckSource() {
    return RunPass([&](int member, const BlobWindow& window, EmptySlot& slot) -> Status {
      if (window.segments == 0) return Status::Ok();
      RETURN_IF_ERROR(Fill(member, window, slot));
      return CompareSegments(window, slot.bytes(), kSourceNow, kSourceRemedy);
    });
  }

  Status ReadAgain(int folder_fd) {
    ASSIGN_OR_RETURN(const Reread file, Reread::Open(folder_fd, kBlobName, layout_.blob_bytes));
    if (file.reason()) report_.reasons.push_back(*file.reason());
    const Status same = RunPass([&](int /*member*/, const BlobWindow& window, EmptySlot& slot) -> Status {
      const auto bytes = slot.bytes().first(window.nbytes);
      RETURN_IF_ERROR(file.Read(bytes, window.file_offset).WithStage("file"));
      RETURN_IF_ERROR(CompareSegments(window, bytes, "the file", Reread::kRemedy));
      return CheckUnhashed(layout_, plan_, window, bytes);
    });
    NoteResidency(file.fd());
    return same;
  }

  Status CompareSegments(const BlobWindow& window, std::span<const std::byte> bytes, std::string_view what,
                         std::string_view remedy) const {
    for (uint32_t i = window.first_segment; i < window.first_segment + window.segments; ++i) {
      const SourceSegment& segment = plan_.segments[i];
      RETURN_IF_ERROR(digester_.Compare(i, bytes.subspan(segment.slot_offset, segment.nbytes), what, remedy));
    }
    return Status::Ok();
  }

  // The window's bytes as they will stand in the file; returns with no copy in flight.
  Status Fill(int member, const BlobWindow& window, EmptySlot& slot) {
    const auto bytes = slot.bytes().first(window.nbytes);
    if (window.segments == 0) {
      std::memcpy(bytes.data(), layout_.header.data() + window.file_offset, window.nbytes);
      return Status::Ok();
    }
    Lane& lane = *lanes_[static_cast<size_t>(member)];
    Status status = Copy(lane, window, slot);
    // Some copies may be on their way with no mark behind them, so the slot goes back when the lane is empty.
    if (!status.ok()) static_cast<void>(lane.Drain());
    return std::move(status).WithStage("device");
  }

  Status Copy(Lane& lane, const BlobWindow& window, EmptySlot& slot) {
    const auto bytes = slot.bytes().first(window.nbytes);
    RETURN_IF_ERROR(lane.Begin(slot.mark()));
    uint64_t end = 0;
    const auto zero_to = [&](uint64_t offset) { std::memset(bytes.data() + end, 0, offset - end); };
    for (const SourceSegment& segment : plan_.SegmentsOf(window)) {
      const uint64_t address = layout_.sources[segment.extent].address + segment.extent_offset;
      RETURN_IF_ERROR(
          lane.CopyToHost(bytes.data() + segment.slot_offset, {.address = address, .nbytes = segment.nbytes}));
      zero_to(segment.slot_offset);
      end = segment.slot_offset + segment.nbytes;
    }
    zero_to(window.nbytes);
    RETURN_IF_ERROR(lane.Record(slot.mark()));
    return slot.mark().Wait();
  }

  Status RunPass(const Pass::Work& work) {
    Pass pass(plan_, *ring_, crew_);
    RETURN_IF_ERROR(pass.Run(threads_, work, [this](uint64_t done) { return Tick(done); }));
    passed_bytes_ += plan_.payload_bytes;
    return Status::Ok();
  }

  // `done`: of the pass that runs.
  Status Tick(uint64_t done) {
    const uint64_t of_sources = OnDevice() ? 2 : options_.check_source ? 1 : 0;
    const uint64_t passes = 1 + of_sources + (options_.preverified ? 1 : 0);
    return options_.tick ? options_.tick(passed_bytes_ + done, passes * plan_.payload_bytes) : Status::Ok();
  }

  // The capture has succeeded; that its trace in the page cache can't be read is no reason to fail it.
  void NoteResidency(int fd) {
    const Result<uint64_t> resident = ResidentBytes(fd, layout_.blob_bytes, kBlobName);
    if (!resident.ok()) return;
    report_.residency_after = static_cast<double>(*resident) / static_cast<double>(layout_.blob_bytes);
  }

  Result<ShardRecord> WriteDescription(int folder_fd, const std::string& shard, std::string_view identity_json,
                                       std::string_view scalars_json) {
    const auto leaves = std::as_bytes(digester_.leaves());
    RETURN_IF_ERROR(WriteNewFile(folder_fd, "leaves.bin", leaves));
    const std::vector<ExtentDigests> digests = digester_.Extents();
    ASSIGN_OR_RETURN(const Manifest manifest,
                     MakeManifest(layout_, digests, Sha256Of(leaves), identity_json, scalars_json));
    const std::string text = WriteManifest(manifest);
    RETURN_IF_ERROR(WriteNewFile(folder_fd, "manifest.json", std::as_bytes(std::span(text))));
    RETURN_IF_ERROR(SyncFolder(folder_fd, shard));
    return MakeShardRecord(shard, manifest, text);
  }

  Gpu& gpu_;
  const CaptureOptions& options_;
  const Layout layout_;
  const WritePlan plan_;
  Digester digester_{layout_, plan_};
  Stopwatch wall_;
  Stopwatch lap_;
  CaptureReport report_;
  int threads_ = 0;
  uint64_t passed_bytes_ = 0;
  std::optional<Journal> journal_;
  std::atomic<uint64_t> resumed_ = 0;  // windows
  std::unique_ptr<Ring> ring_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  Crew crew_{"captures", "lower write_threads"};  // goes first
};

}  // namespace

Result<WriteBackend> WriteBackendNamed(std::string_view name) {
  if (name == "auto") return WriteBackend::kAuto;
  if (name == "buffered") return WriteBackend::kBuffered;
  if (name == "direct") return WriteBackend::kDirect;
  return Status(Code::kRequestInvalid, StrCat("backend is \"", name, "\", it must be auto, buffered or direct"));
}

Result<CapturedShard> CaptureShard(const std::string& parent, const std::string& shard, Layout layout,
                                   std::string_view identity_json, std::string_view scalars_json, Gpu& gpu,
                                   const CaptureOptions& options) {
  const auto failed = [&](Status status) {
    return std::move(status).Prefixed(StrCat("capture ", shard, ": ")).WithStage("capture");
  };
  Status status = CheckOptions(options);
  // What would be refused at the end is refused before the first byte.
  if (status.ok()) status = MakeArtifact(identity_json, "{}", {{.name = shard}}).status();
  if (status.ok()) status = CanonicalObject(scalars_json).status().Prefixed("scalars: ");
  if (!status.ok()) return failed(std::move(status));
  Result<CapturedShard> captured =
      ShardCapture(std::move(layout), gpu, options).Run(parent, shard, identity_json, scalars_json);
  if (!captured.ok()) return failed(std::move(captured).status());
  return captured;
}

}  // namespace coldsnap
