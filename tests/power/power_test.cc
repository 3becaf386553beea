// A power cut at any moment of a capture leaves no artifact at its path or the whole one, and afterwards that stays.
//
// Writers are recorded as they run, with every size, write, sync and entry; then the states that cuts may leave are
// made from the history (history.h) and looked at. A drive that lies about syncs can break this; then what is there is
// found out when it is opened or restored.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cc/artifact/artifact_json.h"
#include "cc/artifact/layout.h"
#include "cc/base/check.h"
#include "cc/base/units.h"
#include "cc/capture/capture.h"
#include "cc/capture/write_artifact.h"
#include "cc/device/host_gpu.h"
#include "cc/hydrate/hydrate.h"
#include "cc/hydrate/open_artifact.h"
#include "cc/publish/incoming.h"
#include "cc/publish/publish_artifact.h"
#include "cc/testing/pattern.h"
#include "cc/testing/temp_dir.h"
#include "tests/power/history.h"
#include "tests/power/recorder.h"

namespace coldsnap {
namespace {

constexpr const char* kArtifact = "artifact";  // below the recorded folder
constexpr size_t kFewPending = 10;             // up to so many changes, every subset of them is looked at

// Tensors in host memory that stay where they are.
class Sources {
 public:
  explicit Sources(const std::vector<size_t>& sizes) {
    for (size_t i = 0; i < sizes.size(); ++i) bytes_.push_back(PatternBytes(sizes[i], i + 1));
  }
  std::vector<TensorSpec> Specs() const {
    std::vector<TensorSpec> specs;
    for (size_t i = 0; i < bytes_.size(); ++i) {
      const auto address = reinterpret_cast<uint64_t>(bytes_[i].data());
      specs.push_back({.name = StrCat("t", i),
                       .dtype = "U8",
                       .shape = {bytes_[i].size()},
                       .strides = {1},
                       .address = address,
                       .storage_address = address,
                       .storage_nbytes = bytes_[i].size(),
                       .object = i,
                       .role = {},
                       .attrs = {}});
    }
    return specs;
  }

