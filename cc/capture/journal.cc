#include "cc/capture/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "cc/sys/new_file.h"

namespace coldsnap {
namespace {

constexpr std::array<char, 8> kMagic = {'c', 's', 'n', 'a', 'p', 'j', '1', '\n'};
constexpr uint64_t kHeadBytes = kMagic.size() + sizeof(Sha256);
constexpr uint32_t kVoid = UINT32_MAX;  // the number of the record that voids those before it
constexpr uint64_t kMostBytes = 64 * kMiB;

// A record in the file: window, digest. One that was torn has a digest that no window has.
constexpr uint64_t kRecordBytes = sizeof(uint32_t) + sizeof(Sha256);

}  // namespace

Result<bool> Journal::TakeUp() {
  Result<std::string> text = ReadSmallFile(dir_fd_, kName, kMostBytes);
  if (!text.ok()) {
    if (text.status().native() == ENOENT || text.status().code() == Code::kFormatInvalid) return false;
    return std::move(text).status();
  }
  if (text->size() < kHeadBytes || std::memcmp(text->data(), kMagic.data(), kMagic.size()) != 0 ||
      std::memcmp(text->data() + kMagic.size(), key_.data(), key_.size()) != 0) {
    return false;
  }
  end_ = kHeadBytes;
  for (; end_ + kRecordBytes <= text->size(); end_ += kRecordBytes) {
    uint32_t window = 0;
    Sha256 digest{};
    std::memcpy(&window, text->data() + end_, sizeof(window));
    std::memcpy(digest.data(), text->data() + end_ + sizeof(window), digest.size());
    if (window == kVoid) {
      durable_.clear();
    } else {
      durable_[window] = digest;
    }
  }
  const int fd = Uninterrupted([&] { return ::openat(dir_fd_, kName, O_WRONLY | O_CLOEXEC | O_NOFOLLOW); });
  if (fd < 0) return Status::FromErrno(errno, "open the journal of a killed capture");
  file_ = UniqueFd(fd);
  return true;
}

bool Journal::Has(uint32_t index, const Sha256& digest) const {
  const auto found = durable_.find(index);
  return found != durable_.end() && found->second == digest;
}

Status Journal::Void() {
  const std::lock_guard lock(file_mutex_);
  if (std::exchange(void_, true)) return Status::Ok();
  return Append({{.window = kVoid}});
}

Status Journal::Wrote(uint32_t index, const Sha256& digest, uint64_t nbytes) {
  if (interval_bytes_ == 0) return Status::Ok();
  std::vector<Record> records;
  {
    const std::lock_guard lock(pending_mutex_);
    pending_.push_back({.window = index, .digest = digest});
    pending_bytes_ += nbytes;
    if (pending_bytes_ < interval_bytes_) return Status::Ok();
    pending_bytes_ = 0;
    records.swap(pending_);
  }
  return Checkpoint(records);
}

// The records say that the blob's bytes are on the drive, so these go first.
Status Journal::Checkpoint(const std::vector<Record>& records) {
  const std::lock_guard lock(file_mutex_);
  if (Uninterrupted([&] { return ::fdatasync(blob_fd_); }) != 0) {
    return Status::FromErrno(errno, "sync the blob for the journal");
  }
  return Append(records);
}

Status Journal::Append(const std::vector<Record>& records) {
  std::vector<std::byte> bytes;
  const auto add = [&bytes](std::span<const std::byte> more) { bytes.insert(bytes.end(), more.begin(), more.end()); };
  if (!file_) {
    static_cast<void>(::unlinkat(dir_fd_, kName, 0));  // another one's
    const int fd = Uninterrupted(
        [&] { return ::openat(dir_fd_, kName, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600); });
    if (fd < 0) return Status::FromErrno(errno, StrCat("create ", kName));
    file_ = UniqueFd(fd);
    end_ = 0;
    add(std::as_bytes(std::span(kMagic)));
    add(key_);
  }
  for (const Record& record : records) {
    add(std::as_bytes(std::span(&record.window, 1)));
    add(record.digest);
  }
  RETURN_IF_ERROR(WriteExact(file_.get(), bytes, end_, kName));
  end_ += bytes.size();
  if (Uninterrupted([&] { return ::fdatasync(file_.get()); }) == 0) return Status::Ok();
  return Status::FromErrno(errno, StrCat("sync ", kName));
}

Status Journal::Remove() {
  const std::lock_guard lock(file_mutex_);
  if (!file_) return Status::Ok();
  RETURN_IF_ERROR(std::move(file_).Close().Prefixed(StrCat("close ", kName, ": ")));
  if (::unlinkat(dir_fd_, kName, 0) == 0) return Status::Ok();
  return Status::FromErrno(errno, StrCat("remove ", kName));
}

}  // namespace coldsnap
