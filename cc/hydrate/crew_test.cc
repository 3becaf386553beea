#include "cc/hydrate/crew.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "cc/testing/end_child.h"

namespace coldsnap {
namespace {

TEST(CrewTest, EveryMemberWorksOnceAndOnTheSameThreadAgain) {
  Crew crew;
  ASSERT_TRUE(crew.Grow(4).ok());
  std::vector<std::thread::id> first(4);
  std::vector<std::thread::id> second(4);
  crew.Run(4, [&](int member) { first[static_cast<size_t>(member)] = std::this_thread::get_id(); }, [] {});
  crew.Run(4, [&](int member) { second[static_cast<size_t>(member)] = std::this_thread::get_id(); }, [] {});
  EXPECT_EQ(first, second);
  EXPECT_EQ(std::set(first.begin(), first.end()).size(), 4U);
  EXPECT_FALSE(std::set(first.begin(), first.end()).contains(std::this_thread::get_id()));
}

TEST(CrewTest, FewerThanThereAreWorkAlone) {
  Crew crew;
  ASSERT_TRUE(crew.Grow(5).ok());
  std::atomic<int> worked = 0;
  crew.Run(2, [&](int member) { worked += member + 1; }, [] {});
  EXPECT_EQ(worked, 3);
  crew.Run(5, [&](int) { worked += 100; }, [] {});
  EXPECT_EQ(worked, 503);
  crew.Run(0, [&](int) { worked = 0; }, [] {});
  EXPECT_EQ(worked, 503);
}

TEST(CrewTest, TheCallerIsCalledWhileTheyWork) {
  Crew crew;
  ASSERT_TRUE(crew.Grow(1).ok());
  std::atomic<bool> called = false;
  std::thread::id where;
  const auto wait = [&](int) {
    while (!called) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  crew.Run(1, wait, [&] {
    where = std::this_thread::get_id();
    called = true;
  });
  EXPECT_EQ(where, std::this_thread::get_id());
}

TEST(CrewTest, ANodeThatIsNotThereIsSaidAndStopsNothing) {
  Crew crew;
  ASSERT_TRUE(crew.Grow(2, 1000).ok());
  EXPECT_FALSE(crew.placement().ok());  // before any work, too: the receipt's reasons are written then
  std::atomic<int> worked = 0;
  crew.Run(2, [&](int) { ++worked; }, [] {});
  EXPECT_EQ(worked, 2);
  EXPECT_FALSE(crew.placement().ok());
  EXPECT_NE(crew.placement().message().find("1000"), std::string::npos) << crew.placement().message();
}

TEST(CrewTest, AForkedChildCanDestroyIt) {
  auto crew = std::make_unique<Crew>();
  ASSERT_TRUE(crew->Grow(3).ok());
  crew->Run(3, [](int) {}, [] {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // so that they wait for the next round
  const pid_t child = ::fork();
  if (child == 0) {
    crew.reset();
    EndChild(7);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(CrewTest, AChildThatComesBackFromACallbackEnds) {
  Crew crew;
  ASSERT_TRUE(crew.Grow(1).ok());
  std::atomic<pid_t> child = 0;
  const auto wait = [&](int) {
    while (child == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  crew.Run(1, wait, [&] {
    if (child == 0) child = ::fork();  // and back in both
  });
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), EXIT_FAILURE);
}

}  // namespace
}  // namespace coldsnap
