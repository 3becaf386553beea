// Inside cc/artifact: where the text of a manifest goes, piece by piece, so that text which is only hashed or compared
// never stands in memory as a whole (200,000 tensors are about 45 MB).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "cc/base/types.h"

namespace coldsnap {

// Writers append to out() and call Item() now and then; it passes on what has come together.
class TextSink {
 public:
  virtual ~TextSink() = default;

  std::string& out() { return out_; }
  void Item() {
    if (out_.size() >= kPieceBytes) Flush();
  }
  void Flush() {
    taken_ += out_.size();
    Take(out_);
    out_.clear();
  }
  // Bytes appended so far.
  size_t position() const { return taken_ + out_.size(); }

 private:
  virtual void Take(std::string_view piece) = 0;

  static constexpr size_t kPieceBytes = size_t{64} * 1024;  // stays in the first-level caches
  std::string out_;
  size_t taken_ = 0;
};

class StringSink : public TextSink {
 public:
  explicit StringSink(size_t reserve_bytes = 0) { text_.reserve(reserve_bytes); }
  std::string Finish() &&;

 private:
  void Take(std::string_view piece) override { text_.append(piece); }
  std::string text_;
};

// SHA-256 of what is written.
class HashSink : public TextSink {
 public:
  HashSink();
  ~HashSink() override;
  HashSink(const HashSink&) = delete;
  HashSink& operator=(const HashSink&) = delete;

  // Hashes `text` itself, without a copy, after all that was appended before.
  void Add(std::string_view text);
  Sha256 Finish() &&;

 private:
  void Take(std::string_view piece) override;
  struct Context;
  Context* context_;
};

// Compares what is written with a text.
class CompareSink : public TextSink {
 public:
  explicit CompareSink(std::string_view text) : text_(text) {}

  // Empty when both are equal, else where they part and what each has there.
  std::string Finish() &&;

 private:
  void Take(std::string_view piece) override;
  std::string_view text_;
  size_t at_ = 0;
  std::string difference_;
};

}  // namespace coldsnap
