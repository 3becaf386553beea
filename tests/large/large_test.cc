// Sizes at which 31 and 32 bits are not enough: an extent of 5 GiB, a blob of 9 GiB, a read of more than the kernel's
// longest. The files are sparse; of memory it takes the destination, 5 GiB at a time, and a ring of a megabyte.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cc/device/host_gpu.h"
#include "cc/hydrate/hydrate.h"
#include "cc/sys/files.h"
#include "cc/testing/pattern.h"
#include "tests/large/sparse_artifact.h"

namespace coldsnap {
namespace {

using testing::HasSubstr;

constexpr uint64_t kMemoryLimit = 16'000'000'000;
constexpr uint64_t kDiskLimit = 12 * kGiB;
constexpr std::byte kBefore{0xEE};
constexpr std::byte kPoison{0xFF};
constexpr uint64_t kLeavesIn4GiB = 4 * kGiB / kLeafBytes;

// Memory that is taken page by page when it is written, and given back.
class Destination {
 public:
  explicit Destination(uint64_t nbytes) : nbytes_(nbytes) {
    void* const map =
        ::mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) throw std::runtime_error(StrCat("map ", nbytes, " bytes: ", std::strerror(errno)));
    start_ = static_cast<std::byte*>(map);
    ::madvise(start_, nbytes, MADV_HUGEPAGE);
    std::memset(start_, static_cast<int>(kBefore), nbytes);  // zeros would be right before a byte has arrived
  }
  ~Destination() { ::munmap(start_, nbytes_); }
  Destination(const Destination&) = delete;
  Destination& operator=(const Destination&) = delete;

  DeviceRange range() const { return {.address = reinterpret_cast<uint64_t>(start_), .nbytes = nbytes_}; }
  std::span<std::byte> bytes() const { return {start_, nbytes_}; }
  bool AllBytesAre(std::byte value) const {
    return start_[0] == value && std::memcmp(start_, start_ + 1, nbytes_ - 1) == 0;
  }

 private:
  uint64_t nbytes_;
  std::byte* start_ = nullptr;
};

const std::vector<SparseTensor>& Tensors() {
  static const std::vector<SparseTensor> tensors = {
      // Around 2^31 and 2^32 of the extent, and its short last leaf.
      {.nbytes = 5 * kGiB + 777,
       .marks = {{0, 1},
                 {kLeavesIn4GiB / 2, 2},
                 {kLeavesIn4GiB - 1, 3},
                 {kLeavesIn4GiB, 4},
                 {kLeavesIn4GiB + 3, 5},
                 {5 * kGiB / kLeafBytes, 6}}},
      // In the file it begins behind 2^32 and goes past 2^33.
      {.nbytes = 4 * kGiB + 3 * kLeafBytes,
       .marks = {{0, 7}, {kLeavesIn4GiB / 2 + 1, 8}, {3 * kGiB / kLeafBytes, 9}, {kLeavesIn4GiB + 2, 10}}},
      {.nbytes = 700, .marks = {{0, 11}}},  // behind everything
  };
  return tensors;
}

// The first leaf of `bytes` that is not as it should be, when they are leaves of the tensor from `first_leaf` on.
std::string FirstWrongLeaf(std::span<const std::byte> bytes, const SparseTensor& tensor, uint64_t first_leaf = 0) {
  const std::vector<std::byte> zeros(kLeafBytes);
  for (uint64_t done = 0; done < bytes.size(); done += kLeafBytes) {
    const uint64_t leaf = first_leaf + done / kLeafBytes;
    const auto found = bytes.subspan(done, std::min<uint64_t>(kLeafBytes, bytes.size() - done));
    std::vector<std::byte> marked;
    for (const Marked& mark : tensor.marks) {
      if (mark.leaf == leaf) marked = PatternBytes(kLeafBytes, mark.seed);
    }
    const std::byte* const expected = marked.empty() ? zeros.data() : marked.data();
    if (std::memcmp(found.data(), expected, found.size()) != 0) return StrCat("leaf ", leaf);
  }
  return "";
}

class LargeTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const rlimit limit{.rlim_cur = kMemoryLimit, .rlim_max = kMemoryLimit};
    ASSERT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
    files_ = std::make_unique<SparseArtifact>(Tensors());
    artifact_ = std::make_unique<OpenArtifact>(*OpenArtifact::Open(files_->path(), std::nullopt));
  }
  static void TearDownTestSuite() {
    EXPECT_LT(files_->disk_bytes(), kDiskLimit);
    RecordProperty("disk_bytes", std::to_string(files_->disk_bytes()));
    artifact_.reset();
    files_.reset();
  }

  // The extents are the tensors in their order: large ones in name order, then small ones.
  static const Extent& ExtentOf(size_t tensor) { return artifact_->manifest().extents[tensor]; }
  static HydrateOptions SmallRing(Backend backend, Verify verify) {
    return {.backend = backend, .verify = verify, .chunk_bytes = 256 * kKiB, .queue_depth = 4, .read_threads = 2};
  }
  static Result<HydrateReport> Restore(size_t tensor, const Destination& destination, const HydrateOptions& options) {
    const std::unique_ptr<Gpu> gpu = OpenHostGpu();
    const std::vector<ExtentTarget> targets = {{static_cast<uint32_t>(tensor), destination.range()}};
    return Hydrate(*artifact_, targets, *gpu, options);
  }
  static void ExpectRestored(size_t tensor, const HydrateOptions& options) {
    const Destination destination(Tensors()[tensor].nbytes);
    const Result<HydrateReport> report = Restore(tensor, destination, options);
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report->payload_bytes, Tensors()[tensor].nbytes);
    EXPECT_GE(report->read_bytes, report->payload_bytes);
    EXPECT_LE(report->pinned_bytes, 4 * kMiB);
    EXPECT_EQ(FirstWrongLeaf(destination.bytes(), Tensors()[tensor]), "") << "of t" << tensor;
  }
  // Whatever finds it, the message has the piece's number and both offsets.
  static void ExpectFlippedBitIsNamed(size_t tensor, uint64_t leaf, const HydrateOptions& options) {
    const Destination destination(Tensors()[tensor].nbytes);
    const uint64_t offset = leaf * kLeafBytes;
    const uint64_t at = ExtentOf(tensor).file_offset + offset;
    files_->FlipBit(at + 17);
    const Status status = Restore(tensor, destination, options).status();
    files_->FlipBit(at + 17);
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr(StrCat("extent ", tensor, " (t", tensor, ")")));
    EXPECT_THAT(status.message(), HasSubstr(StrCat("piece ", leaf, " (65536 bytes at offset ", offset,
                                                   " of the extent, ", at, " of weights.safetensors)")));
    EXPECT_TRUE(destination.AllBytesAre(kPoison));
  }

  static std::unique_ptr<SparseArtifact> files_;
  static std::unique_ptr<OpenArtifact> artifact_;
};

