// The readers of manifest.json and artifact.json against damaged input, one execution after another until the time is
// up:
//
//   ./bazelw test --config=fuzz --test_arg=--seconds=600 --test_arg=--seed=7 //tests/fuzz:reader_fuzz_test
//
// The same seed makes the same input in the same order, and what fails is printed. `--gtest_filter` picks a kind.
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cc/artifact/artifact_json.h"
#include "cc/artifact/canonical_json.h"
#include "cc/artifact/json_text.h"
#include "cc/artifact/limits.h"
#include "cc/artifact/manifest.h"
#include "cc/artifact/manifest_reader.h"
#include "cc/artifact/manifest_scanner.h"
#include "cc/digest/sha256.h"
#include "gtest/gtest.h"
#include "tests/fuzz/damage.h"

namespace coldsnap {
namespace {

constexpr int kKinds = 4;
double seconds = 2;  // all kinds of damage together
uint32_t seed = 20240607;
std::string at_hand;  // the input of this execution

// Also when a sanitizer or a broken invariant ends the process.
void PrintInput() {
  constexpr std::string_view kSays = "\nthe input at hand, byte for byte, between the lines BEGIN and END:\nBEGIN\n";
  for (const std::string_view text : {kSays, std::string_view(at_hand), std::string_view("\nEND\n")}) {
    if (::write(STDERR_FILENO, text.data(), text.size()) < 0) break;
  }
}

struct Seeds {
  std::vector<std::string> all;
  std::vector<std::string> good;
};

// Files end with a newline, as text files do; the input is what stands before it.
Seeds ReadSeeds(const std::string& folder) {
  Seeds seeds;
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator("tests/fuzz/corpus/" + folder)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());  // the same seed means the same input everywhere
  for (const std::filesystem::path& path : paths) {
    std::ifstream file(path, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    if (text.ends_with('\n')) text.pop_back();
    if (path.filename().string().starts_with("good-")) seeds.good.push_back(text);
    seeds.all.push_back(std::move(text));
  }
  return seeds;
}

void ExpectRefusal(const Status& status, std::string_view file) {
  EXPECT_EQ(status.code(), Code::kFormatInvalid) << status.message();
  EXPECT_TRUE(status.message().starts_with(file)) << status.message();
  EXPECT_LT(status.message().size(), 1000U);
  EXPECT_FALSE(FirstInvalidUtf8(status.message())) << Quoted(status.message());
}

// What a restore relies on, said once more without the reader's own means.
void ExpectSafe(const Manifest& manifest) {
  const std::string header = ExpectedHeader(manifest);
  EXPECT_EQ(header.size(), manifest.data_start);
  EXPECT_EQ(Sha256Of(std::as_bytes(std::span(header))), manifest.header_sha256);
  uint64_t end = manifest.data_start;
  for (const Extent& extent : manifest.extents) {
    EXPECT_GT(extent.nbytes, 0U);
    EXPECT_GE(extent.file_offset, end);
    EXPECT_EQ(extent.file_offset % kSmallAlignment, 0U);
    end = extent.file_offset + extent.nbytes;
  }
  EXPECT_LE(end, manifest.blob_bytes);
  EXPECT_LE(manifest.blob_bytes, kMaxInteger);
  for (const TensorRecord& tensor : manifest.tensors) {
    EXPECT_FALSE(FirstInvalidUtf8(tensor.name));
    unsigned __int128 last = 0;  // element that is touched
    bool empty = false;
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
      empty = empty || tensor.shape[i] == 0;
      if (!empty) last += static_cast<unsigned __int128>(tensor.shape[i] - 1) * tensor.strides[i];
    }
    if (empty) continue;
    ASSERT_TRUE(tensor.extent && *tensor.extent < manifest.extents.size());
    EXPECT_LT(tensor.offset + last, manifest.extents[*tensor.extent].nbytes);
  }
}

void TryManifest(const std::string& text) {
  const auto parsed = ParseManifest(text);
  if (const auto scanned = ScanManifest(text)) {
    EXPECT_EQ(WriteManifest(scanned->manifest), text) << "the short way took what is not written";
    EXPECT_TRUE(ReadManifestFields(text).ok()) << "the long way refuses it";
  }
  if (parsed.ok()) {
    EXPECT_EQ(WriteManifest(*parsed), text);
    ExpectSafe(*parsed);
  } else {
    ExpectRefusal(parsed.status(), "manifest.json: ");
  }
}

void TryArtifact(const std::string& text) {
  const auto parsed = ParseArtifact(text);
  if (parsed.ok()) {
    EXPECT_EQ(WriteArtifact(*parsed), text);
    for (const ShardRecord& shard : parsed->shards) EXPECT_EQ(shard.name.find_first_of("/."), shard.name.npos);
  } else {
    ExpectRefusal(parsed.status(), "artifact.json: ");
  }
}

void TryJson(const std::string& text) {
  const auto canonical = CanonicalJson(text, kMaxJsonDepth);
  if (!canonical.ok()) return;
  const auto again = CanonicalJson(*canonical, kMaxJsonDepth);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(*again, *canonical);
}

// Damages and tries until the time is up or something failed.
template <typename Make, typename Try>
void Fuzz(const char* kind, Make make, Try attempt) {
  std::mt19937 random(seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds / kKinds);
  uint64_t executions = 0;
  while (!testing::Test::HasFailure() && std::chrono::steady_clock::now() < end) {
    at_hand = make(random);
    attempt(at_hand);
    ++executions;
  }
  std::printf("%s: %llu executions, seed %u\n", kind, static_cast<unsigned long long>(executions), seed);
  if (testing::Test::HasFailure()) PrintInput();
}

TEST(ReaderFuzzTest, TheSeedsAreAsTheirNamesSay) {
  for (const std::string folder : {"manifest", "artifact"}) {
    const Seeds seeds = ReadSeeds(folder);
    size_t accepted = 0;
    for (const std::string& text : seeds.all) {
      accepted += (folder == "manifest" ? ParseManifest(text).ok() : ParseArtifact(text).ok()) ? 1 : 0;
    }
    for (const std::string& text : seeds.good) {
      const Status status = folder == "manifest" ? ParseManifest(text).status() : ParseArtifact(text).status();
      EXPECT_TRUE(status.ok()) << status.message();
    }
    EXPECT_EQ(accepted, seeds.good.size()) << folder;
    EXPECT_GE(seeds.good.size(), 2U) << folder;
    EXPECT_GE(seeds.all.size(), seeds.good.size() + 2) << folder;
  }
}

TEST(ReaderFuzzTest, DamagedManifestTexts) {
  const Seeds seeds = ReadSeeds("manifest");
  Fuzz("manifest texts", [&](std::mt19937& random) { return DamagedText(seeds.all, random); }, TryManifest);
}

TEST(ReaderFuzzTest, ManifestsThatLieConsistently) {
  std::vector<Manifest> manifests;
  for (const std::string& text : ReadSeeds("manifest").good) manifests.push_back(*ParseManifest(text));
  uint64_t accepted = 0;
  Fuzz(
      "consistent lies",
      [&](std::mt19937& random) { return DamagedManifest(manifests[random() % manifests.size()], random); },
      [&](const std::string& text) {
        TryManifest(text);
        accepted += ParseManifest(text).ok() ? 1 : 0;
      });
  std::printf("  of these %llu were true after all\n", static_cast<unsigned long long>(accepted));
  EXPECT_GT(accepted, 0U) << "the digests that the test makes are wrong";
}

TEST(ReaderFuzzTest, DamagedArtifactTexts) {
  const Seeds seeds = ReadSeeds("artifact");
  Fuzz("artifact texts", [&](std::mt19937& random) { return DamagedText(seeds.all, random); }, TryArtifact);
}

TEST(ReaderFuzzTest, DamagedJson) {
  const Seeds seeds = ReadSeeds("artifact");
  Fuzz("JSON texts", [&](std::mt19937& random) { return DamagedText(seeds.all, random); }, TryJson);
}

int Main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag.starts_with("--seconds=")) {
      seconds = std::strtod(argv[i] + 10, nullptr);
    } else if (flag.starts_with("--seed=")) {
      seed = static_cast<uint32_t>(std::strtoul(argv[i] + 7, nullptr, 10));
    } else {
      std::fprintf(stderr, "reader_fuzz_test: %s is none of --seconds=N, --seed=N\n", argv[i]);
      return 2;
    }
  }
  std::signal(SIGABRT, [](int) {
    PrintInput();
    std::signal(SIGABRT, SIG_DFL);
  });
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_set_death_callback(PrintInput);
#endif
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace coldsnap

#ifdef __SANITIZE_ADDRESS__
// UBSan's runtime is a library of its own, which knows no death callback of the other but asks for this.
extern "C" __attribute__((visibility("default"))) void __ubsan_on_report() {  // NOLINT(bugprone-reserved-identifier)
  coldsnap::PrintInput();
}
#endif

int main(int argc, char** argv) { return coldsnap::Main(argc, argv); }
