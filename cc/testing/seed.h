// The seed of what a test draws at random: the test's own, so that every run is the same, or another one from outside.
#pragma once

#include <cstdint>

namespace coldsnap {

// The number in COLDSNAP_TEST_SEED, which //tests:soak sets; without it, `usual`. Printed, so that a failure's log has
// it. What is no number there ends the process.
uint64_t TestSeed(uint64_t usual);

}  // namespace coldsnap
