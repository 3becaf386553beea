#include "cc/sys/limits.h"

#include <map>
#include <string>

#include "cc/base/units.h"
#include "cc/sys/fake_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace coldsnap {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Optional;

// What containers show: a control group mounted as it is seen from inside (root "/") or from the host.
constexpr char kUnifiedMount[] = "30 20 0:26 / /sys/fs/cgroup ro,nosuid shared:4 - cgroup2 cgroup rw\n";
constexpr char kHybridMounts[] =
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,cpu,memory\n"  // options of another file system say nothing
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

class LimitsTest : public testing::Test {
 protected:
  void Groups(const std::string& membership, const std::string& mounts) {
    system_.Write("/proc/self/cgroup", membership);
    system_.Write("/proc/self/mountinfo", mounts);
  }
  // Files of the group at `path` below /sys/fs/cgroup.
  void Group(const std::string& path, const std::map<std::string, std::string>& files) {
    for (const auto& [name, text] : files) system_.Write("/sys/fs/cgroup" + path + "/" + name, text);
  }
  LimitSources Sources(int affinity_cpus = 16) {
    return {.root = system_.root(), .affinity_cpus = affinity_cpus, .environment = [this](const char* name) {
              const auto found = environment_.find(name);
              return found == environment_.end() ? nullptr : found->second.c_str();
            }};
  }
  Limits Read(int affinity_cpus = 16) { return ReadLimits(Sources(affinity_cpus)); }
  std::string PathOf(const std::string& path) { return system_.root() + "/sys/fs/cgroup" + path; }

  FakeSystem system_;
  std::map<std::string, std::string> environment_;
};

TEST_F(LimitsTest, AQuotaOfTwoProcessorsOnSixteenCoresGivesTwo) {
  Groups("0::/\n", kUnifiedMount);
  Group("", {{"cpu.max", "200000 100000\n"}});
  const Limits limits = Read(16);
  EXPECT_EQ(limits.affinity_cpus, 16);
  EXPECT_THAT(limits.cpu_quota, Optional(2.0));
  EXPECT_EQ(limits.usable_cpus, 2);
  EXPECT_EQ(limits.cpus_per_rank, 2);
  EXPECT_THAT(limits.notes, IsEmpty());
}

TEST_F(LimitsTest, PartsOfAProcessorAreRoundedUp) {
  const auto usable = [&](const std::string& quota, int affinity) {
    Groups("0::/\n", kUnifiedMount);
    Group("", {{"cpu.max", quota}});
    return Read(affinity).usable_cpus;
  };
  EXPECT_EQ(usable("1000 100000\n", 4), 1);
  EXPECT_EQ(usable("250000 100000\n", 4), 3);
  EXPECT_EQ(usable("300000 100000\n", 4), 3);
  EXPECT_EQ(usable("150000 50000\n", 4), 3);
  EXPECT_EQ(usable("900000 100000\n", 4), 4);  // the mask is tighter
  EXPECT_EQ(usable("18446744073709551615 1\n", 4), 4);
  EXPECT_EQ(usable("max 100000\n", 4), 4);
}

TEST_F(LimitsTest, ATighterParentCounts) {
  Groups("0::/kubepods/pod1/ctr\n", kUnifiedMount);
  Group("/kubepods/pod1/ctr", {{"cpu.max", "max 100000\n"}, {"memory.max", "max\n"}});
  Group("/kubepods/pod1", {{"cpu.max", "300000 100000\n"}, {"memory.max", "8589934592\n"}, {"memory.current", "0\n"}});
  Group("/kubepods",
        {{"cpu.max", "800000 100000\n"}, {"memory.max", "9000000000\n"}, {"memory.current", "5000000000\n"}});
  const Limits limits = Read();
  EXPECT_EQ(limits.usable_cpus, 3);
  EXPECT_THAT(limits.memory_headroom_bytes, Optional(4000000000U));  // less is left of the larger limit
  EXPECT_EQ(limits.memory_source, PathOf("/kubepods/memory.max"));
}

TEST_F(LimitsTest, ThePageCacheCountsAsFree) {
  Groups("0::/\n", kUnifiedMount);
  Group("", {{"memory.max", "1000000\n"},
             {"memory.current", "900000\n"},
             {"memory.stat", "anon 1\nfile 700000\ninactive_anon 7\ninactive_file 400000\nactive_file 200000\n"}});
  EXPECT_THAT(Read().memory_headroom_bytes, Optional(700000U));
}

