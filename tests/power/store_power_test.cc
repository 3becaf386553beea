// A power cut while one artifact replaces another in a store: `current` names a whole artifact at every moment, the old
// or the new one, and none only before the first capture has returned.
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "cc/testing/seed.h"
#include "tests/power/cuts.h"
#include "tests/power/history.h"

namespace coldsnap {
namespace {

// The folder of the one identity that the store has.
const Tree* IdentityIn(const Tree& store) {
  for (const auto& [name, entry] : store.entries) {
    if (name.size() == 64) return &entry;
  }
  return nullptr;
}

// Which artifact is current by the text of `current`; none if the file is not there.
std::optional<std::string> CurrentOf(const Tree& identity) {
  const Tree* const file = identity.At("current");
  if (file == nullptr) return std::nullopt;
  constexpr std::string_view kBegin = R"({"artifact_root":")";
  constexpr std::string_view kEnd = R"(","format":1})";
  const std::string_view text = file->bytes;
  if (!text.starts_with(kBegin) || !text.ends_with(kEnd)) return "torn: " + file->bytes;
  return std::string(text.substr(kBegin.size(), text.size() - kBegin.size() - kEnd.size()));
}

class StorePowerTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { recorded_ = new Recorded(Record(PythonWriter("to-store-twice"))); }
  static void TearDownTestSuite() { delete recorded_; }
  void SetUp() override {
    if (!recorded_->why_not.empty()) GTEST_SKIP() << recorded_->why_not;
    ASSERT_EQ(recorded_->exit_code, 0);
    whole_ = IdentityIn(recorded_->left);
    ASSERT_NE(whole_, nullptr);
  }
  const History& history() const { return recorded_->history; }
  // After so many changes the n-th capture has returned.
  size_t Returned(const std::string& number) const {
    size_t count = 0;
    while (!Appears(history(), AllOf(count), "returned-" + number)) ++count;
    return count;
  }
  // What is wrong with a store; empty if nothing is.
  std::string Wrong(const Tree& store, bool wants_current) const {
    const Tree* const identity = IdentityIn(store);
    if (identity == nullptr) return wants_current ? "the identity's folder is gone" : "";
    for (const auto& [name, entry] : identity->entries) {
      const Tree* const whole = whole_->At(name);
      if (name.size() == 64 && (whole == nullptr || entry != *whole)) return "a torn artifact is there: " + name;
    }
    const std::optional<std::string> current = CurrentOf(*identity);
    if (!current) return wants_current ? "nothing is current" : "";
    return identity->At(*current) == nullptr ? "what is current is not there: " + *current : "";
  }

  static Recorded* recorded_;
  const Tree* whole_ = nullptr;
  std::mt19937_64 random_{TestSeed(20261129)};
};

Recorded* StorePowerTest::recorded_ = nullptr;

TEST_F(StorePowerTest, TheTracerSawAllThatWasDone) {
  EXPECT_EQ(TreeOf(history(), AllOf(history().changes.size())), recorded_->left);
  size_t artifacts = 0;
  for (const auto& [name, entry] : whole_->entries) artifacts += name.size() == 64 ? 1 : 0;
  EXPECT_EQ(artifacts, 2U);
}

TEST_F(StorePowerTest, WhatIsCurrentIsWholeAtEveryMoment) {
  const size_t first = Returned("1");
  const size_t second = Returned("2");
  const Tree before = TreeOf(history(), AllOf(first));
  ASSERT_NE(IdentityIn(before), nullptr);
  const std::string old_root = *CurrentOf(*IdentityIn(before));
  const std::string new_root = *CurrentOf(*whole_);
  ASSERT_NE(old_root, new_root);
  size_t states = 0;
  const auto seen = [&](const std::vector<bool>& kept) {
    const Tree left = TreeOf(history(), kept);
    const std::string wrong = Wrong(left, kept.size() >= first);
    EXPECT_EQ(wrong, "") << LostOf(history(), kept);
    if (wrong.empty() && kept.size() >= second) {
      EXPECT_EQ(CurrentOf(*IdentityIn(left)), new_root);
    }
    ++states;
    return wrong.empty();
  };
  EachState(history(), random_, [](size_t) { return true; }, seen);
  RecordProperty("states", std::to_string(states));
  EXPECT_GT(states, history().changes.size());
}

}  // namespace
}  // namespace coldsnap