 private:
  std::vector<std::vector<std::byte>> bytes_;
};

using Writer = std::function<Status(const std::string& folder)>;

Writer OneShard(std::shared_ptr<const Sources> sources, WriteBackend backend) {
  return [sources = std::move(sources), backend](const std::string& folder) {
    const std::unique_ptr<Gpu> gpu = OpenHostGpu();
    return CaptureArtifact({.path = folder + "/" + kArtifact, .tensors = sources->Specs()}, *gpu,
                           {.backend = backend, .chunk_bytes = 4 * kLeafBytes, .write_threads = 2})
        .status();
  };
}

// As ranks do: each writes its shard, one publishes them all.
Writer TwoShards(std::shared_ptr<const Sources> sources) {
  return [sources = std::move(sources)](const std::string& folder) -> Status {
    const std::unique_ptr<Gpu> gpu = OpenHostGpu();
    ASSIGN_OR_RETURN(Incoming incoming, Incoming::Create(folder, ".incoming"));
    std::vector<ShardRecord> records;
    for (const uint32_t rank : {0U, 1U}) {
      ASSIGN_OR_RETURN(Layout layout, PlanLayout(sources->Specs()));
      ASSIGN_OR_RETURN(CapturedShard shard, CaptureShard(incoming.path(), ShardName(0, rank, 0), std::move(layout),
                                                         "{}", "{}", *gpu, {.backend = WriteBackend::kBuffered}));
      records.push_back(std::move(shard.record));
    }
    return PublishArtifact(std::move(incoming), std::move(records), "{}", "{}", folder + "/" + kArtifact).status();
  };
}

// What a writer did to an empty folder, and what it left there.
struct Recorded {
  Status status;
  History history;
  Tree left;
  const Tree& artifact() const { return *left.At(kArtifact); }
};

Recorded Record(const Writer& write) {
  const TempDir temp;
  Recorder recorder(temp.path());
  Recorded recorded;
  recorded.status = write(temp.path());
  recorded.history = std::move(recorder).Finish();
  recorded.left = ReadTree(temp.path());
  return recorded;
}

// Opens every shard of the artifact and restores all of it, comparing every digest.
Status Restored(const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<std::string> shards, OpenArtifact::ShardNames(path));
  const std::unique_ptr<Gpu> gpu = OpenHostGpu();
  for (const std::string& shard : shards) {
    ASSIGN_OR_RETURN(const OpenArtifact artifact, OpenArtifact::Open(path, shard));
    std::vector<std::byte> memory(artifact.payload_bytes());
    auto address = reinterpret_cast<uint64_t>(memory.data());
    std::vector<ExtentTarget> targets;
    for (uint32_t i = 0; i < artifact.manifest().extents.size(); ++i) {
      const uint64_t nbytes = artifact.manifest().extents[i].nbytes;
      targets.push_back({i, {.address = address, .nbytes = nbytes}});
      address += nbytes;
    }
    RETURN_IF_ERROR(Hydrate(artifact, targets, *gpu, {.backend = Backend::kBuffered, .read_threads = 1}).status());
  }
  return Status::Ok();
}

// But for modes, which no reader goes by.
bool SameBytes(const Tree& a, const Tree& b) {
  const auto same = [](const auto& x, const auto& y) { return x.first == y.first && SameBytes(x.second, y.second); };
  return a.is_folder == b.is_folder && a.bytes == b.bytes &&
         std::equal(a.entries.begin(), a.entries.end(), b.entries.begin(), b.entries.end(), same);
}

std::vector<bool> AllOf(size_t count) { return std::vector<bool>(count, true); }

// Whether a state breaks the promise: something is at the path, and it is not the artifact to the last byte and mode.
bool IsTorn(const Recorded& recorded, const std::vector<bool>& kept) {
  if (!Appears(recorded.history, kept, kArtifact)) return false;
  return *TreeOf(recorded.history, kept).At(kArtifact) != recorded.artifact();
}

std::string LostOf(const Recorded& recorded, const std::vector<bool>& kept) {
  std::string text = StrCat("after ", kept.size(), " changes, without:");
  for (size_t i = 0; i < kept.size(); ++i) {
    if (!kept[i] && !IsSync(recorded.history.changes[i])) text += "\n  " + TextOf(recorded.history.changes[i]);
  }
  return text;
}

// States that cuts may leave, to be looked at one by one. `seen` returns false to end it.
using Seen = std::function<bool(const std::vector<bool>& kept)>;

// Every state of every cut with few changes pending; of the others those that lose one, all but one, and some.
bool EachState(const History& history, std::mt19937_64& random, const Seen& seen) {
  for (size_t count = 0; count <= history.changes.size(); ++count) {
    // A name that has not been given yet is given by no subset, so two states stand for all.
    const bool named = Appears(history, AllOf(count), kArtifact);
    const Cut cut = CutAfter(history, count);
    const size_t pending = cut.pending.size();
    const auto with = [&](const std::function<bool(size_t)>& keep) {
      std::vector<bool> kept = cut.safe;
      for (size_t i = 0; i < pending; ++i) kept[cut.pending[i]] = keep(i);
      return seen(kept);
    };
    if (!with([](size_t) { return true; }) || !with([](size_t) { return false; })) return false;
    if (!named) continue;
    if (pending <= kFewPending) {
      for (size_t subset = 0; subset < size_t{1} << pending; ++subset) {
        if (!with([subset](size_t i) { return (subset >> i & 1) != 0; })) return false;
      }
      continue;
    }
    for (size_t one = 0; one < pending; ++one) {
      if (!with([one](size_t i) { return i != one; }) || !with([one](size_t i) { return i == one; })) return false;
    }
    for (int round = 0; round < 20; ++round) {
      if (!with([&random](size_t) { return random() % 2 == 0; })) return false;
    }
  }
  return true;
}

History Without(const History& history, size_t sync) {
  History other = history;
  other.changes.erase(other.changes.begin() + static_cast<ptrdiff_t>(sync));
  return other;
}

struct Case {
  const char* name;
  Writer write;
  friend void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }
};

