// Canonical JSON, the one text that a value has, so that its SHA-256 is the value's digest.
//
// UTF-8, keys sorted by their bytes, no white space, the fewest escapes, integers 0..2^53-1, no floats (they are
// written as strings of their bits, "f64:7ff8000000000000"), no duplicate keys, bounded depth, keys of 1..4096 bytes
// without NUL.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cc/artifact/limits.h"
#include "cc/base/status.h"

namespace coldsnap {

// The canonical text of the one JSON value in `text`. `max_depth` counts nested objects and arrays.
// What canonical JSON has no text for is kRequestInvalid, with its path ($.a.b[3]) or its byte offset.
Result<std::string> CanonicalJson(std::string_view text, int max_depth = kMaxJsonDepth);

// The members of an object, in order of their keys, or the elements of an array, whose keys are empty; each value as
// its canonical text. kRequestInvalid also when the value is neither.
struct JsonMember {
  std::string key;
  std::string value;
};
Result<std::vector<JsonMember>> CanonicalMembers(std::string_view text);

// As CanonicalJson for a value that must be an object and becomes a field of a document (one level of depth less).
Result<std::string> CanonicalObject(std::string_view text);

}  // namespace coldsnap
