#include "cc/hydrate/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cc/hydrate/hydrate.h"
#include "cc/hydrate/open_artifact.h"
#include "cc/testing/interposed_gpu.h"
#include "cc/testing/test_artifact.h"
#include "cc/testing/test_device.h"
#include "rapidjson/document.h"

namespace coldsnap {
namespace {

using testing::AllOf;
using testing::AnyOfArray;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::Ge;
using testing::IsEmpty;
using testing::Le;
using testing::StartsWith;

std::vector<std::string> NamesOf(const std::vector<Trace::Span>& spans) {
  std::vector<std::string> names;
  for (const Trace::Span& span : spans) names.emplace_back(span.name);
  return names;
}

std::vector<Trace::Span> AllSpans(const Trace& trace) {
  std::vector<Trace::Span> all;
  for (const Trace::Thread& thread : trace.Threads()) all.insert(all.end(), thread.spans.begin(), thread.spans.end());
  return all;
}

std::vector<Trace::Span> SpansNamed(const Trace& trace, std::string_view name) {
  std::vector<Trace::Span> found = AllSpans(trace);
  std::erase_if(found, [&](const Trace::Span& span) { return span.name != name; });
  return found;
}

uint64_t BytesOf(const std::vector<Trace::Span>& spans) {
  return std::accumulate(spans.begin(), spans.end(), uint64_t{0},
                         [](uint64_t sum, const Trace::Span& span) { return sum + span.nbytes; });
}

std::vector<int64_t> WindowsOf(const std::vector<Trace::Span>& spans) {
  std::vector<int64_t> windows;
  for (const Trace::Span& span : spans) windows.push_back(span.window);
  std::sort(windows.begin(), windows.end());
  return windows;
}

TEST(TraceTest, SpansBeyondTheLimitAreCountedAndNotKept) {
  Trace trace(3);
  Trace::Track& one = trace.TrackOf(0, "read");
  Trace::Track& other = trace.TrackOf(1, "read");
  for (int i = 0; i < 2; ++i) one.Add({.name = "kept"});
  EXPECT_EQ(trace.dropped(), 0U);
  for (int i = 0; i < 3; ++i) other.Add({.name = "read"});
  EXPECT_EQ(AllSpans(trace).size(), 3U);
  EXPECT_EQ(trace.dropped(), 2U);
}

TEST(TraceTest, ThreadsStandInTheOrderOfTheirMembers) {
  Trace trace;
  trace.TrackOf(10, "read");
  trace.TrackOf(2, "send").Add({.name = "drain"});
  trace.TrackOf(Trace::kCaller, "caller");
  trace.TrackOf(2, "send").Add({.name = "send"});
  std::vector<std::string> names;
  for (const Trace::Thread& thread : trace.Threads()) names.push_back(thread.name);
  EXPECT_THAT(names, ElementsAre("caller", "send 2", "read 10"));
  EXPECT_THAT(NamesOf(trace.Threads()[1].spans), ElementsAre("drain", "send"));
}

TEST(TraceTest, AScopeEndsWhereTheNextBegins) {
  Trace trace;
  {
    SpanScope span(&trace.TrackOf(0, "read"), "one", 5, 7);
    span.AddBytes(2);
    span.Next("two");
    span.End();
    span.Next("never");
  }
  const std::vector<Trace::Span> spans = AllSpans(trace);
  ASSERT_THAT(NamesOf(spans), ElementsAre("one", "two"));
  EXPECT_EQ(spans[0].nbytes, 7U);
  EXPECT_EQ(spans[0].window, 7);
  EXPECT_EQ(spans[0].end_ns, spans[1].begin_ns);
  EXPECT_EQ(spans[1].nbytes, 0U);
  EXPECT_EQ(spans[1].window, Trace::kNoWindow);
}

TEST(TraceTest, ManyThreadsAddToOneTrackWhileItIsRead) {
  Trace trace;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 5000; ++j) trace.TrackOf(0, "read").Add({.name = "read", .nbytes = 1});
    });
  }
  EXPECT_THAT(trace.ToJson(), StartsWith("{"));
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(BytesOf(AllSpans(trace)), 20000U);
}