class PowerTest : public testing::TestWithParam<Case> {
 protected:
  // Recorded once for all tests of a case. A skip if the file system can't do what it is about.
  void SetUp() override {
    static std::map<std::string, Recorded> all;
    const auto [entry, fresh] = all.try_emplace(GetParam().name);
    if (fresh) entry->second = Record(GetParam().write);
    recorded_ = &entry->second;
    if (recorded_->status.code() == Code::kRouteUnavailable) GTEST_SKIP() << recorded_->status.message();
    ASSERT_TRUE(recorded_->status.ok()) << recorded_->status.message();
  }
  const History& history() const { return recorded_->history; }

  const Recorded* recorded_ = nullptr;
  std::mt19937_64 random_{20261129};
};

// A writer that takes to other calls is not recorded in silence.
TEST_P(PowerTest, TheRecorderSawAllThatWasDone) {
  EXPECT_EQ(TreeOf(history(), AllOf(history().changes.size())), recorded_->left);
  EXPECT_EQ(recorded_->left.entries.size(), 1U) << "only the artifact stays";
  const TempDir temp;
  WriteTree(recorded_->artifact(), temp.path() + "/copy");
  const Status status = Restored(temp.path() + "/copy");
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST_P(PowerTest, ACutLeavesNoArtifactOrTheWholeOne) {
  size_t absent = 0;
  size_t whole = 0;
  EachState(history(), random_, [&](const std::vector<bool>& kept) {
    const bool torn = IsTorn(*recorded_, kept);
    EXPECT_FALSE(torn) << LostOf(*recorded_, kept);
    ++(Appears(history(), kept, kArtifact) ? whole : absent);
    return !torn;
  });
  EXPECT_GT(absent, history().changes.size());
  EXPECT_GT(whole, 0U);
  RecordProperty("states", std::to_string(absent + whole));
}

TEST_P(PowerTest, OnceItHasReturnedTheArtifactStays) {
  const std::vector<bool> safe = CutAfter(history(), history().changes.size()).safe;
  EXPECT_TRUE(Appears(history(), safe, kArtifact));
  EXPECT_FALSE(IsTorn(*recorded_, safe)) << LostOf(*recorded_, safe);
}

// Each sync of the writer's is there for a reason: without it, some cut tears the artifact or takes it away again.
TEST_P(PowerTest, EverySyncIsNeeded) {
  size_t syncs = 0;
  for (size_t i = 0; i < history().changes.size(); ++i) {
    if (!IsSync(history().changes[i])) continue;
    ++syncs;
    Recorded other{.status = Status::Ok(), .history = Without(history(), i), .left = recorded_->left};
    const bool holds =
        EachState(other.history, random_, [&](const std::vector<bool>& kept) { return !IsTorn(other, kept); });
    const std::vector<bool> safe = CutAfter(other.history, other.history.changes.size()).safe;
    EXPECT_FALSE(holds && Appears(other.history, safe, kArtifact))
        << "without change " << i << ", " << TextOf(history().changes[i]);
  }
  EXPECT_GE(syncs, 7U);  // three files and a folder of each shard, artifact.json, the artifact, its parent
}

// A drive that keeps no sync leaves torn artifacts, and each that misses a byte is found out.
TEST_P(PowerTest, WhatALyingDriveTearsIsFoundOut) {
  const size_t count = history().changes.size();
  const TempDir temp;
  int torn = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<bool> kept(count);
    const uint64_t losses = uint64_t{2} << random_() % 8;  // from half of the changes to few
    for (size_t i = 0; i < count; ++i) kept[i] = random_() % losses != 0;
    if (!Appears(history(), kept, kArtifact)) continue;
    const Tree left = *TreeOf(history(), kept).At(kArtifact);
    const std::string path = StrCat(temp.path(), "/", round);
    WriteTree(left, path);
    const bool whole = SameBytes(left, recorded_->artifact());
    EXPECT_EQ(Restored(path).ok(), whole) << LostOf(*recorded_, kept);
    torn += whole ? 0 : 1;
    std::filesystem::remove_all(path);
  }
  EXPECT_GT(torn, 50);
}

