#include "tests/power/history.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "cc/base/check.h"
#include "cc/base/strcat.h"

namespace coldsnap {
namespace {

using Kind = Change::Kind;

// What has to be synced so that the change is safe.
NodeId SyncedBy(const Change& change) {
  switch (change.kind) {
    case Kind::kEntry:
    case Kind::kRemove:
      return change.folder;
    case Kind::kMove:
      return change.to_folder;
    default:
      return change.node;
  }
}

struct Node {
  unsigned mode = 0;
  uint64_t nbytes = 0;
  std::string bytes;
  std::map<std::string, NodeId> entries;
};

void Apply(const Change& change, std::vector<Node>& nodes) {
  Node& node = nodes[change.node];
  switch (change.kind) {
    case Kind::kEntry:
      nodes[change.folder].entries[change.name] = change.node;
      return;
    case Kind::kRemove:
      nodes[change.folder].entries.erase(change.name);
      return;
    case Kind::kMove:
      nodes[change.folder].entries.erase(change.name);
      nodes[change.to_folder].entries[change.to_name] = change.node;
      return;
    case Kind::kGrow:
      node.nbytes = std::max(node.nbytes, change.nbytes);
      return;
    case Kind::kCut:
      node.nbytes = change.nbytes;
      node.bytes.resize(std::min<size_t>(node.bytes.size(), change.nbytes));
      return;
    case Kind::kBytes:
      node.bytes.resize(std::max<size_t>(node.bytes.size(), change.offset + change.bytes.size()));
      node.bytes.replace(change.offset, change.bytes.size(), change.bytes);
      return;
    case Kind::kMode:
      node.mode = change.mode;
      return;
    case Kind::kSync:
    case Kind::kSyncData:
      return;
  }
}

Tree Grown(const History& history, const std::vector<Node>& nodes, NodeId id) {
  const Node& node = nodes[id];
  Tree tree{.is_folder = history.nodes[id].is_folder, .mode = node.mode};
  if (!tree.is_folder) {
    tree.bytes = node.bytes;
    tree.bytes.resize(node.nbytes);  // what was allocated and not written reads as zeros
  }
  for (const auto& [name, entry] : node.entries) tree.entries.emplace(name, Grown(history, nodes, entry));
  return tree;
}

}  // namespace

std::string TextOf(const Change& change) {
  constexpr const char* kNames[] = {"entry", "remove", "move", "grow", "cut", "bytes", "mode", "sync", "sync data"};
  return StrCat(kNames[static_cast<size_t>(change.kind)], " node ", change.node, " ", change.name, " ", change.to_name,
                " offset ", change.offset, " bytes ", change.nbytes + change.bytes.size());
}

const Tree* Tree::At(const std::string& path) const {
  const Tree* tree = this;
  for (const std::filesystem::path& part : std::filesystem::path(path)) {
    const auto entry = tree->entries.find(part.string());
    if (entry == tree->entries.end()) return nullptr;
    tree = &entry->second;
  }
  return tree;
}

Tree TreeOf(const History& history, const std::vector<bool>& kept) {
  std::vector<Node> nodes(history.nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) nodes[i].mode = history.nodes[i].mode;
  for (size_t i = 0; i < kept.size(); ++i) {
    if (kept[i]) Apply(history.changes[i], nodes);
  }
  return Grown(history, nodes, kTop);
}

bool Appears(const History& history, const std::vector<bool>& kept, const std::string& name) {
  bool there = false;
  for (size_t i = 0; i < kept.size(); ++i) {
    const Change& change = history.changes[i];
    if (!kept[i]) continue;
    const bool leaves = change.kind == Kind::kRemove || change.kind == Kind::kMove;
    if (leaves && change.folder == kTop && change.name == name) there = false;
    if (change.kind == Kind::kEntry && change.folder == kTop && change.name == name) there = true;
    if (change.kind == Kind::kMove && change.to_folder == kTop && change.to_name == name) there = true;
  }
  return there;
}

Cut CutAfter(const History& history, size_t count) {
  Cut cut{.safe = std::vector<bool>(count), .pending = {}};
  // Backwards: the syncs that a change has behind it.
  std::vector<bool> synced(history.nodes.size());
  std::vector<bool> data_synced(history.nodes.size());
  for (size_t i = count; i-- > 0;) {
    const Change& change = history.changes[i];
    if (IsSync(change)) {
      data_synced[change.node] = true;
      if (change.kind == Kind::kSync) synced[change.node] = true;
      continue;
    }
    const NodeId by = SyncedBy(change);
    cut.safe[i] = change.kind == Kind::kMode ? synced[by] : data_synced[by];
    if (!cut.safe[i]) cut.pending.push_back(i);
  }
  std::reverse(cut.pending.begin(), cut.pending.end());
  return cut;
}

Tree ReadTree(const std::string& folder) {
  struct stat info{};
  COLDSNAP_CHECK(::lstat(folder.c_str(), &info) == 0);
  Tree tree{.is_folder = true, .mode = info.st_mode & 07777U};
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory()) {
      tree.entries.emplace(name, ReadTree(entry.path().string()));
    } else if (entry.is_regular_file()) {
      COLDSNAP_CHECK(::lstat(entry.path().c_str(), &info) == 0);
      std::ifstream file(entry.path(), std::ios::binary);
      Tree leaf{.mode = info.st_mode & 07777U};
      leaf.bytes.assign(std::istreambuf_iterator<char>(file), {});
      tree.entries.emplace(name, std::move(leaf));
    }
  }
  return tree;
}

void WriteTree(const Tree& tree, const std::string& folder) {
  std::filesystem::create_directory(folder);
  for (const auto& [name, entry] : tree.entries) {
    const std::string path = folder + "/" + name;
    if (entry.is_folder) {
      WriteTree(entry, path);
    } else {
      std::ofstream(path, std::ios::binary) << entry.bytes;
      ::chmod(path.c_str(), entry.mode);
    }
  }
}

}  // namespace coldsnap