TEST(TraceTest, TheJsonHasWhatViewersLookFor) {
  Trace trace(1);
  trace.TrackOf(Trace::kCaller, R"(the "caller")");
  Trace::Track& track = trace.TrackOf(4, "read");
  track.Add({.name = "read", .begin_ns = 1'234'567'008, .end_ns = 1'234'572'019, .nbytes = 65536, .window = 3});
  track.Add({.name = "dropped"});
  rapidjson::Document document;
  const std::string text = trace.ToJson();
  ASSERT_FALSE(document.Parse(text.c_str()).HasParseError()) << text;
  EXPECT_STREQ(document["otherData"]["dropped_spans"].GetString(), "1");
  const rapidjson::Value& events = document["traceEvents"];
  ASSERT_EQ(events.Size(), 4U) << text;
  for (const rapidjson::Value& event : events.GetArray()) EXPECT_EQ(event["pid"].GetInt(), ::getpid());
  for (const unsigned thread : {1U, 2U}) {
    EXPECT_STREQ(events[thread]["ph"].GetString(), "M");
    EXPECT_STREQ(events[thread]["name"].GetString(), "thread_name");
    EXPECT_EQ(events[thread]["tid"].GetUint(), thread);
  }
  EXPECT_STREQ(events[1]["args"]["name"].GetString(), R"(the "caller")");
  EXPECT_STREQ(events[2]["args"]["name"].GetString(), "read 4");
  const rapidjson::Value& span = events[3];
  EXPECT_STREQ(span["ph"].GetString(), "X");
  EXPECT_STREQ(span["name"].GetString(), "read");
  EXPECT_EQ(span["tid"].GetUint(), 2U);
  EXPECT_DOUBLE_EQ(span["ts"].GetDouble(), 1234567.008);
  EXPECT_DOUBLE_EQ(span["dur"].GetDouble(), 5.011);
  EXPECT_EQ(span["args"]["bytes"].GetUint64(), 65536U);
  EXPECT_EQ(span["args"]["window"].GetInt(), 3);
}

class TracedRestoreTest : public testing::TestWithParam<Backend> {
 protected:
  HydrateOptions Options() {
    return {.backend = GetParam(), .chunk_bytes = kLeafBytes, .queue_depth = 3, .read_threads = 2, .trace = &trace_};
  }
  std::vector<Trace::Span> Stages() const { return trace_.Threads().at(0).spans; }
  TestDevice device_;
  TestArtifact files_{{9 * kLeafBytes + 5, 100, 700, 3 * kLeafBytes}};
  OpenArtifact artifact_ = files_.Open();
  std::vector<TestArtifact::Destination> destinations_ = files_.Allocate(artifact_, device_);
  Trace trace_;
};

TEST_P(TracedRestoreTest, EveryWindowIsReadAndSentWithEveryByte) {
  const int64_t begun = Trace::NowNs();
  const Result<HydrateReport> report = Hydrate(artifact_, TargetsOf(destinations_), device_.gpu(), Options());
  const int64_t ended = Trace::NowNs();
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_THAT(AllSpans(trace_),
              Each(AllOf(Field(&Trace::Span::begin_ns, Ge(begun)), Field(&Trace::Span::end_ns, Le(ended)))));
  for (const Trace::Span& span : AllSpans(trace_)) EXPECT_LE(span.begin_ns, span.end_ns) << span.name;

  const std::vector<Trace::Span> reads = SpansNamed(trace_, "read");
  const std::vector<Trace::Span> sends = SpansNamed(trace_, "send");
  std::vector<int64_t> every(sends.size());
  std::iota(every.begin(), every.end(), 0);
  EXPECT_GT(every.size(), 12U);
  EXPECT_EQ(WindowsOf(sends), every);
  EXPECT_EQ(WindowsOf(reads), every);  // windows are shorter than a block
  EXPECT_EQ(BytesOf(sends), report->payload_bytes);
  EXPECT_EQ(BytesOf(reads), report->read_bytes);
  EXPECT_EQ(BytesOf(SpansNamed(trace_, "digest")), report->payload_bytes);
}

