#include "cc/hydrate/trace.h"

#include <unistd.h>

#include <string_view>

#include "cc/artifact/json_text.h"
#include "cc/base/strcat.h"

namespace coldsnap {
namespace {

// Nanoseconds as microseconds, every digit of them.
void AppendMicroseconds(std::string& out, int64_t nanoseconds) {
  const std::string digits = std::to_string(nanoseconds % 1000);
  AppendJsonInteger(out, static_cast<uint64_t>(nanoseconds / 1000));
  out.append(".").append(3 - digits.size(), '0').append(digits);
}

void AppendEvent(std::string& out, std::string_view phase, std::string_view name, uint64_t thread) {
  if (out.back() == '}') out += ",\n";
  out += StrCat(R"({"ph":")", phase, R"(","name":)");
  AppendJsonString(out, name);
  out += StrCat(R"(,"pid":)", ::getpid(), R"(,"tid":)", thread);
}

// A metadata event: what a process or a thread is called.
void AppendName(std::string& out, std::string_view what, uint64_t thread, std::string_view name) {
  AppendEvent(out, "M", what, thread);
  out += R"(,"args":{"name":)";
  AppendJsonString(out, name);
  out += "}}";
}

void AppendSpan(std::string& out, uint64_t thread, const Trace::Span& span) {
  AppendEvent(out, "X", span.name, thread);
  out += R"(,"ts":)";
  AppendMicroseconds(out, span.begin_ns);
  out += R"(,"dur":)";
  AppendMicroseconds(out, span.end_ns - span.begin_ns);
  out += R"(,"args":{"bytes":)";
  AppendJsonInteger(out, span.nbytes);
  if (span.window != Trace::kNoWindow) out += StrCat(R"(,"window":)", span.window);
  out += "}}";
}

}  // namespace

void Trace::Track::Add(const Span& span) {
  if (trace_.added_.fetch_add(1) >= trace_.max_spans_) return;
  const std::lock_guard lock(mutex_);
  spans_.push_back(span);
}

Trace::Track& Trace::TrackOf(int member, const std::string& role) {
  const std::lock_guard lock(mutex_);
  return tracks_.try_emplace({member, role}, *this).first->second;
}

std::vector<Trace::Thread> Trace::Threads() const {
  std::vector<Thread> threads;
  const std::lock_guard lock(mutex_);
  for (const auto& [key, track] : tracks_) {
    const auto& [member, role] = key;
    const std::lock_guard track_lock(track.mutex_);
    threads.push_back({.name = member == kCaller ? role : StrCat(role, " ", member), .spans = track.spans_});
  }
  return threads;
}

uint64_t Trace::dropped() const {
  const uint64_t added = added_.load();
  return added > max_spans_ ? added - max_spans_ : 0;
}

std::string Trace::ToJson() const {
  std::string out = StrCat(R"({"displayTimeUnit":"ms","otherData":{"dropped_spans":")", dropped(), R"("},)", "\n",
                           R"("traceEvents":[)", "\n");
  AppendName(out, "process_name", 1, "coldsnap");
  uint64_t number = 0;
  for (const Thread& thread : Threads()) {
    ++number;  // from 1 on: Perfetto takes thread 0 for the idle one
    AppendName(out, "thread_name", number, thread.name);
    for (const Span& span : thread.spans) AppendSpan(out, number, span);
  }
  return out += "\n]}\n";
}

}  // namespace coldsnap
