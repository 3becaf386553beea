// What of a blob is on the drive already, so that a capture that was killed can go on where it was.
//
// The file `journal` beside the blob has a record for each window, appended once the window's bytes have been synced. A
// later capture of the same layout copies and hashes the sources again, and leaves out the writing of a window only if
// its digest is the recorded one: the result is a function of the sources, whatever the journal says. Before a recorded
// window is written anew, everything recorded so far is void, since after another kill its bytes would be mixed.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/base/units.h"
#include "cc/sys/files.h"

namespace coldsnap {

class Journal {
 public:
  static constexpr const char* kName = "journal";

  // For the blob open as `blob_fd`, which must outlive it, in the folder `dir_fd`. `key` tells what is captured, and
  // how it is cut into windows. The file is made with the first record, after each `interval_bytes` of windows; 0:
  // never.
  Journal(int dir_fd, int blob_fd, const Sha256& key, uint64_t interval_bytes)
      : dir_fd_(dir_fd), blob_fd_(blob_fd), key_(key), interval_bytes_(interval_bytes) {}

  // Takes up what is recorded, and says whether there is a journal with this key. A
  // damaged record is one of other bytes, so its window is written again.
  Result<bool> TakeUp();

  // Whether window `index` is on the drive with this digest. Void() must be called before another one is written.
  bool Has(uint32_t index, const Sha256& digest) const;
  bool Knows(uint32_t index) const { return durable_.contains(index); }
  Status Void();

  // A window was written, or had been. Now and then syncs blob and journal, in the calling thread. Safe from many.
  Status Wrote(uint32_t index, const Sha256& digest, uint64_t nbytes);

  // Removes the file: from then on the blob is finished, or nobody's.
  Status Remove();

 private:
  struct Record {
    uint32_t window = 0;
    Sha256 digest{};
  };
  Status Append(const std::vector<Record>& records);
  Status Checkpoint(const std::vector<Record>& records);

  int dir_fd_;
  int blob_fd_;
  Sha256 key_;
  uint64_t interval_bytes_;
  std::map<uint32_t, Sha256> durable_;  // as taken up

  std::mutex file_mutex_;  // guards the next three; taken before the other one
  UniqueFd file_;          // none until there is a record
  uint64_t end_ = 0;       // of the file
  bool void_ = false;

  std::mutex pending_mutex_;  // guards what follows
  std::vector<Record> pending_;
  uint64_t pending_bytes_ = 0;
};

}  // namespace coldsnap
