#include "cc/artifact/canonical_json.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "cc/artifact/json_text.h"
#include "cc/artifact/limits.h"
#include "rapidjson/error/en.h"
#include "rapidjson/memorystream.h"
#include "rapidjson/reader.h"

namespace coldsnap {
namespace {

// Of a document that is an array: only lists of shards and of features are read as one.
constexpr size_t kMaxRootElements = kMaxShards;

// Takes the parser's events and builds canonical text from the inside out: a finished container becomes the text of
// one value of the container around it. Objects and arrays are short here (scalars, identity, artifact.json), so the
// copying, once per level of depth, costs less than a tree would. Values are kept one by one only where they have to be
// sorted or are asked for: each takes 64 bytes, and in the text as few as two.
class CanonicalHandler {
 public:
  explicit CanonicalHandler(int max_depth) : max_depth_(max_depth) {}

  std::string TakeText() { return std::move(root_); }
  std::vector<JsonMember> TakeMembers() { return std::move(root_members_); }
  const std::string& problem() const { return problem_; }

  bool Null() { return Value("null"); }
  bool Bool(bool value) { return Value(value ? "true" : "false"); }
  bool Int(int value) { return Int64(value); }
  bool Uint(unsigned value) { return Uint64(value); }
  bool Int64(int64_t value) {
    return Problem(StrCat("the negative integer ", value, "; integers are 0..2^53-1, write it as a string"));
  }
  bool Uint64(uint64_t value) {
    if (value > kMaxInteger) {
      return Problem(StrCat("the integer ", value, " is past 2^53-1; write it as a decimal string"));
    }
    std::string text;
    AppendJsonInteger(text, value);
    return Value(std::move(text));
  }
  // Fractions, exponents, and integers past 64 bits.
  bool Double(double) {
    return Problem(
        "a number that is no integer of 0..2^53-1; write a float as the string of its bits, \"f64:\" and 16 hex "
        "digits");
  }
  bool RawNumber(const char*, rapidjson::SizeType, bool) { return false; }  // only with kParseNumbersAsStringsFlag
  bool String(const char* data, rapidjson::SizeType size, bool) {
    const std::string_view value(data, size);
    // The text is UTF-8, but an escape can still spell half of a surrogate pair.
    if (FirstInvalidUtf8(value)) return Problem("a string that is not UTF-8 (half of a surrogate pair)");
    std::string text;
    AppendJsonString(text, value);
    return Value(std::move(text));
  }
  bool Key(const char* data, rapidjson::SizeType size, bool) {
    frames_.back().key.assign(data, size);
    if (const Status status = CheckName(frames_.back().key); !status.ok()) return Problem(status.message());
    return true;
  }
  bool StartObject() { return Start(true); }
  bool StartArray() { return Start(false); }
  bool EndObject(rapidjson::SizeType) {
    std::vector<JsonMember>& members = frames_.back().members;
    // Strings compare as unsigned bytes.
    std::sort(members.begin(), members.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
    std::string text = "{";
    for (size_t i = 0; i < members.size(); ++i) {
      if (i > 0 && members[i].key == members[i - 1].key) {
        frames_.back().key = members[i].key;
        return Problem("the key stands twice in its object");
      }
      if (i > 0) text.push_back(',');
      AppendJsonString(text, members[i].key);
      text.push_back(':');
      text.append(members[i].value);
    }
    return Finish(std::move(text), '}');
  }
  bool EndArray(rapidjson::SizeType) {
    std::string text = "[" + frames_.back().elements;
    return Finish(std::move(text), ']');
  }

 private:
  struct Frame {
    bool is_object;
    std::string key;                  // of the value being read
    std::vector<JsonMember> members;  // of an object, and of the document if it is an array
    std::string elements;             // of an array: those read so far, with commas between them
    size_t count = 0;
  };

  bool Start(bool is_object) {
    if (static_cast<int>(frames_.size()) == max_depth_) {
      return Problem(StrCat("objects and arrays nested deeper than ", max_depth_));
    }
    frames_.push_back({.is_object = is_object, .key = {}, .members = {}, .elements = {}});
    return true;
  }
  bool Finish(std::string text, char closing) {
    text.push_back(closing);
    if (frames_.size() == 1) root_members_ = std::move(frames_.back().members);
    frames_.pop_back();
    return Value(std::move(text));
  }
  bool Value(std::string text) {
    if (frames_.empty()) {
      root_ = std::move(text);
      return true;
    }
    Frame& frame = frames_.back();
    if (!frame.is_object) {
      if (frame.count > 0) frame.elements.push_back(',');
      frame.elements.append(text);
    }
    if (!frame.is_object && frames_.size() == 1 && frame.count == kMaxRootElements) {
      return Problem(StrCat("more than ", kMaxRootElements, " elements"));
    }
    if (frame.is_object || frames_.size() == 1) frame.members.push_back({frame.key, std::move(text)});
    ++frame.count;
    return true;
  }
  bool Problem(std::string_view what) {
    std::string path = "$";
    for (const Frame& frame : frames_) {
      path.append(frame.is_object ? StrCat(".", frame.key) : StrCat("[", frame.count, "]"));
    }
    problem_ = StrCat("at ", Quoted(path), ": ", what);
    return false;
  }

  int max_depth_;
  std::vector<Frame> frames_;
  std::string root_;
  std::vector<JsonMember> root_members_;
  std::string problem_;
};

Status Invalid(std::string message) { return Status(Code::kRequestInvalid, std::move(message)); }

Status ReadCanonical(std::string_view text, CanonicalHandler& handler) {
  if (const auto bad = FirstInvalidUtf8(text)) return Invalid(StrCat("JSON: not UTF-8 at byte ", *bad));
  // The parser takes a NUL for the end of its input and would leave what follows unread.
  if (const size_t nul = text.find('\0'); nul != text.npos) return Invalid(StrCat("JSON: a NUL at byte ", nul));
  rapidjson::MemoryStream stream(text.data(), text.size());
  rapidjson::Reader reader;
  // Iterative: nesting costs no stack of the process, however deep a caller lets it be.
  const auto result =
      reader.Parse<rapidjson::kParseIterativeFlag | rapidjson::kParseValidateEncodingFlag>(stream, handler);
  if (!handler.problem().empty()) return Invalid(StrCat("JSON ", handler.problem(), " (byte ", result.Offset(), ")"));
  if (result.IsError()) {
    return Invalid(StrCat("JSON at byte ", result.Offset(), " of ", text.size(), ": ",
                          rapidjson::GetParseError_En(result.Code())));
  }
  return Status::Ok();
}

}  // namespace

Result<std::string> CanonicalJson(std::string_view text, int max_depth) {
  CanonicalHandler handler(max_depth);
  RETURN_IF_ERROR(ReadCanonical(text, handler));
  return handler.TakeText();
}

Result<std::vector<JsonMember>> CanonicalMembers(std::string_view text) {
  CanonicalHandler handler(kMaxJsonDepth);
  RETURN_IF_ERROR(ReadCanonical(text, handler));
  const std::string canonical = handler.TakeText();
  if (canonical.front() == '{' || canonical.front() == '[') return handler.TakeMembers();
  return Invalid(StrCat("JSON: an object or an array is wanted, not ", Quoted(canonical)));
}

Result<std::string> CanonicalObject(std::string_view text) {
  ASSIGN_OR_RETURN(std::string canonical, CanonicalJson(text, kMaxEmbeddedDepth));
  if (canonical.front() != '{') return Invalid(StrCat("JSON: an object is wanted, not ", Quoted(canonical)));
  return canonical;
}

}  // namespace coldsnap
