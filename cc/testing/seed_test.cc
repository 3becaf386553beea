// A seed from outside takes the place of a test's own, and nothing that is no number is taken for one.
#include "cc/testing/seed.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace coldsnap {
namespace {

class SeedTest : public testing::Test {
 protected:
  ~SeedTest() override { ::unsetenv("COLDSNAP_TEST_SEED"); }
};

TEST_F(SeedTest, IsTheTestsOwnUnlessAnotherIsGiven) {
  ::unsetenv("COLDSNAP_TEST_SEED");
  EXPECT_EQ(TestSeed(7), 7U);
  ::setenv("COLDSNAP_TEST_SEED", "18446744073709551615", 1);
  EXPECT_EQ(TestSeed(7), UINT64_MAX);
}

TEST_F(SeedTest, WhatIsNoNumberEndsTheProcess) {
  for (const char* const text : {"", "x", "7x", "-1", "18446744073709551616"}) {
    ::setenv("COLDSNAP_TEST_SEED", text, 1);
    EXPECT_DEATH(TestSeed(7), "seed.cc") << text;
  }
}

}  // namespace
}  // namespace coldsnap