std::unique_ptr<SparseArtifact> LargeTest::files_;
std::unique_ptr<OpenArtifact> LargeTest::artifact_;

TEST_F(LargeTest, TheArtifactIsAsLargeAsItShouldBe) {
  ASSERT_EQ(artifact_->manifest().extents.size(), 3U);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(ExtentOf(i).nbytes, Tensors()[i].nbytes);
  EXPECT_GT(artifact_->manifest().blob_bytes, 9 * kGiB);
  EXPECT_GT(ExtentOf(1).file_offset, uint64_t{1} << 32);
  EXPECT_GT(ExtentOf(2).file_offset, uint64_t{1} << 33);
}

TEST_F(LargeTest, AnExtentOf5GiBBuffered) { ExpectRestored(0, SmallRing(Backend::kBuffered, Verify::kCrc32Sha256)); }
TEST_F(LargeTest, AnExtentOf5GiBDirect) { ExpectRestored(0, SmallRing(Backend::kDirect, Verify::kCrc32)); }
TEST_F(LargeTest, AnExtentBehind4GiBOfTheBlob) { ExpectRestored(1, SmallRing(Backend::kDirect, Verify::kCrc32Sha256)); }
TEST_F(LargeTest, ASmallExtentBehind8GiBOfTheBlob) {
  ExpectRestored(2, SmallRing(Backend::kBuffered, Verify::kCrc32Sha256));
}

TEST_F(LargeTest, ChunksOfAGibibyte) {
  HydrateOptions options = SmallRing(Backend::kBuffered, Verify::kCrc32);
  options.chunk_bytes = kGiB;
  options.queue_depth = 2;
  const Destination destination(Tensors()[0].nbytes);
  const Result<HydrateReport> report = Restore(0, destination, options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->pinned_bytes, 2 * kGiB);
  EXPECT_EQ(FirstWrongLeaf(destination.bytes(), Tensors()[0]), "");
}

TEST_F(LargeTest, AFlippedBitBehind4GiBOfTheExtentByItsLeaf) {
  ExpectFlippedBitIsNamed(0, kLeavesIn4GiB + 1, SmallRing(Backend::kBuffered, Verify::kCrc32Sha256));
}
TEST_F(LargeTest, AFlippedBitBehind4GiBOfTheExtentByItsCrc) {
  ExpectFlippedBitIsNamed(0, kLeavesIn4GiB + 4000, SmallRing(Backend::kDirect, Verify::kCrc32));
}
TEST_F(LargeTest, AFlippedBitBehind8GiBOfTheBlob) {
  ExpectFlippedBitIsNamed(1, kLeavesIn4GiB - 5, SmallRing(Backend::kDirect, Verify::kCrc32Sha256));
}

// Linux moves at most 0x7ffff000 bytes in one call, whatever was asked for.
TEST_F(LargeTest, AReadLongerThanTheKernelsLongestIsContinued) {
  constexpr uint64_t kNbytes = 2 * kGiB + 205 * kMiB;
  static_assert(kNbytes > 0x7ffff000);
  const Destination memory(kNbytes);
  for (const uint64_t offset : {uint64_t{0}, 2 * kGiB + 300 * kMiB}) {  // the second goes past 2^32
    const Status status = ReadExact(artifact_->blob_fd(), memory.bytes(), ExtentOf(0).file_offset + offset, "blob");
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(FirstWrongLeaf(memory.bytes(), Tensors()[0], offset / kLeafBytes), "") << "from " << offset;
  }
  constexpr uint64_t kThere = 2 * kGiB + 4096;  // the end comes in the second call
  const Status status =
      ReadExact(artifact_->blob_fd(), memory.bytes(), artifact_->manifest().blob_bytes - kThere, "blob");
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr(StrCat("the file ends after ", kThere, " of them")));
}

}  // namespace
}  // namespace coldsnap