// What a cut leaves is no obstacle: the next capture to the same path clears it away and writes the same bytes.
TEST_P(PowerTest, AfterACutTheNextCaptureWorks) {
  int absent = 0;
  for (int round = 0; round < 60; ++round) {
    const Cut cut = CutAfter(history(), random_() % (history().changes.size() + 1));
    std::vector<bool> kept = cut.safe;
    for (const size_t i : cut.pending) kept[i] = random_() % 2 == 0;
    const TempDir temp;
    const Tree left = TreeOf(history(), kept);
    WriteTree(left, temp.path());
    const Status status = GetParam().write(temp.path());
    const bool was_there = left.At(kArtifact) != nullptr;
    EXPECT_EQ(status.code(), was_there ? Code::kExists : Code::kOk) << status.message();
    absent += was_there ? 0 : 1;
    const Tree now = ReadTree(temp.path());
    ASSERT_NE(now.At(kArtifact), nullptr);
    EXPECT_EQ(now.At(kArtifact)->entries, recorded_->artifact().entries) << LostOf(*recorded_, kept);
    EXPECT_TRUE(was_there || now.entries.size() == 1) << "what the cut left is still there";
  }
  EXPECT_GT(absent, 10);
}

std::vector<Case> Cases() {
  const auto small = std::make_shared<const Sources>(std::vector<size_t>{100, 2 * kLeafBytes + 7, 700});
  const auto none = std::make_shared<const Sources>(std::vector<size_t>{0});
  return {{"Buffered", OneShard(small, WriteBackend::kBuffered)},
          {"Direct", OneShard(small, WriteBackend::kDirect)},
          {"WithoutExtents", OneShard(none, WriteBackend::kBuffered)},
          {"TwoShards", TwoShards(small)}};
}
INSTANTIATE_TEST_SUITE_P(Writers, PowerTest, testing::ValuesIn(Cases()),
                         [](const auto& param) { return param.param.name; });

// 10,000 states of a blob of several chunks, taken at random.
TEST(PowerAtRandomTest, ACutLeavesNoArtifactOrTheWholeOne) {
  std::vector<size_t> sizes(40, 3000);
  for (size_t i = 0; i < 10; ++i) sizes.push_back((i + 1) * kLeafBytes - 100 * i);
  for (const WriteBackend backend : {WriteBackend::kBuffered, WriteBackend::kAuto}) {
    const Recorded recorded = Record(OneShard(std::make_shared<const Sources>(sizes), backend));
    ASSERT_TRUE(recorded.status.ok()) << recorded.status.message();
    const size_t count = recorded.history.changes.size();
    std::mt19937_64 random(20261129);
    size_t whole = 0;
    for (int round = 0; round < 5000; ++round) {
      // Half of the cuts near the end, where the artifact gets its name.
      const Cut cut = CutAfter(recorded.history, round % 2 == 0 ? random() % (count + 1) : count - random() % 12);
      std::vector<bool> kept = cut.safe;
      for (const size_t i : cut.pending) kept[i] = random() % 2 == 0;
      ASSERT_FALSE(IsTorn(recorded, kept)) << LostOf(recorded, kept);
      whole += Appears(recorded.history, kept, kArtifact) ? 1 : 0;
    }
    EXPECT_GT(whole, 100U);
    EXPECT_LT(whole, 4900U);
  }
}

}  // namespace
}  // namespace coldsnap
