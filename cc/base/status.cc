#include "cc/base/status.h"

#include <cerrno>
#include <system_error>

namespace coldsnap {
namespace {

const std::string& Empty() {
  static const std::string empty;
  return empty;
}

Code CodeOfErrno(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return Code::kNoSpace;
    case ENOMEM:
      return Code::kOutOfMemory;
    case EEXIST:
      return Code::kExists;
    default:
      return Code::kIo;
  }
}

}  // namespace

std::string_view CodeName(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kRequestInvalid:
      return "request_invalid";
    case Code::kPolicyRefused:
      return "policy_refused";
    case Code::kLayoutMismatch:
      return "layout_mismatch";
    case Code::kRouteUnavailable:
      return "route_unavailable";
    case Code::kNotAdmitted:
      return "not_admitted";
    case Code::kQuarantined:
      return "quarantined";
    case Code::kExists:
      return "exists";
    case Code::kDataLoss:
      return "data_loss";
    case Code::kFormatInvalid:
      return "format_invalid";
    case Code::kIo:
      return "io";
    case Code::kNoSpace:
      return "no_space";
    case Code::kCuda:
      return "cuda";
    case Code::kOutOfMemory:
      return "out_of_memory";
    case Code::kDeviceLost:
      return "device_lost";
    case Code::kTimeout:
      return "timeout";
    case Code::kInternal:
      return "internal";
    case Code::kCancelled:
      return "cancelled";
  }
  return "internal";
}

std::string_view DomainName(Domain domain) {
  switch (domain) {
    case Domain::kNone:
      return "none";
    case Domain::kErrno:
      return "errno";
    case Domain::kCuda:
      return "cuda";
    case Domain::kGds:
      return "gds";
  }
  return "none";
}

Status::Status(Code code, std::string message) {
  COLDSNAP_CHECK(code != Code::kOk);
  details_ = std::make_shared<Details>(Details{.code = code, .message = std::move(message), .stage = {}, .remedy = {}});
}

Status Status::FromErrno(int error, std::string_view doing) {
  return Status(CodeOfErrno(error), StrCat(doing, ": ", std::generic_category().message(error)))
      .WithNative(Domain::kErrno, error);
}

const std::string& Status::message() const { return ok() ? Empty() : details_->message; }
const std::string& Status::stage() const { return ok() ? Empty() : details_->stage; }
const std::string& Status::remedy() const { return ok() ? Empty() : details_->remedy; }

Status::Details& Status::Mine() {
  if (details_.use_count() > 1) details_ = std::make_shared<Details>(*details_);
  return *details_;
}

Status Status::WithNative(Domain domain, int native) && {
  if (!ok()) {
    Mine().domain = domain;
    Mine().native = native;
  }
  return std::move(*this);
}

Status Status::WithStage(std::string_view stage) && {
  if (!ok() && details_->stage.empty()) Mine().stage = stage;
  return std::move(*this);
}

Status Status::WithRemedy(std::string_view remedy) && {
  if (!ok() && details_->remedy.empty()) Mine().remedy = remedy;
  return std::move(*this);
}

Status Status::Prefixed(std::string_view prefix) && {
  if (!ok()) Mine().message.insert(0, prefix);
  return std::move(*this);
}

}  // namespace coldsnap
