#include "cc/sys/numa.h"

#include <linux/filter.h>
#include <linux/mempolicy.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <string>
#include <thread>

#include "cc/base/units.h"
#include "cc/sys/fake_system.h"
#include "cc/sys/memory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace coldsnap {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Optional;

TEST(CpuListTest, ReadsWhatTheKernelWrites) {
  EXPECT_THAT(*ParseCpuList("0-3,8,10-11\n"), ElementsAre(0, 1, 2, 3, 8, 10, 11));
  EXPECT_THAT(*ParseCpuList("7"), ElementsAre(7));
  EXPECT_THAT(*ParseCpuList("\n"), IsEmpty());
  EXPECT_EQ(ParseCpuList("0-8191\n")->size(), 8192U);
}

TEST(CpuListTest, RefusesTheRest) {
  for (const std::string text :
       {"x", "1-", "-1", "3-1", "0-8192", "5,4", "0-2,2", "0-3:2", "0 1", "99999999999999999999"}) {
    const Result<std::vector<int>> cpus = ParseCpuList(text);
    EXPECT_FALSE(cpus.ok()) << text;
    EXPECT_THAT(cpus.status().message(), HasSubstr("read a list of processors"));
  }
}

// Two nodes, of which the second has 8 processors, and a card on it.
class NumaTest : public testing::Test {
 protected:
  NumaTest() {
    system_.Write("/sys/devices/system/node/online", "0-1\n");
    system_.Write("/sys/devices/system/node/node1/cpulist", "8-15\n");
    Card("1\n");
  }
  void Card(const std::string& node) { system_.Write("/sys/bus/pci/devices/0000:1b:00.0/numa_node", node); }
  Result<std::optional<int>> NodeOf(std::string_view bus_id) { return NodeOfPciDevice(bus_id, system_.root()); }

  FakeSystem system_;
};

TEST_F(NumaTest, FindsTheNodeHoweverTheBusIdIsSpelt) {
  for (const char* bus_id : {"0000:1b:00.0", "0000:1B:00.0", "00000000:1B:00.0", "0:1b:0.0"}) {
    const Result<std::optional<int>> node = NodeOf(bus_id);
    ASSERT_TRUE(node.ok()) << node.status().message();
    EXPECT_THAT(*node, Optional(1)) << bus_id;
  }
  system_.Write("/sys/bus/pci/devices/10000:01:1f.7/numa_node", "0\n");
  EXPECT_THAT(*NodeOf("00010000:01:1F.7"), Optional(0));
}

TEST_F(NumaTest, WhatIsNoBusIdIsRefused) {
  for (const char* bus_id :
       {"", "1b:00.0", "0000:1b:00", "0000:1b:00.0 ", "0000:1b:00.8", "0000:1b:20.0", "0000:100:00.0", "0000:1b:00.0.0",
        "../../x:1b:00.0", "-1:1b:00.0", "0000:1b:.0", "host"}) {
    const Result<std::optional<int>> node = NodeOf(bus_id);
    ASSERT_FALSE(node.ok()) << bus_id;
    EXPECT_EQ(node.status().code(), Code::kRequestInvalid);
    EXPECT_EQ(node.status().message(), StrCat("find the NUMA node of PCI device ", bus_id, ": that is no bus id"));
  }
}

TEST_F(NumaTest, FirmwareThatDoesNotSayGivesNone) {
  Card("-1\n");
  ASSERT_TRUE(NodeOf("0000:1b:00.0").ok());
  EXPECT_EQ(*NodeOf("0000:1b:00.0"), std::nullopt);
}

TEST_F(NumaTest, OneNodeGivesNoneAndLooksNoFurther) {
  system_.Write("/sys/devices/system/node/online", "0\n");
  Card("nonsense\n");
  ASSERT_TRUE(NodeOf("0000:1b:00.0").ok());
  EXPECT_EQ(*NodeOf("0000:1b:00.0"), std::nullopt);
}

TEST_F(NumaTest, ADeviceThatIsNotThereOrSaysNonsenseIsSaid) {
  EXPECT_THAT(NodeOf("0000:ff:00.0").status().message(),
              testing::AllOf(HasSubstr("PCI device 0000:ff:00.0"), HasSubstr("No such file")));
  for (const std::string text : {"", "x\n", "1 2\n", "1024\n", "-2\n"}) {
    Card(text);
    EXPECT_FALSE(NodeOf("0000:1b:00.0").ok()) << text;
  }
}

TEST_F(NumaTest, CountsNodes) {
  EXPECT_EQ(CountNodes(system_.root()), 2);
  system_.Write("/sys/devices/system/node/online", "0,2-3\n");
  EXPECT_EQ(CountNodes(system_.root()), 3);
  system_.Write("/sys/devices/system/node/online", "");
  EXPECT_EQ(CountNodes(system_.root()), 1);
  EXPECT_EQ(CountNodes(system_.root() + "/absent"), 1);
}

