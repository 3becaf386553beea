#include "tests/power/observed.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "cc/base/check.h"
#include "cc/base/units.h"

namespace coldsnap {
namespace {

std::pair<dev_t, ino_t> NumberOf(const struct stat& info) { return {info.st_dev, info.st_ino}; }

}  // namespace

Observed::Observed(const std::string& folder) {
  struct stat info{};
  COLDSNAP_CHECK(::stat(folder.c_str(), &info) == 0);
  nodes_[NumberOf(info)] = kTop;
  history_.nodes.push_back({.is_folder = true, .mode = info.st_mode & 07777U});
}

std::optional<NodeId> Observed::NodeAt(const std::string& path, bool follow) const {
  struct stat info{};
  if (::fstatat(AT_FDCWD, path.c_str(), &info, follow ? 0 : AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
  const auto found = nodes_.find(NumberOf(info));
  if (found == nodes_.end()) return std::nullopt;
  return found->second;
}

std::optional<Observed::Place> Observed::PlaceOf(std::string_view path) const {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return std::nullopt;  // the tracer gives none without
  const std::optional<NodeId> folder = NodeAt(std::string(path.substr(0, std::max<size_t>(slash, 1))), true);
  if (!folder) return std::nullopt;
  return Place{*folder, std::string(path.substr(slash + 1))};
}

void Observed::Made(const std::string& path, bool is_folder) {
  const std::optional<Place> place = PlaceOf(path);
  struct stat info{};
  if (!place || ::fstatat(AT_FDCWD, path.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return;
  const NodeId node = history_.nodes.size();
  history_.nodes.push_back({.is_folder = is_folder, .mode = info.st_mode & 07777U});
  nodes_[NumberOf(info)] = node;  // a number that was freed comes again
  Changed({.kind = Change::Kind::kEntry, .node = node, .folder = place->folder, .name = place->name});
}

void Observed::Linked(const std::string& path) {
  const std::optional<NodeId> node = NodeAt(path, false);
  const std::optional<Place> place = PlaceOf(path);
  if (node && place)
    Changed({.kind = Change::Kind::kEntry, .node = *node, .folder = place->folder, .name = place->name});
}

void Observed::Moved(NodeId node, const Place& from, const Place& to) {
  Changed({.kind = Change::Kind::kMove,
           .node = node,
           .folder = from.folder,
           .name = from.name,
           .to_folder = to.folder,
           .to_name = to.name});
}

void Observed::Removed(NodeId node, const Place& place) {
  Changed({.kind = Change::Kind::kRemove, .node = node, .folder = place.folder, .name = place.name});
}

void Observed::Wrote(NodeId node, std::string_view bytes, uint64_t offset) {
  if (bytes.empty()) return;
  Changed({.kind = Change::Kind::kGrow, .node = node, .nbytes = offset + bytes.size()});
  while (!bytes.empty()) {
    const size_t part = std::min<size_t>(bytes.size(), kLeafBytes - offset % kLeafBytes);
    Changed(
        {.kind = Change::Kind::kBytes, .node = node, .offset = offset, .bytes = std::string(bytes.substr(0, part))});
    bytes.remove_prefix(part);
    offset += part;
  }
}

void Observed::Changed(Change change) { history_.changes.push_back(std::move(change)); }

void Observed::Synced(NodeId node, Change::Kind kind, size_t at) {
  history_.changes.insert(history_.changes.begin() + static_cast<ptrdiff_t>(at), {.kind = kind, .node = node});
}

}  // namespace coldsnap
