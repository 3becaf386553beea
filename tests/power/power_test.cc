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
#include "cc/testing/seed.h"
#include "cc/testing/temp_dir.h"
#include "tests/power/cuts.h"
#include "tests/power/history.h"

namespace coldsnap {
namespace {

constexpr const char* kArtifact = "artifact";  // below the watched folder

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

// Whether a state breaks the promise: something is at the path, and it is not the artifact to the last byte and mode.
bool IsTorn(const Recorded& recorded, const std::vector<bool>& kept) {
  if (!Appears(recorded.history, kept, kArtifact)) return false;
  return *TreeOf(recorded.history, kept).At(kArtifact) != *recorded.left.At(kArtifact);
}

bool EachState(const History& history, std::mt19937_64& random, const Seen& seen) {
  // A name that has not been given yet is given by no state of the cut.
  const auto named = [&history](size_t count) { return Appears(history, AllOf(count), kArtifact); };
  return EachState(history, random, named, seen);
}

struct Case {
  const char* name;
  Writer write;
  int rounds = 60;  // of captures after a cut
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
    if (!recorded_->why_not.empty()) GTEST_SKIP() << recorded_->why_not;
    ASSERT_EQ(recorded_->exit_code, 0);
  }
  const History& history() const { return recorded_->history; }
  const Tree& artifact() const { return *recorded_->left.At(kArtifact); }