TEST_F(NumaTest, NodesHaveProcessors) {
  EXPECT_THAT(*CpusOfNode(1, system_.root()), ElementsAre(8, 9, 10, 11, 12, 13, 14, 15));
  system_.Write("/sys/devices/system/node/node2/cpulist", "\n");
  EXPECT_THAT(*CpusOfNode(2, system_.root()), IsEmpty());
  EXPECT_FALSE(CpusOfNode(3, system_.root()).ok());
}

// Each works on a thread of its own, whose mask and filters end with it.
void OnThread(const std::function<void()>& work) { std::thread(work).join(); }

void MaySetAffinityTo(int cpu) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  CPU_SET(cpu, &mask);
  ASSERT_EQ(::sched_setaffinity(0, sizeof(mask), &mask), 0);
}

TEST_F(NumaTest, AThreadStaysOnTheNode) {
  OnThread([&] {
    const std::vector<int> before = *OwnCpus();
    system_.Write("/sys/devices/system/node/node0/cpulist", StrCat(before.back(), "-8191\n"));
    const Status status = StayOnNode(0, system_.root());
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_THAT(*OwnCpus(), ElementsAre(before.back()));
  });
}

TEST_F(NumaTest, AMaskIsNeverWidened) {
  OnThread([&] {
    const int only = OwnCpus()->front();
    MaySetAffinityTo(only);
    system_.Write("/sys/devices/system/node/node0/cpulist", "0-8191\n");
    ASSERT_TRUE(StayOnNode(0, system_.root()).ok());
    EXPECT_THAT(*OwnCpus(), ElementsAre(only));
  });
}

TEST_F(NumaTest, ANodeWithNoneOfItsProcessorsChangesNothing) {
  OnThread([&] {
    const std::vector<int> before = *OwnCpus();
    system_.Write("/sys/devices/system/node/node0/cpulist", "8190-8191\n");
    const Status status = StayOnNode(0, system_.root());
    EXPECT_EQ(status.code(), Code::kPolicyRefused);
    EXPECT_EQ(status.message(), StrCat("keep a thread on NUMA node 0: none of its 2 processors is among the ",
                                       before.size(), " that this thread may use"));
    EXPECT_EQ(*OwnCpus(), before);
  });
}

TEST_F(NumaTest, ANodeThatIsNotThereIsSaid) {
  const Status status = StayOnNode(9, system_.root());
  EXPECT_THAT(status.message(), HasSubstr("keep a thread on NUMA node 9: open "));
}

struct Policy {
  int mode = -1;
  unsigned long nodes = 0;
};
Policy PolicyOf(const void* address) {
  Policy policy;
  std::array<unsigned long, kMaxNodes / 64> nodes{};
  if (::syscall(SYS_get_mempolicy, &policy.mode, nodes.data(), kMaxNodes, address, MPOL_F_ADDR) != 0) return {};
  policy.nodes = nodes[0];
  return policy;
}

class MemoryPolicyTest : public testing::Test {
 protected:
  void SetUp() override {
    if (PolicyOf(mapping_.get().address).mode < 0) {
      GTEST_SKIP() << "the system refuses get_mempolicy: " << std::generic_category().message(errno);
    }
  }
  Mapping mapping_ = *MapTouched(4 * kMiB);
};

TEST_F(MemoryPolicyTest, PlacesAMappingOnANode) {
  ASSERT_EQ(PolicyOf(mapping_.get().address).mode, MPOL_DEFAULT);
  const Status status = PreferNode(BytesOf(mapping_).subspan(2 * kMiB), 0);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(PolicyOf(mapping_.get().address).mode, MPOL_DEFAULT);  // the rest keeps its own
  const Policy policy = PolicyOf(&BytesOf(mapping_)[2 * kMiB]);
  EXPECT_EQ(policy.mode, MPOL_PREFERRED);
  EXPECT_EQ(policy.nodes, 1U);
}

TEST_F(MemoryPolicyTest, ANodeThatIsNotThereIsSaid) {
  for (const int node : {-1, 1023, 1024}) {
    const Status status = PreferNode(BytesOf(mapping_), node);
    EXPECT_THAT(status.message(), HasSubstr(StrCat("place 4194304 bytes on NUMA node ", node, ": ")));
  }
  EXPECT_EQ(PolicyOf(mapping_.get().address).mode, MPOL_DEFAULT);
}

// What Docker's default filter does without CAP_SYS_NICE, and what a filter that knows the call not at all does.
TEST_F(MemoryPolicyTest, ASystemThatRefusesIsSaidAndNothingElse) {
  for (const int error : {EPERM, ENOSYS}) {
    OnThread([&] {
      std::array<sock_filter, 4> filter{
          sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
          sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mbind, 0, 1),
          sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
          sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      };
      const sock_fprog program{filter.size(), filter.data()};
      ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
      ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
      const Status status = PreferNode(BytesOf(mapping_), 0);
      EXPECT_EQ(status.native(), error);
      EXPECT_THAT(status.message(), HasSubstr("place 4194304 bytes on NUMA node 0: "));
    });
  }
}

}  // namespace
}  // namespace coldsnap
