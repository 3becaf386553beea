// Pieces of JSON text: UTF-8, strings with the fewest escapes, integers. What canonical JSON is made of, and the
// blob's header too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cc/base/status.h"

namespace coldsnap {

// Where `text` stops being UTF-8 (overlong forms, surrogates and values past U+10FFFF are not), if it does.
std::optional<size_t> FirstInvalidUtf8(std::string_view text);

// How many bytes at the start of `text` stand for themselves in a JSON string.
size_t PlainBytes(std::string_view text);

// Appends `text`, which is valid UTF-8, as a JSON string. Escaped are only `"`, `\` and U+0000..U+001F, the latter as
// \b \t \n \f \r or four lower-case hex digits.
void AppendJsonString(std::string& out, std::string_view text);
void AppendJsonInteger(std::string& out, uint64_t value);

// `text` as it may stand in a message: quoted, escaped, cut after 80 bytes, whatever its bytes are.
std::string Quoted(std::string_view text);

// 1..4096 bytes of UTF-8 without NUL. The message has no subject: prefix it with what the name belongs to.
Status CheckName(std::string_view name);

}  // namespace coldsnap
