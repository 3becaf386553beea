// A tool that NVTX loads sees what each thread of a restore does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>

#include "cc/hydrate/hydrate.h"
#include "cc/testing/test_artifact.h"
#include "cc/testing/test_device.h"

namespace coldsnap {
namespace {

using testing::IsSupersetOf;

// NVTX looks for its tool once in a process, so this program has one test.
TEST(NvtxTest, AToolSeesTheStagesOfARestoreAndEveryRangeEnds) {
  const int notes = ::memfd_create("notes", 0);
  ASSERT_GE(notes, 0);
  ASSERT_EQ(::setenv("NVTX_LISTENER_FD", std::to_string(notes).c_str(), 1), 0);
  ASSERT_EQ(::setenv("NVTX_INJECTION64_PATH", "cc/testing/nvtx_listener/libnvtx_listener.so", 1), 0);

  TestDevice device;
  const TestArtifact files({3 * kLeafBytes, 100});
  const OpenArtifact artifact = files.Open();
  const auto destinations = files.Allocate(artifact, device);
  const HydrateOptions options{.backend = Backend::kBuffered, .place = Place::kBoth};
  ASSERT_TRUE(Hydrate(artifact, TargetsOf(destinations), device.gpu(), options).ok());

  std::string text(static_cast<size_t>(::lseek(notes, 0, SEEK_END)), '\0');
  ASSERT_EQ(::pread(notes, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  std::multiset<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.insert(line);
  EXPECT_THAT(lines, IsSupersetOf({"+open", "+ring", "+move", "+publish", "+read", "+digest", "+send", "+drain",
                                   "+let the device hash", "+wait for digests"}));
  EXPECT_EQ(2 * lines.count("-"), lines.size());  // each that was opened was closed
}

}  // namespace
}  // namespace coldsnap