  const Recorded* recorded_ = nullptr;
  std::mt19937_64 random_{TestSeed(20261129)};
};

// A writer that takes to calls the tracer doesn't know is not watched in vain.
TEST_P(PowerTest, TheTracerSawAllThatWasDone) {
  EXPECT_EQ(TreeOf(history(), AllOf(history().changes.size())), recorded_->left);
  EXPECT_EQ(recorded_->left.entries.size(), 1U) << "only the artifact stays";
  const TempDir temp;
  WriteTree(artifact(), temp.path() + "/copy");
  const Status status = Restored(temp.path() + "/copy");
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST_P(PowerTest, ACutLeavesNoArtifactOrTheWholeOne) {
  size_t absent = 0;
  size_t whole = 0;
  EachState(history(), random_, [&](const std::vector<bool>& kept) {
    const bool torn = IsTorn(*recorded_, kept);
    EXPECT_FALSE(torn) << LostOf(history(), kept);
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
  EXPECT_FALSE(IsTorn(*recorded_, safe)) << LostOf(history(), safe);
}

// The last sync of each file and folder that stays: changes of the history.
std::vector<size_t> LastSyncs(const History& history) {
  std::map<NodeId, size_t> last;
  for (size_t i = 0; i < history.changes.size(); ++i) {
    const Change& change = history.changes[i];
    if (IsSync(change)) last[change.node] = i;
    if (change.kind == Change::Kind::kRemove) last.erase(change.node);
  }
  std::vector<size_t> syncs;
  for (const auto& [node, sync] : last) syncs.push_back(sync);
  return syncs;
}

// Each is there for a reason: without it, some cut tears the artifact or takes it away again. (A writer may sync more
// often, to have less to do at the end or to go on there after a cut.)
TEST_P(PowerTest, EverySyncIsNeeded) {
  const std::vector<size_t> syncs = LastSyncs(history());
  EXPECT_GE(syncs.size(), 7U);  // three files and a folder of each shard, artifact.json, the artifact, its parent
  for (const size_t sync : syncs) {
    const Recorded other{.history = Without(history(), sync), .left = recorded_->left};
    const bool holds =
        EachState(other.history, random_, [&](const std::vector<bool>& kept) { return !IsTorn(other, kept); });
    const std::vector<bool> safe = CutAfter(other.history, other.history.changes.size()).safe;
    EXPECT_FALSE(holds && Appears(other.history, safe, kArtifact))
        << "without change " << sync << ", " << TextOf(history().changes[sync]);
  }
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
    const bool whole = SameBytes(left, artifact());
    EXPECT_EQ(Restored(path).ok(), whole) << LostOf(history(), kept);
    torn += whole ? 0 : 1;
    std::filesystem::remove_all(path);
  }
  EXPECT_GT(torn, 50);
}

// What a cut leaves is no obstacle: the next capture to the same path clears it away and writes the same bytes.
TEST_P(PowerTest, AfterACutTheNextCaptureWorks) {
  int absent = 0;
  for (int round = 0; round < GetParam().rounds; ++round) {
    const std::vector<bool> kept = SomeState(history(), random_() % (history().changes.size() + 1), random_);
    const TempDir temp;
    const Tree left = TreeOf(history(), kept);
    WriteTree(left, temp.path());
    const Status status = GetParam().write(temp.path());
    const bool was_there = left.At(kArtifact) != nullptr;
    EXPECT_EQ(status.code(), was_there ? Code::kExists : Code::kOk) << status.message();
    absent += was_there ? 0 : 1;
    const Tree now = ReadTree(temp.path());
    ASSERT_NE(now.At(kArtifact), nullptr);
    // artifact.json says when it was captured; all it lists is what it was.
    for (const auto& [name, entry] : artifact().entries) {
      EXPECT_TRUE(!entry.is_folder || now.At(kArtifact)->entries.at(name) == entry) << LostOf(history(), kept);
    }
    EXPECT_TRUE(Restored(StrCat(temp.path(), "/", kArtifact)).ok());
    EXPECT_TRUE(was_there || now.entries.size() == 1) << "what the cut left is still there";
  }
  EXPECT_GT(absent, GetParam().rounds / 6);
}

std::vector<Case> Cases() {
  const auto small = std::make_shared<const Sources>(std::vector<size_t>{100, 2 * kLeafBytes + 7, 700});
  const auto none = std::make_shared<const Sources>(std::vector<size_t>{0});
  return {{"Buffered", OneShard(small, WriteBackend::kBuffered)},
          {"Direct", OneShard(small, WriteBackend::kDirect)},
          {"WithoutExtents", OneShard(none, WriteBackend::kBuffered)},
          {"TwoShards", TwoShards(small)},
          {"Python", PythonWriter("to-path"), 12}};
}
INSTANTIATE_TEST_SUITE_P(Writers, PowerTest, testing::ValuesIn(Cases()),
                         [](const auto& param) { return param.param.name; });

// 10,000 states of a blob of several chunks, taken at random.
TEST(PowerAtRandomTest, ACutLeavesNoArtifactOrTheWholeOne) {
  std::vector<size_t> sizes(40, 3000);
  for (size_t i = 0; i < 5; ++i) sizes.push_back((i + 1) * kLeafBytes - 100 * i);
  for (const WriteBackend backend : {WriteBackend::kBuffered, WriteBackend::kAuto}) {
    const Recorded recorded = Record(OneShard(std::make_shared<const Sources>(sizes), backend));
    if (!recorded.why_not.empty()) GTEST_SKIP() << recorded.why_not;
    ASSERT_EQ(recorded.exit_code, 0);
    const size_t count = recorded.history.changes.size();
    std::mt19937_64 random(TestSeed(20261129));
    size_t whole = 0;
    for (int round = 0; round < 5000; ++round) {
      // Half of the cuts near the end, where the artifact gets its name.
      const size_t end = round % 2 == 0 ? random() % (count + 1) : count - random() % 12;
      const std::vector<bool> kept = SomeState(recorded.history, end, random);
      ASSERT_FALSE(IsTorn(recorded, kept)) << LostOf(recorded.history, kept);
      whole += Appears(recorded.history, kept, kArtifact) ? 1 : 0;
    }
    EXPECT_GT(whole, 100U);
    EXPECT_LT(whole, 4900U);
  }
}

}  // namespace
}  // namespace coldsnap
