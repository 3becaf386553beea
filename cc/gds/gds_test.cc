#include "cc/gds/gds.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>

#include "cc/gds/errors.h"
#include "cc/testing/end_child.h"
#include "cc/testing/fake_cufile/fake_cufile.h"
#include "cc/testing/pattern.h"
#include "cc/testing/temp_dir.h"
#include "gtest/gtest.h"

namespace coldsnap {
namespace {

constexpr char kLibrary[] = "cc/testing/fake_cufile/libcufile.so.0";
constexpr uint64_t kFileBytes = 8 * kMiB + 4096;

bool Has(const Status& status, std::string_view part) { return status.message().find(part) != std::string::npos; }

// Whether `test` holds in a forked child; the process's driver of Get() is opened once, so each case has its own.
bool HoldsInChild(const std::function<bool()>& test) {
  const pid_t child = ::fork();
  if (child == 0) EndChild(test() ? 0 : 1);
  int status = -1;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

class GdsTest : public testing::Test {
 protected:
  GdsTest() : fake(*Control()), content(PatternBytes(kFileBytes, 7)) {
    fake = {};
    options.nvidia_fs = temp.path() + "/nvidia-fs";
    temp.Write("blob", {reinterpret_cast<const char*>(content.data()), content.size()});
  }

  void HaveNvidiaFs() {
    fake.nvidia_fs = true;
    std::filesystem::create_directory(options.nvidia_fs);
    temp.Write("nvidia-fs/version", "version: 2.26\n");
  }
  SharedGdsDriver Driver() { return *GdsDriver::Open(options); }
  Result<GdsFile> File(const SharedGdsDriver& driver, int flags = O_DIRECT) {
    return GdsFile::Register(driver, UniqueFd(::open((temp.path() + "/blob").c_str(), O_RDONLY | O_CLOEXEC | flags)),
                             "blob");
  }
  // Stands for device memory; a GPU's pages begin at multiples of 64 KiB, this may begin anywhere.
  DeviceRange Memory() { return {reinterpret_cast<uint64_t>(memory.data()), memory.size()}; }
  // One read of the whole file, in pieces where the buffer has any.
  Status ReadAll(const SharedGdsDriver& driver) {
    ASSIGN_OR_RETURN(const GdsFile file, File(driver));
    ASSIGN_OR_RETURN(const GdsBuffer buffer, GdsBuffer::Register(driver, Memory(), 64 * kKiB));
    return file.Read(buffer, 0, 0, kFileBytes);
  }

  FakeCufile& fake;
  TempDir temp;
  GdsOptions options{.library = kLibrary};
  std::vector<std::byte> content;
  std::vector<std::byte> memory = std::vector<std::byte>(kFileBytes);

 private:
  static FakeCufile* Control() {
    void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    COLDSNAP_CHECK(library != nullptr);
    return reinterpret_cast<decltype(&fake_cufile)>(::dlsym(library, "fake_cufile"))();
  }
};

TEST_F(GdsTest, AMissingLibraryOrFunctionIsSaidInTheLinkersWords) {
  const Status absent = GdsDriver::Open({.library = "libnot-there.so.0"}).status();
  EXPECT_EQ(absent.code(), Code::kRouteUnavailable);
  EXPECT_TRUE(Has(absent, "load cuFile from libnot-there.so.0: ")) << absent.message();
  EXPECT_TRUE(Has(absent, "cannot open shared object file")) << absent.message();
  EXPECT_FALSE(absent.remedy().empty());

  const Status other = GdsDriver::Open({.library = "libm.so.6"}).status();
  EXPECT_EQ(other.code(), Code::kRouteUnavailable);
  EXPECT_TRUE(Has(other, "undefined symbol: cuFileDriverOpen")) << other.message();
}

TEST_F(GdsTest, AVersionWithOtherStatisticsIsRefusedBeforeAnythingIsOpened) {
  HaveNvidiaFs();
  for (const int version : {1149, 1190}) {
    fake.version = version;
    EXPECT_TRUE(Has(GdsDriver::Open(options).status(), StrCat("its version is ", version)));
  }
  EXPECT_EQ(fake.calls, "");
  fake.version = 1189;
  EXPECT_TRUE(GdsDriver::Open(options).ok());
}

TEST_F(GdsTest, TheLibraryAloneMakesNothingAvailable) {
  const Status status = GdsDriver::Open(options).status();
  EXPECT_EQ(status.code(), Code::kRouteUnavailable);
  EXPECT_EQ(status.domain(), Domain::kGds);
  EXPECT_EQ(status.native(), 5001);
  EXPECT_FALSE(fake.allow_compat);
  EXPECT_FALSE(fake.force_compat);
  EXPECT_EQ(fake.calls, "open ");  // and no close of what never opened
}

TEST_F(GdsTest, ADriverThatOpensWithoutEvidenceIsClosedAgain) {
  fake.bounces = true;
  EXPECT_TRUE(Has(GdsDriver::Open(options).status(), "its driver opened, but nothing proves one (nvidia-fs 0.0"));
  fake.nvidia_fs = true;  // the library says so, the kernel does not
  EXPECT_TRUE(Has(GdsDriver::Open(options).status(), "nvidia-fs missing, dstatusflags 16"));
  HaveNvidiaFs();
  fake.nvidia_fs = false;  // the kernel says so, the library does not
  EXPECT_TRUE(Has(GdsDriver::Open(options).status(), "nvidia-fs there, dstatusflags 0"));
  EXPECT_EQ(fake.calls, "open -open open -open open -open ");
}

TEST_F(GdsTest, ReadsByNvidiaFsAndProvesIt) {
  HaveNvidiaFs();
  {
    const SharedGdsDriver driver = Driver();
    EXPECT_EQ(driver->expected().path, GdsPath::kNvidiaFs);
    const GdsReads before = *driver->CountReads();
    ASSERT_TRUE(ReadAll(driver).ok());
    EXPECT_EQ(memory, content);
    const Result<GdsEvidence> evidence = driver->PathSince(before);
    ASSERT_TRUE(evidence.ok()) << evidence.status().message();
    EXPECT_EQ(GdsPathName(evidence->path), "nvidia-fs");
    EXPECT_EQ(evidence->text.find("1 reads by nvidia-fs, 0 by P2PDMA, 0 through host memory; nvidia-fs 2.26, "), 0U)
        << evidence->text;
    EXPECT_FALSE(fake.asked_for_p2pdma);
  }
  EXPECT_EQ(fake.calls, "open file buffer -buffer -file -open ");
}

TEST_F(GdsTest, ReadsByP2pDmaAndProvesIt) {
  fake.p2pdma = true;
  const SharedGdsDriver driver = Driver();
  EXPECT_TRUE(fake.asked_for_p2pdma);
  EXPECT_EQ(driver->expected().path, GdsPath::kP2pDma);
  const GdsReads before = *driver->CountReads();
  ASSERT_TRUE(ReadAll(driver).ok());
  EXPECT_EQ(GdsPathName(driver->PathSince(before)->path), "p2pdma");
}

TEST_F(GdsTest, ADriverThatBouncesIsFoundOut) {
  HaveNvidiaFs();
  const SharedGdsDriver driver = Driver();
  GdsReads before = *driver->CountReads();
  ASSERT_TRUE(ReadAll(driver).ok());
  fake.bounces = true;
  ASSERT_TRUE(ReadAll(driver).ok());  // one of two reads
  const Status bounced = driver->PathSince(before).status();
  EXPECT_EQ(bounced.code(), Code::kRouteUnavailable);
  EXPECT_TRUE(Has(bounced, "a silently bouncing driver (1 reads by nvidia-fs, 0 by P2PDMA, 1 through host memory"))
      << bounced.message();

  fake.bounces = fake.counts = false;
  before = *driver->CountReads();
  ASSERT_TRUE(ReadAll(driver).ok());
  EXPECT_TRUE(Has(driver->PathSince(before).status(), "its statistics counted no read"));
  fake.stats_error = 5022;
  EXPECT_EQ(driver->PathSince(before).status().native(), 5022);
}

TEST_F(GdsTest, CompatibleModeOfATestIsNeverCalledGds) {
  HaveNvidiaFs();
  options.allow_compat = true;
  const SharedGdsDriver driver = Driver();
  EXPECT_TRUE(fake.force_compat);
  EXPECT_EQ(driver->expected().path, GdsPath::kCompat);
  const GdsReads before = *driver->CountReads();
  ASSERT_TRUE(ReadAll(driver).ok());
  EXPECT_EQ(memory, content);
  EXPECT_EQ(GdsPathName(driver->PathSince(before)->path), "compat");
}

TEST_F(GdsTest, ShortReadsGoOnAndTheEndOfTheFileIsSaid) {
  HaveNvidiaFs();
  fake.longest_read = kMiB + 512;
  fake.interrupted_reads = 2;
  const SharedGdsDriver driver = Driver();
  ASSERT_TRUE(ReadAll(driver).ok());
  EXPECT_EQ(memory, content);

  const GdsFile file = *File(driver);
  const GdsBuffer buffer = *GdsBuffer::Register(driver, Memory());
  EXPECT_TRUE(file.Read(buffer, 3, 5, 0).ok());
  ASSERT_TRUE(file.Read(buffer, 3, 5, 100).ok());
  EXPECT_TRUE(std::equal(memory.begin() + 3, memory.begin() + 103, content.begin() + 5));
  const Status status = file.Read(buffer, 0, kFileBytes - 100, 101);
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_EQ(status.message(), StrCat("read 101 bytes at offset ", kFileBytes - 100,
                                     " of blob by cuFile: the file ends after 100 of them"));
}

TEST_F(GdsTest, WhatDoesNotFitIsRegisteredInHalves) {
  HaveNvidiaFs();
  fake.largest_buffer = kMiB;
  const SharedGdsDriver driver = Driver();
  const GdsFile file = *File(driver);
  const GdsBuffer buffer = *GdsBuffer::Register(driver, Memory(), 64 * kKiB);
  EXPECT_GT(buffer.pieces(), 8U);
  uint64_t covered = 0;
  while (covered < kFileBytes) {
    const GdsBuffer::Place place = buffer.At(covered);
    EXPECT_EQ(place.offset, 0U);
    EXPECT_TRUE(covered == 0 || IsAligned(reinterpret_cast<uint64_t>(place.base), 64 * kKiB));
    covered += place.nbytes;
  }
  EXPECT_EQ(covered, kFileBytes);
  ASSERT_TRUE(file.Read(buffer, 0, 0, kFileBytes).ok());
  EXPECT_EQ(memory, content);
}

TEST_F(GdsTest, WhatDoesNotFitInTheSmallestPiecesIsRefusedWithNothingLeftRegistered) {
  HaveNvidiaFs();
  const SharedGdsDriver driver = Driver();
  fake.all_buffers = 4 * kMiB + 512 * kKiB;
  const Status status = GdsBuffer::Register(driver, Memory(), kMiB).status();
  EXPECT_EQ(status.code(), Code::kRouteUnavailable);
  EXPECT_EQ(status.native(), 5036);
  EXPECT_TRUE(Has(status, StrCat("register ", kFileBytes, " bytes of device memory at address "))) << status.message();
  EXPECT_EQ(fake.calls, "open buffer -buffer ");
  fake.all_buffers = kFileBytes;
  EXPECT_EQ(GdsBuffer::Register(driver, Memory())->pieces(), 1U);
}

TEST_F(GdsTest, OnlyLackOfRoomMakesHalves) {
  HaveNvidiaFs();
  const SharedGdsDriver driver = Driver();
  fake.buffer_error = 5012;
  const Status status = GdsBuffer::Register(driver, Memory(), 64 * kKiB).status();
  EXPECT_EQ(status.native(), 5012);
  EXPECT_TRUE(
      Has(status, StrCat(kFileBytes, " bytes of device memory at address ", Memory().address, ": cuFile error")))
      << status.message();
}

TEST_F(GdsTest, AFileMustBeOpenedForDirectReads) {
  HaveNvidiaFs();
  const SharedGdsDriver driver = Driver();
  EXPECT_TRUE(Has(File(driver, 0).status(), "register blob with cuFile: it was opened without O_DIRECT"));
  EXPECT_EQ(GdsFile::Register(driver, UniqueFd(), "none").status().native(), EBADF);
  EXPECT_EQ(fake.calls, "open ");
}

// Every call that can fail, with every number of the table.
TEST_F(GdsTest, EveryErrorOfEveryCallKeepsItsNumberAndCause) {
  HaveNvidiaFs();
  struct Call {
    int FakeCufile::* error;
    Code code;
    std::string doing;
  };
  const Call calls[] = {
      {&FakeCufile::version_error, Code::kRouteUnavailable, "for its version"},
      {&FakeCufile::parameter_error, Code::kRouteUnavailable, "refuse compatible mode"},
      {&FakeCufile::open_error, Code::kRouteUnavailable, "open cuFile's driver"},
      {&FakeCufile::properties_error, Code::kRouteUnavailable, "driver's properties"},
      {&FakeCufile::file_error, Code::kRouteUnavailable, "register blob"},
      {&FakeCufile::buffer_error, Code::kRouteUnavailable, "register "},
      {&FakeCufile::read_error, Code::kIo, StrCat("read ", kFileBytes, " bytes at offset 0 of blob")},
  };
  for (const Call& call : calls) {
    for (const GdsErrorGroup& group : GdsErrorGroups()) {
      for (const int number : group.numbers) {
        fake.*call.error = number;
        const Result<SharedGdsDriver> driver = GdsDriver::Open(options);
        const Status status = driver.ok() ? ReadAll(*driver) : driver.status();
        EXPECT_EQ(status.code(), call.code);
        EXPECT_EQ(status.domain(), Domain::kGds);
        EXPECT_EQ(status.native(), number);
        EXPECT_TRUE(Has(status, call.doing) && Has(status, group.cause)) << status.message();
        EXPECT_EQ(status.remedy(), group.remedy);
      }
    }
    fake.*call.error = 0;
  }
  fake.read_errno = EIO;
  const Status status = ReadAll(Driver());
  EXPECT_EQ(status.domain(), Domain::kErrno);
  EXPECT_EQ(status.native(), EIO);
}

TEST_F(GdsTest, KeepsTheLibrarysLogOutOfTheWorkingDirectory) {
  HaveNvidiaFs();
  ::unsetenv("CUFILE_LOGFILE_PATH");
  Driver();
  EXPECT_EQ(fake.log_path, "/dev/null");
  EXPECT_EQ(std::getenv("CUFILE_LOGFILE_PATH"), nullptr);
  ::setenv("CUFILE_LOGFILE_PATH", "mine.log", 1);
  Driver();
  EXPECT_EQ(fake.log_path, "mine.log");
  EXPECT_STREQ(std::getenv("CUFILE_LOGFILE_PATH"), "mine.log");
  ::unsetenv("CUFILE_LOGFILE_PATH");
}

TEST_F(GdsTest, AForkedChildIsRefusedAndLeavesItsParentsRegistrationsAlone) {
  HaveNvidiaFs();
  SharedGdsDriver driver = Driver();
  std::optional<GdsFile> file = *File(driver);
  std::optional<GdsBuffer> buffer = *GdsBuffer::Register(driver, Memory());
  EXPECT_TRUE(HoldsInChild([&] {
    fake.calls.clear();
    const Status refused = file->Read(*buffer, 0, 0, 10);
    const bool all = refused.code() == Code::kRouteUnavailable && Has(refused, "before the fork") &&
                     !driver->CountReads().ok() && !File(driver).ok() && !GdsBuffer::Register(driver, Memory()).ok();
    buffer.reset();
    file.reset();
    driver.reset();
    return all && fake.calls.empty();
  }));
  EXPECT_TRUE(file->Read(*buffer, 0, 0, 10).ok());
}

TEST_F(GdsTest, TheProcesssDriverIsOpenedOnceByWhicheverThreadComesFirst) {
  HaveNvidiaFs();
  fake.open_ms = 50;  // the others come in the meantime
  EXPECT_TRUE(HoldsInChild([&] {
    std::vector<Result<SharedGdsDriver>> got(8, Status(Code::kInternal, "never asked"));
    std::vector<std::thread> threads;
    for (auto& each : got) threads.emplace_back([&] { each = GdsDriver::Get(options); });
    for (std::thread& thread : threads) thread.join();
    bool same = true;
    for (const auto& each : got) same = same && each.ok() && *each == *got[0];
    const bool only_child = HoldsInChild([&] { return Has(GdsDriver::Get(options).status(), "before the fork"); });
    GdsOptions other = options;
    other.allow_compat = true;
    return same && only_child && fake.calls == "open " && Has(GdsDriver::Get(other).status(), "with other options");
  }));
}

TEST_F(GdsTest, TheProcesssDriverDoesNotComeBackFromAFailure) {
  fake.open_error = 5001;
  EXPECT_TRUE(HoldsInChild([&] {
    const int first = GdsDriver::Get(options).status().native();
    fake.open_error = 0;
    HaveNvidiaFs();
    return first == 5001 && GdsDriver::Get(options).status().native() == 5001 && fake.calls == "open ";
  }));
}

}  // namespace
}  // namespace coldsnap