TEST_P(TracedRestoreTest, TheCallersStagesFollowEachOther) {
  ASSERT_TRUE(Hydrate(artifact_, TargetsOf(destinations_), device_.gpu(), Options()).ok());
  const std::vector<Trace::Span> stages = Stages();
  ASSERT_THAT(NamesOf(stages), ElementsAre("open", "ring", "wait for streams", "move", "drain", "publish"));
  for (size_t i = 1; i < stages.size(); ++i) EXPECT_EQ(stages[i - 1].end_ns, stages[i].begin_ns) << stages[i].name;
  for (const Trace::Thread& thread : trace_.Threads()) {
    if (thread.name == "caller") continue;
    EXPECT_THAT(thread.spans, Each(AllOf(Field(&Trace::Span::begin_ns, Ge(stages[3].begin_ns)),
                                         Field(&Trace::Span::end_ns, Le(stages[3].end_ns)))))
        << thread.name;
  }
}

TEST_P(TracedRestoreTest, ThreadsDoWhatTheirNamesSay) {
  const std::map<std::string, std::vector<std::string>> work = {
      {"caller", {"open", "ring", "wait for streams", "move", "drain", "publish"}},
      {"read and send", {"wait for a slot", "read", "digest", "send", "drain"}},
      {"read", {"wait for a slot", "read"}},
      {"send", {"wait for a read", "digest", "send", "drain"}}};
  ASSERT_TRUE(Hydrate(artifact_, TargetsOf(destinations_), device_.gpu(), Options()).ok());
  std::set<std::string> roles;
  for (const Trace::Thread& thread : trace_.Threads()) {
    const std::string role = thread.name.substr(0, thread.name.find_last_of(' '));
    roles.insert(role);
    ASSERT_TRUE(work.contains(role)) << thread.name;
    EXPECT_THAT(NamesOf(thread.spans), Each(AnyOfArray(work.at(role)))) << thread.name;
  }
  using Roles = std::set<std::string>;
  EXPECT_EQ(roles,
            GetParam() == Backend::kDirect ? Roles({"caller", "read", "send"}) : Roles({"caller", "read and send"}));
}

TEST_P(TracedRestoreTest, AFailedRestoreLeavesItsSpans) {
  InterposedGpu gpu(device_.gpu(),
                    [](int copy) { return copy == 2 ? Status(Code::kCuda, "copy: injected") : Status::Ok(); });
  ASSERT_EQ(Hydrate(artifact_, TargetsOf(destinations_), gpu, Options()).status().code(), Code::kCuda);
  EXPECT_THAT(NamesOf(Stages()), ElementsAre("open", "ring", "wait for streams", "move", "drain", "poison"));
  EXPECT_GE(SpansNamed(trace_, "send").size(), 3U);
  EXPECT_GE(SpansNamed(trace_, "read").size(), 3U);
}

TEST_P(TracedRestoreTest, ARefusedRestoreLeavesWhereItStopped) {
  files_.Truncate(kLeafBytes);
  ASSERT_EQ(Hydrate(artifact_, TargetsOf(destinations_), device_.gpu(), Options()).status().code(), Code::kDataLoss);
  EXPECT_THAT(NamesOf(AllSpans(trace_)), ElementsAre("open"));
}

TEST_P(TracedRestoreTest, ARestoreWithoutATraceLeavesNone) {
  Hydrator hydrator(device_.gpu());
  HydrateOptions options = Options();
  options.trace = nullptr;
  ASSERT_TRUE(hydrator.Hydrate(artifact_, TargetsOf(destinations_), options).ok());
  EXPECT_THAT(trace_.Threads(), IsEmpty());
  ASSERT_TRUE(hydrator.Hydrate(artifact_, TargetsOf(destinations_), Options()).ok());
  const size_t spans = AllSpans(trace_).size();
  EXPECT_GT(spans, 0U);
  ASSERT_TRUE(hydrator.Hydrate(artifact_, TargetsOf(destinations_), options).ok());
  EXPECT_EQ(AllSpans(trace_).size(), spans);
}

INSTANTIATE_TEST_SUITE_P(Routes, TracedRestoreTest, testing::Values(Backend::kBuffered, Backend::kDirect),
                         [](const auto& each) { return each.param == Backend::kDirect ? "Direct" : "Buffered"; });

}  // namespace
}  // namespace coldsnap
