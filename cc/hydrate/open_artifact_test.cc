// What is no artifact, or not the one that was written, is refused on opening, with the file that is wrong.
#include "cc/hydrate/open_artifact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cc/testing/test_artifact.h"

namespace coldsnap {
namespace {

using testing::HasSubstr;

class OpenArtifactTest : public testing::Test {
 protected:
  std::string ShardFile(const std::string& name) const { return files_.path() + "/shard-00-00-00/" + name; }
  Status Open(const std::optional<std::string>& shard = std::nullopt) const {
    return OpenArtifact::Open(files_.path(), shard).status();
  }
  static std::string Slurp(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void Overwrite(const std::string& path, const std::string& bytes) {
    std::filesystem::permissions(path, std::filesystem::perms::owner_write, std::filesystem::perm_options::add);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }
  // Changes one byte, keeping the size.
  static void Damage(const std::string& path, size_t offset) {
    std::string bytes = Slurp(path);
    bytes[offset] = static_cast<char>(bytes[offset] ^ 1);
    Overwrite(path, bytes);
  }

  TestArtifact files_{{kLeafBytes + 1, 100}};
};

TEST_F(OpenArtifactTest, GivesWhatWasWritten) {
  const OpenArtifact artifact = files_.Open();
  EXPECT_EQ(artifact.payload_bytes(), kLeafBytes + 101);
  EXPECT_EQ(artifact.shard().name, "shard-00-00-00");
  EXPECT_EQ(artifact.ExtentText(0), "extent 0 (t0)");
  EXPECT_EQ(artifact.LeavesOfExtent(0).size(), 2U);
  EXPECT_EQ(artifact.LeavesOfExtent(1).size(), 1U);
  EXPECT_TRUE(Open("shard-00-00-00").ok());
}

TEST_F(OpenArtifactTest, FilesAreReadOnlyAndNothingElseIsThere) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(files_.path())) {
    struct stat info{};
    ASSERT_EQ(::lstat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, S_ISDIR(info.st_mode) ? 0755U : 0444U) << entry.path();
  }
  const std::filesystem::path parent = std::filesystem::path(files_.path()).parent_path();
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(parent), {}), 1)
      << "something was left beside the artifact";
}

TEST_F(OpenArtifactTest, WrongPathsAndShardsAreTheRequestsFault) {
  EXPECT_EQ(OpenArtifact::Open(files_.path() + "/none", std::nullopt).status().code(), Code::kRequestInvalid);
  EXPECT_EQ(OpenArtifact::Open(files_.blob_path(), std::nullopt).status().code(), Code::kRequestInvalid);
  const Status status = Open("shard-00-01-00");
  EXPECT_EQ(status.code(), Code::kRequestInvalid);
  EXPECT_THAT(status.message(), HasSubstr("it has shard-00-00-00"));
}

TEST_F(OpenArtifactTest, WithoutArtifactJsonItIsNone) {
  ASSERT_EQ(::unlink((files_.path() + "/artifact.json").c_str()), 0);
  EXPECT_EQ(Open().code(), Code::kFormatInvalid);
  EXPECT_THAT(Open().message(), HasSubstr("there is no artifact.json"));
  EXPECT_EQ(Open().stage(), "open");
}

TEST_F(OpenArtifactTest, MissingFilesAreNamed) {
  for (const char* name : {"weights.safetensors", "leaves.bin", "manifest.json"}) {
    const std::string moved = files_.path() + "/moved";
    ASSERT_EQ(::rename(ShardFile(name).c_str(), moved.c_str()), 0);
    EXPECT_EQ(Open().code(), Code::kFormatInvalid) << name;
    EXPECT_THAT(Open().message(),
                HasSubstr(StrCat("artifact.json lists shard-00-00-00/", name, ", which is not there")));
    ASSERT_EQ(::rename(moved.c_str(), ShardFile(name).c_str()), 0);
  }
  std::filesystem::remove_all(files_.path() + "/shard-00-00-00");
  EXPECT_THAT(Open().message(), HasSubstr("artifact.json lists shard-00-00-00, which is not there"));
}

TEST_F(OpenArtifactTest, ShortAndLongFilesAreNamed) {
  for (const char* name : {"weights.safetensors", "leaves.bin", "manifest.json"}) {
    const std::string before = Slurp(ShardFile(name));
    for (const std::string& bytes : {before.substr(0, before.size() - 1), before + "x"}) {
      Overwrite(ShardFile(name), bytes);
      EXPECT_EQ(Open().code(), Code::kDataLoss) << name;
      EXPECT_THAT(Open().message(), HasSubstr(StrCat("shard-00-00-00/", name, " has ", bytes.size(), " bytes")));
    }
    Overwrite(ShardFile(name), before);
  }
  EXPECT_TRUE(Open().ok());
}

TEST_F(OpenArtifactTest, OneWrongByteAnywhereButInTheDataIsSeen) {
  for (const auto& [name, offset] : std::vector<std::pair<std::string, size_t>>{{"weights.safetensors", 0},
                                                                                {"weights.safetensors", 60},
                                                                                {"weights.safetensors", 65535},
                                                                                {"leaves.bin", 33},
                                                                                {"manifest.json", 200}}) {
    Damage(ShardFile(name), offset);
    EXPECT_EQ(Open().code(), Code::kDataLoss) << name << " at " << offset;
    Damage(ShardFile(name), offset);
  }
  Damage(files_.path() + "/artifact.json", 30);
  EXPECT_EQ(Open().code(), Code::kFormatInvalid);
  Damage(files_.path() + "/artifact.json", 30);
  EXPECT_TRUE(Open().ok());
}

TEST_F(OpenArtifactTest, LinksAreRefused) {
  for (const char* name : {"weights.safetensors", "leaves.bin", "manifest.json"}) {
    const std::string moved = ShardFile(name) + ".moved";
    ASSERT_EQ(::rename(ShardFile(name).c_str(), moved.c_str()), 0);
    ASSERT_EQ(::symlink(moved.c_str(), ShardFile(name).c_str()), 0);
    EXPECT_THAT(Open().remedy(), HasSubstr("links inside an artifact are refused")) << name;
    ASSERT_EQ(::rename(moved.c_str(), ShardFile(name).c_str()), 0);
  }
  EXPECT_TRUE(Open().ok());
}

TEST(WriteArtifactTest, ReplacesNothingAndLeavesNothing) {
  const TestArtifact files({100});
  EXPECT_EQ(WriteHostArtifact({.path = files.path(), .tensors = {}}).status().code(), Code::kExists);
  const TempDir temp;
  const Status no_parent = WriteHostArtifact({.path = temp.path() + "/none/artifact", .tensors = {}}).status();
  EXPECT_EQ(no_parent.code(), Code::kRequestInvalid);
  const Status bad_identity =
      WriteHostArtifact({.path = temp.path() + "/a", .tensors = {}, .identity_json = "[]"}).status();
  EXPECT_EQ(bad_identity.code(), Code::kRequestInvalid);
  EXPECT_TRUE(std::filesystem::is_empty(temp.path())) << "a failed write left something behind";
}

}  // namespace
}  // namespace coldsnap
