// The history of a folder, put together from what was done at which path.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tests/power/history.h"

namespace coldsnap {

class Observed {
 public:
  explicit Observed(const std::string& folder);

  // The entry of a recorded folder that a path leads to.
  struct Place {
    NodeId folder;
    std::string name;
  };
  std::optional<Place> PlaceOf(std::string_view path) const;
  // What is at a path, if it is recorded. A path that ends in /proc/<pid>/fd/<fd> is followed.
  std::optional<NodeId> NodeAt(const std::string& path, bool follow) const;

  void Made(const std::string& path, bool is_folder);
  void Linked(const std::string& path);
  void Moved(NodeId node, const Place& from, const Place& to);
  void Removed(NodeId node, const Place& place);
  // Cut into pieces of 64 KiB of the file.
  void Wrote(NodeId node, std::string_view bytes, uint64_t offset);
  // A change of one node; `at` is where it goes among the changes, all but the syncs to the end.
  void Changed(Change change);
  void Synced(NodeId node, Change::Kind kind, size_t at);

  size_t size() const { return history_.changes.size(); }
  History Take() && { return std::move(history_); }

 private:
  History history_;
  std::map<std::pair<dev_t, ino_t>, NodeId> nodes_;
};

}  // namespace coldsnap
