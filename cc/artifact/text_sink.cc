#include "cc/artifact/text_sink.h"

#include <openssl/sha.h>

#include <algorithm>
#include <utility>

#include "cc/artifact/json_text.h"
#include "cc/base/check.h"
#include "cc/base/strcat.h"

namespace coldsnap {

std::string StringSink::Finish() && {
  Flush();
  return std::move(text_);
}

struct HashSink::Context {
  SHA256_CTX sha256;
};

HashSink::HashSink() : context_(new Context) { COLDSNAP_CHECK(SHA256_Init(&context_->sha256) == 1); }

HashSink::~HashSink() { delete context_; }

void HashSink::Add(std::string_view text) {
  Flush();
  Take(text);
}

void HashSink::Take(std::string_view piece) {
  COLDSNAP_CHECK(SHA256_Update(&context_->sha256, piece.data(), piece.size()) == 1);
}

Sha256 HashSink::Finish() && {
  Flush();
  Sha256 digest;
  COLDSNAP_CHECK(SHA256_Final(reinterpret_cast<unsigned char*>(digest.data()), &context_->sha256) == 1);
  return digest;
}

void CompareSink::Take(std::string_view piece) {
  if (!difference_.empty()) return;
  const std::string_view has = text_.substr(at_, piece.size());
  if (has == piece) {
    at_ += piece.size();
    return;
  }
  const size_t same = static_cast<size_t>(std::mismatch(has.begin(), has.end(), piece.begin()).first - has.begin());
  difference_ = StrCat("at byte ", at_ + same, ": ", Quoted(text_.substr(at_ + same, 24)),
                       " where the canonical text has ", Quoted(piece.substr(same, 24)));
}

std::string CompareSink::Finish() && {
  Flush();
  if (difference_.empty() && at_ != text_.size()) {
    difference_ = StrCat("at byte ", at_, ": ", text_.size() - at_, " more bytes after the end");
  }
  return std::move(difference_);
}

}  // namespace coldsnap
