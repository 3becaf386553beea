// Status and Result: how every call below Python says that it failed.
//
// A Status has a code for programs (the stable error codes of receipts), the number that the system gave (errno or a
// cudaError_t) with its domain, the stage of the data path that failed, a message for people (what was being done, to
// what, with which numbers; then the cause) and, where we know one, a remedy. Layers add what only they know with
// Prefixed() and keep the rest.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "cc/base/check.h"
#include "cc/base/strcat.h"

namespace coldsnap {

// The order is of no meaning; the names (CodeName) are stable and appear in receipts as error.code.
enum class Code : uint8_t {
  kOk,
  kRequestInvalid,
  kPolicyRefused,
  kLayoutMismatch,
  kRouteUnavailable,
  kNotAdmitted,
  kQuarantined,
  kExists,
  kDataLoss,
  kFormatInvalid,
  kIo,
  kNoSpace,
  kCuda,
  kOutOfMemory,
  kDeviceLost,
  kTimeout,
  kInternal,
  kCancelled,
};
std::string_view CodeName(Code code);

enum class Domain : uint8_t { kNone, kErrno, kCuda, kGds };  // whose number `native` is
std::string_view DomainName(Domain domain);

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(Code code, std::string message);

  static Status Ok() { return {}; }
  // `doing` says what was being done, to what, with which numbers; the errno's own text is added. Out of space and out
  // of memory keep their own codes, everything else is kIo.
  static Status FromErrno(int error, std::string_view doing);

  bool ok() const { return details_ == nullptr; }
  Code code() const { return ok() ? Code::kOk : details_->code; }
  Domain domain() const { return ok() ? Domain::kNone : details_->domain; }
  int native() const { return ok() ? 0 : details_->native; }
  const std::string& message() const;
  const std::string& stage() const;
  const std::string& remedy() const;

  // Each returns the same failure with one thing added; no effect on an ok Status. A stage or a remedy that is already
  // set stays: the layer nearest to the failure knows best.
  Status WithNative(Domain domain, int native) &&;
  Status WithStage(std::string_view stage) &&;
  Status WithRemedy(std::string_view remedy) &&;
  Status Prefixed(std::string_view prefix) &&;

 private:
  struct Details {
    Code code;
    Domain domain = Domain::kNone;
    int native = 0;
    std::string message;
    std::string stage;
    std::string remedy;
  };
  Details& Mine();  // un-shares before a change; copies of a Status share their details

  std::shared_ptr<Details> details_;
};

// A value, or why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}        // NOLINT(google-explicit-constructor)
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {  // NOLINT(google-explicit-constructor)
    COLDSNAP_CHECK(!std::get<1>(state_).ok());
  }

  bool ok() const { return state_.index() == 0; }
  Status status() const& { return ok() ? Status::Ok() : std::get<1>(state_); }
  Status status() && { return ok() ? Status::Ok() : std::get<1>(std::move(state_)); }

  const T& operator*() const& { return Value(); }
  T& operator*() & { return const_cast<T&>(Value()); }
  T&& operator*() && { return std::move(const_cast<T&>(Value())); }
  const T* operator->() const { return &Value(); }
  T* operator->() { return &const_cast<T&>(Value()); }

 private:
  const T& Value() const {
    COLDSNAP_CHECK(ok());
    return *std::get_if<0>(&state_);
  }
  std::variant<T, Status> state_;
};

}  // namespace coldsnap

#define COLDSNAP_CONCAT_INNER(a, b) a##b
#define COLDSNAP_CONCAT(a, b) COLDSNAP_CONCAT_INNER(a, b)

// Leaves the function with the failure, if there is one.
#define RETURN_IF_ERROR(expression)                                                                       \
  do {                                                                                                    \
    if (::coldsnap::Status coldsnap_status = (expression); !coldsnap_status.ok()) return coldsnap_status; \
  } while (false)

// ASSIGN_OR_RETURN(auto file, OpenFile(path)): takes the value, or leaves the function with the failure.
#define ASSIGN_OR_RETURN(target, expression) \
  ASSIGN_OR_RETURN_INNER(COLDSNAP_CONCAT(coldsnap_result_, __LINE__), target, expression)
#define ASSIGN_OR_RETURN_INNER(result, target, expression) \
  auto result = (expression);                              \
  if (!result.ok()) return std::move(result).status();     \
  target = *std::move(result)