TEST_F(LimitsTest, MemoryHighCountsWhereItIsLower) {
  Groups("0::/\n", kUnifiedMount);
  Group("", {{"memory.max", "1000000\n"}, {"memory.high", "600000\n"}, {"memory.current", "100000\n"}});
  const Limits limits = Read();
  EXPECT_THAT(limits.memory_headroom_bytes, Optional(500000U));
  EXPECT_EQ(limits.memory_source, PathOf("/memory.high"));
  Group("", {{"memory.high", "1000001\n"}});
  EXPECT_EQ(Read().memory_source, PathOf("/memory.max"));
}

TEST_F(LimitsTest, NothingIsLeftWhereMoreThanTheLimitIsUsed) {
  Groups("0::/\n", kUnifiedMount);
  Group("", {{"memory.max", "1000\n"}, {"memory.current", "5000\n"}});
  EXPECT_THAT(Read().memory_headroom_bytes, Optional(0U));
}

TEST_F(LimitsTest, NoLimitIsNoHeadroom) {
  Groups("0::/\n", kUnifiedMount);
  Group("",
        {{"cpu.max", "max 100000\n"}, {"memory.max", "max\n"}, {"memory.high", "max\n"}, {"memory.current", "5\n"}});
  const Limits limits = Read();
  EXPECT_EQ(limits.cpu_quota, std::nullopt);
  EXPECT_EQ(limits.memory_headroom_bytes, std::nullopt);
  EXPECT_EQ(limits.memory_source, "");
  EXPECT_THAT(limits.notes, IsEmpty());
}

TEST_F(LimitsTest, TheRootGroupHasNoFilesAndThatIsNothingToSpeakOf) {
  Groups("0::/\n", kUnifiedMount);
  Group("", {{"cgroup.procs", "1\n"}});
  const Limits limits = Read();
  EXPECT_EQ(limits.usable_cpus, 16);
  EXPECT_THAT(limits.notes, IsEmpty());
}

