// Reading a synced blob again from the drive, so that what is compared is what a start after a power cut would find.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "cc/artifact/layout.h"
#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/capture/plan.h"
#include "cc/file/blob_reader.h"
#include "cc/sys/files.h"

namespace coldsnap {

class Reread {
 public:
  // With direct I/O where that can be had, else through a page cache that was proved empty of the file. Where neither
  // can be done (a file system in memory, pages that don't go), kRouteUnavailable with the reason.
  static Result<Reread> Open(int dir_fd, const std::string& name, uint64_t nbytes);

  // All of `into`, at multiples of 65536 in the file. Safe from many threads at once.
  Status Read(std::span<std::byte> into, uint64_t offset) const { return reader_.Read(into, offset); }
  // Why it is not read with direct I/O, if it is not.
  const std::optional<Reason>& reason() const { return reason_; }

  int fd() const { return file_.get(); }

  static constexpr std::string_view kRemedy =
      "capture again; if it happens twice, suspect the drive, its controller or the memory";

 private:
  Reread(UniqueFd file, BlobReader reader) : file_(std::move(file)), reader_(std::move(reader)) {}
  UniqueFd file_;
  BlobReader reader_;
  std::optional<Reason> reason_;
};

// What no digest covers: the header's part, or the zeros between and behind the segments. kDataLoss with the place.
Status CheckUnhashed(const Layout& layout, const WritePlan& plan, const BlobWindow& window,
                     std::span<const std::byte> bytes);

}  // namespace coldsnap
