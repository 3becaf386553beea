#include "cc/artifact/json_text.h"

#include <array>
#include <bit>
#include <charconv>
#include <cstring>

#include "cc/artifact/limits.h"

namespace coldsnap {
namespace {

// How many bytes of a well-formed sequence start at `bytes`; 0 when none does. `left` is at least 1.
size_t SequenceBytes(const unsigned char* bytes, size_t left) {
  const unsigned char lead = bytes[0];
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;  // a continuation byte, an overlong form, or past U+10FFFF
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (left < length) return 0;
  // The second byte is where overlong forms, surrogates and values past U+10FFFF show.
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (bytes[1] < low || bytes[1] > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((bytes[i] & 0xC0) != 0x80) return 0;
  }
  return length;
}

constexpr std::array<bool, 256> MakeEscapedTable() {
  std::array<bool, 256> table{};
  for (size_t c = 0; c < 0x20; ++c) table[c] = true;
  table['"'] = true;
  table['\\'] = true;
  return table;
}
constexpr std::array<bool, 256> kEscaped = MakeEscapedTable();

// The top bits of the bytes that have to be escaped: below 0x20, `"` or `\`. The bytes are tested side by side: a
// subtraction borrows into the top bit of those that are below the bound, or zero after the exclusive or. Next to a
// byte that does, the borrow may set the one above too, so only the lowest bit is exact.
constexpr uint64_t EveryByte(uint64_t byte) { return byte * 0x0101010101010101U; }
uint64_t EscapedBytes(uint64_t word) {
  const uint64_t quote = word ^ EveryByte('"');
  const uint64_t backslash = word ^ EveryByte('\\');
  const uint64_t hits = ((word - EveryByte(0x20)) & ~word) | ((quote - EveryByte(1)) & ~quote) |
                        ((backslash - EveryByte(1)) & ~backslash);
  return hits & EveryByte(0x80);
}

void AppendEscaped(std::string& out, unsigned char c) {
  constexpr char kDigits[] = "0123456789abcdef";
  switch (c) {
    case '"':
      out.append("\\\"");
      return;
    case '\\':
      out.append("\\\\");
      return;
    case '\b':
      out.append("\\b");
      return;
    case '\t':
      out.append("\\t");
      return;
    case '\n':
      out.append("\\n");
      return;
    case '\f':
      out.append("\\f");
      return;
    case '\r':
      out.append("\\r");
      return;
    default:
      out.append("\\u00").append({kDigits[c >> 4], kDigits[c & 15]});
  }
}

}  // namespace

std::optional<size_t> FirstInvalidUtf8(std::string_view text) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  size_t at = 0;
  while (at < text.size()) {
    uint64_t word = 0;
    if (text.size() - at >= sizeof(word)) {  // nearly every byte of a manifest is ASCII: eight at a time
      std::memcpy(&word, bytes + at, sizeof(word));
      if ((word & 0x8080808080808080U) == 0) {
        at += sizeof(word);
        continue;
      }
    }
    const size_t length = SequenceBytes(bytes + at, text.size() - at);
    if (length == 0) return at;
    at += length;
  }
  return std::nullopt;
}

size_t PlainBytes(std::string_view text) {
  static_assert(std::endian::native == std::endian::little, "the first byte of a word is its lowest");
  size_t at = 0;
  for (uint64_t word = 0; text.size() - at >= sizeof(word); at += sizeof(word)) {
    std::memcpy(&word, text.data() + at, sizeof(word));
    if (const uint64_t hits = EscapedBytes(word)) return at + static_cast<size_t>(std::countr_zero(hits)) / 8;
  }
  while (at < text.size() && !kEscaped[static_cast<unsigned char>(text[at])]) ++at;
  return at;
}

void AppendJsonString(std::string& out, std::string_view text) {
  out.push_back('"');
  for (;;) {
    const size_t plain = PlainBytes(text);
    out.append(text.substr(0, plain));
    if (plain == text.size()) break;
    AppendEscaped(out, static_cast<unsigned char>(text[plain]));
    text.remove_prefix(plain + 1);
  }
  out.push_back('"');
}

void AppendJsonInteger(std::string& out, uint64_t value) {
  char digits[20];
  const auto [end, error] = std::to_chars(digits, digits + sizeof(digits), value);
  out.append(digits, end);
}

std::string Quoted(std::string_view text) {
  constexpr size_t kShown = 80;
  std::string shown(text.substr(0, kShown));
  while (const auto bad = FirstInvalidUtf8(shown)) shown[*bad] = '?';  // messages stay UTF-8
  std::string out;
  AppendJsonString(out, shown);
  if (text.size() > kShown) out.append(StrCat("... (", text.size(), " bytes)"));
  return out;
}

Status CheckName(std::string_view name) {
  if (name.empty()) return Status(Code::kRequestInvalid, "the name is empty; names have 1 to 4096 bytes");
  if (name.size() > kMaxNameBytes) {
    return Status(Code::kRequestInvalid, StrCat("the name has ", name.size(), " bytes; names have 1 to 4096"));
  }
  if (const size_t nul = name.find('\0'); nul != std::string_view::npos) {
    return Status(Code::kRequestInvalid, StrCat("the name has a NUL at byte ", nul));
  }
  if (const auto bad = FirstInvalidUtf8(name)) {
    return Status(Code::kRequestInvalid, StrCat("the name is not UTF-8 from byte ", *bad, " on"));
  }
  return Status::Ok();
}

}  // namespace coldsnap