TEST_F(LimitsTest, Version1SeenFromTheHost) {
  Groups("4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n",
         "36 31 0:29 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
         "39 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  Group("/cpu,cpuacct", {{"cpu.cfs_quota_us", "150000\n"}, {"cpu.cfs_period_us", "100000\n"}});
  Group("/memory", {{"memory.limit_in_bytes", "1000000\n"},
                    {"memory.usage_in_bytes", "800000\n"},
                    {"memory.stat", "inactive_file 1\ntotal_inactive_file 300000\ntotal_active_file 100000\n"}});
  const Limits limits = Read();
  EXPECT_THAT(limits.cpu_quota, Optional(1.5));
  EXPECT_EQ(limits.usable_cpus, 2);
  EXPECT_THAT(limits.memory_headroom_bytes, Optional(600000U));
  EXPECT_THAT(limits.notes, IsEmpty());
}

TEST_F(LimitsTest, Version1WithoutLimits) {
  Groups("4:memory:/\n2:cpu,cpuacct:/\n", kHybridMounts);
  Group("/cpu,cpuacct", {{"cpu.cfs_quota_us", "-1\n"}, {"cpu.cfs_period_us", "100000\n"}});
  Group("/memory", {{"memory.limit_in_bytes", "9223372036854771712\n"}, {"memory.usage_in_bytes", "800000\n"}});
  const Limits limits = Read();
  EXPECT_EQ(limits.usable_cpus, 16);
  EXPECT_EQ(limits.memory_headroom_bytes, std::nullopt);
  EXPECT_THAT(limits.notes, IsEmpty());
}

TEST_F(LimitsTest, HybridTakesEachControllerFromItsVersion) {
  Groups("0::/s\n2:cpu,cpuacct:/a/b\n1:name=systemd:/a/b\n", kHybridMounts);
  Group("/cpu,cpuacct/a", {{"cpu.cfs_quota_us", "200000\n"}, {"cpu.cfs_period_us", "100000\n"}});
  Group("/cpu,cpuacct/a/b", {{"cpu.cfs_quota_us", "-1\n"}, {"cpu.cfs_period_us", "100000\n"}});
  Group("/unified/s", {{"memory.max", "5000\n"}, {"memory.current", "1000\n"}, {"cpu.max", "100000 100000\n"}});
  const Limits limits = Read();
  EXPECT_EQ(limits.usable_cpus, 2);
  EXPECT_THAT(limits.memory_headroom_bytes, Optional(4000U));
  EXPECT_THAT(limits.notes, IsEmpty());
}

TEST_F(LimitsTest, MountsWithBlanksAndSeveralViewsOfOneTree) {
  Groups("0::/mine\n",
         "30 20 0:26 /theirs /mnt/other ro - cgroup2 cgroup rw\n"
         "31 20 0:26 / /mnt/a\\040b ro - cgroup2 cgroup rw\n");
  system_.Write("/mnt/other/cpu.max", "100000 100000\n");
  system_.Write("/mnt/a b/mine/cpu.max", "200000 100000\n");
  const Limits limits = Read();
  EXPECT_EQ(limits.usable_cpus, 2);
  EXPECT_THAT(limits.notes, IsEmpty());
}

TEST_F(LimitsTest, AGroupThatIsNotShownIsBoundByWhatIs) {
  Group("ium/ctr", {{"cpu.max", "100000 100000\n"}});  // "/podium" merely begins like "/pod"
  system_.Write("/sys/fs/elsewhere/cpu.max", "100000 100000\n");
  const auto shown = [&](const std::string& group, const std::string& mounted) {
    Groups("0::" + group + "\n", "30 20 0:26 " + mounted + " /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
    Group("", {{"cpu.max", "400000 100000\n"}});
    const Limits limits = Read();
    EXPECT_EQ(limits.usable_cpus, 4) << group;
    EXPECT_THAT(limits.notes, ElementsAre(HasSubstr("group " + group + " (cpu) is not to be found below " + PathOf("")),
                                          HasSubstr("group " + group + " (memory)")));
  };
  shown("/podium/ctr", "/pod");
  shown("/../elsewhere", "/");  // outside of this cgroup namespace
  shown("/", "/..");            // mounted before the namespace was made
  shown("/gone", "/");
}

TEST_F(LimitsTest, WhatIsMountedNowhereIsUnknownAndSaid) {
  Groups("4:memory:/x\n2:cpu:/x\n", kUnifiedMount);
  const Limits limits = Read();
  EXPECT_EQ(limits.usable_cpus, 16);
  EXPECT_THAT(limits.notes, ElementsAre("control group /x (cpu) is mounted nowhere here; its limits are unknown",
                                        "control group /x (memory) is mounted nowhere here; its limits are unknown"));
}

TEST_F(LimitsTest, AKernelWithoutGroupsLimitsNothing) {
  Groups("", "");
  EXPECT_EQ(Read(3).usable_cpus, 3);
  EXPECT_THAT(Read().notes, IsEmpty());
}

TEST_F(LimitsTest, WithoutProcItSaysSoOnce) {
  const Limits limits = Read(3);
  EXPECT_EQ(limits.usable_cpus, 3);
  EXPECT_EQ(limits.memory_headroom_bytes, std::nullopt);
  EXPECT_THAT(limits.notes, ElementsAre("open " + system_.root() +
                                        "/proc/self/cgroup: No such file or directory; the "
                                        "limits of control groups are unknown"));
}

TEST_F(LimitsTest, NonsenseIsUnknownAndSaid) {
  for (const std::string text : {"", "many 100000\n", "1\n", "100 0\n", "0 100000\n", "1 2 3\n", "-5 100000\n"}) {
    Groups("0::/\n", kUnifiedMount);
    Group("", {{"cpu.max", text}, {"memory.max", "12 GiB\n"}});
    const Limits limits = Read();
    EXPECT_EQ(limits.usable_cpus, 16) << text;
    EXPECT_EQ(limits.memory_headroom_bytes, std::nullopt);
    EXPECT_THAT(limits.notes, ElementsAre(HasSubstr("read " + PathOf("/cpu.max") + ": \""), HasSubstr("\"12 GiB\"")));
  }
}

TEST_F(LimitsTest, AFileThatCannotBeReadIsUnknownAndSaid) {
  Groups("0::/\n", kUnifiedMount);
  Group("/cpu.max", {{"x", ""}});  // a folder opens and can't be read, by whomever
  Group("", {{"memory.max", "5000\n"}});
  Group("/memory.current", {{"x", ""}});
  const Limits limits = Read();
  EXPECT_EQ(limits.usable_cpus, 16);
  EXPECT_THAT(limits.memory_headroom_bytes, Optional(5000U));  // the limit itself still holds
  EXPECT_THAT(limits.notes, ElementsAre("read " + PathOf("/cpu.max") + ": Is a directory; this limit is unknown",
                                        HasSubstr("read " + PathOf("/memory.current") + ": Is a directory")));
}

TEST_F(LimitsTest, RanksShareTheProcessors) {
  Groups("", "");
  environment_ = {{"SLURM_NTASKS_PER_NODE", "2"}};
  EXPECT_EQ(Read().local_ranks, 2);
  environment_["LOCAL_WORLD_SIZE"] = "5";
  const Limits limits = Read();
  EXPECT_EQ(limits.local_ranks, 5);
  EXPECT_EQ(limits.local_ranks_source, "LOCAL_WORLD_SIZE");
  EXPECT_EQ(limits.usable_cpus, 16);
  EXPECT_EQ(limits.cpus_per_rank, 3);
  EXPECT_EQ(Read(4).cpus_per_rank, 1);
}

TEST_F(LimitsTest, EachStarterHasItsVariable) {
  Groups("", "");
  for (const std::string name :
       {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE", "MV2_COMM_WORLD_LOCAL_SIZE"}) {
    environment_ = {{name, "8"}};
    EXPECT_EQ(Read().local_ranks, 8) << name;
    EXPECT_EQ(Read().local_ranks_source, name);
  }
}

TEST_F(LimitsTest, ABadNumberOfRanksIsIgnoredAndSaid) {
  Groups("", "");
  for (const std::string text : {"0", "-1", "many", "1025", "8 ", "2(x3)", "99999999999999999999"}) {
    environment_ = {{"LOCAL_WORLD_SIZE", text}, {"MV2_COMM_WORLD_LOCAL_SIZE", "4"}, {"SLURM_NTASKS_PER_NODE", ""}};
    const Limits limits = Read();
    EXPECT_EQ(limits.local_ranks, 4);
    EXPECT_THAT(limits.notes,
                ElementsAre("read LOCAL_WORLD_SIZE: \"" + text + "\" is no number of ranks from 1 to 1024; ignored"));
  }
  environment_.clear();
  EXPECT_EQ(Read().local_ranks, 1);
  EXPECT_EQ(Read().local_ranks_source, "");
}

TEST_F(LimitsTest, ThrottlingIsAddedUpOverTheChain) {
  Groups("0::/a/b\n", kUnifiedMount);
  Group("/a/b", {{"cpu.stat", "usage_usec 9\nnr_periods 4\nnr_throttled 2\nthrottled_usec 1500000\n"}});
  Group("/a", {{"cpu.stat", "usage_usec 9\nthrottled_usec 250000\n"}});
  Group("", {{"cpu.stat", "usage_usec 9\n"}});
  EXPECT_THAT(ThrottledSeconds(Sources()), Optional(1.75));
}

TEST_F(LimitsTest, Version1CountsThrottlingInNanoseconds) {
  Groups("2:cpu,cpuacct:/\n", kHybridMounts);
  Group("/cpu,cpuacct", {{"cpu.stat", "nr_periods 4\nnr_throttled 2\nthrottled_time 2500000000\n"}});
  EXPECT_THAT(ThrottledSeconds(Sources()), Optional(2.5));
}

TEST_F(LimitsTest, WithoutACountNothingIsKnownOfThrottling) {
  EXPECT_EQ(ThrottledSeconds(Sources()), std::nullopt);
  Groups("0::/\n", kUnifiedMount);
  Group("", {{"cpu.stat", "usage_usec 9\n"}});
  EXPECT_EQ(ThrottledSeconds(Sources()), std::nullopt);
}

// py/coldsnap/limits_test.py compares the numbers; here only that the real files raise no doubt.
TEST(ThisMachineTest, HasLimitsThatAgreeWithEachOther) {
  const Limits limits = ReadLimits();
  for (const std::string& note : limits.notes) std::printf("note: %s\n", note.c_str());
  EXPECT_GE(limits.usable_cpus, 1);
  EXPECT_LE(limits.usable_cpus, limits.affinity_cpus);
  EXPECT_LE(limits.cpus_per_rank, limits.usable_cpus);
  EXPECT_EQ(limits.memory_headroom_bytes.has_value(), !limits.memory_source.empty());
}

}  // namespace
}  // namespace coldsnap
