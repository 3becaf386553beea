#include "cc/artifact/layout.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "cc/artifact/header.h"
#include "cc/artifact/json_text.h"
#include "cc/artifact/placement.h"

namespace coldsnap {
namespace {

Status Invalid(std::string message) { return Status(Code::kRequestInvalid, std::move(message)); }

std::string TensorIs(const TensorSpec& tensor) { return StrCat("tensor ", Quoted(tensor.name), ": "); }

Result<std::vector<uint64_t>> TakeStrides(const TensorSpec& spec) {
  std::vector<uint64_t> strides;
  strides.reserve(spec.strides.size());
  const bool empty = std::find(spec.shape.begin(), spec.shape.end(), 0) != spec.shape.end();
  for (size_t i = 0; i < spec.strides.size(); ++i) {
    const int64_t stride = spec.strides[i];
    const bool unused = empty || (i < spec.shape.size() && spec.shape[i] == 1);
    if (stride < 0 && !unused) {
      return Invalid(
          StrCat("strides[", i, "] is ", stride,
                 "; negative strides have no counterpart in torch or on a device: capture a contiguous copy"));
    }
    strides.push_back(stride < 0 ? 0 : static_cast<uint64_t>(stride));  // numpy's flipped views of size 1
  }
  return strides;
}

// Everything but extent, offset and object, which depend on the other tensors.
Result<TensorRecord> StartRecord(TensorSpec& spec) {
  TensorRecord record;
  ASSIGN_OR_RETURN(record.strides, TakeStrides(spec));
  std::sort(spec.attrs.begin(), spec.attrs.end());
  record.name = spec.name;  // the spec keeps its own for messages
  record.dtype = std::move(spec.dtype);
  record.shape = std::move(spec.shape);
  record.role = std::move(spec.role);
  record.attrs = std::move(spec.attrs);
  RETURN_IF_ERROR(CheckRecord(record));
  return record;
}

Status CheckInsideStorage(const TensorSpec& spec, uint64_t span_bytes) {
  uint64_t storage_end = 0;
  if (spec.storage_nbytes > kMaxInteger ||
      __builtin_add_overflow(spec.storage_address, spec.storage_nbytes, &storage_end)) {
    return Invalid(StrCat("its storage of ", spec.storage_nbytes, " bytes at ", spec.storage_address,
                          " passes the address space"));
  }
  if (span_bytes == 0) return Status::Ok();  // torch gives an empty tensor the address 0, wherever its storage is
  const bool starts_inside = spec.address >= spec.storage_address && spec.address <= storage_end;
  if (starts_inside && span_bytes <= storage_end - spec.address) return Status::Ok();
  return Invalid(StrCat("its ", span_bytes, " bytes at ", spec.address, " reach outside its storage of ",
                        spec.storage_nbytes, " bytes at ", spec.storage_address));
}

// Storages that share a byte become one range. Ranges that only touch stay apart: they are separate allocations.
std::vector<DeviceRange> MergeStorages(const std::vector<TensorSpec>& specs) {
  std::vector<DeviceRange> storages;
  storages.reserve(specs.size());
  for (const TensorSpec& spec : specs) {
    if (spec.storage_nbytes > 0) storages.push_back({spec.storage_address, spec.storage_nbytes});
  }
  std::sort(storages.begin(), storages.end(), [](const auto& a, const auto& b) { return a.address < b.address; });
  std::vector<DeviceRange> merged;
  for (const DeviceRange& storage : storages) {
    if (!merged.empty() && storage.address < merged.back().address + merged.back().nbytes) {
      DeviceRange& last = merged.back();
      last.nbytes = std::max(last.nbytes, storage.address + storage.nbytes - last.address);
    } else {
      merged.push_back(storage);
    }
  }
  return merged;
}

// The index of the range that holds `address`, which one does.
size_t RangeOf(const std::vector<DeviceRange>& ranges, uint64_t address) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), address,
                                      [](uint64_t value, const DeviceRange& range) { return value < range.address; });
  return static_cast<size_t>(after - ranges.begin()) - 1;
}

// Large ranges first, then small ones, each by the smallest name they hold; specs are in name order. Sets every
// record's extent and offset.
std::vector<DeviceRange> OrderExtents(const std::vector<TensorSpec>& specs, const std::vector<DeviceRange>& ranges,
                                      const std::vector<uint64_t>& spans, std::vector<TensorRecord>& records) {
  constexpr size_t kNobody = SIZE_MAX;
  std::vector<size_t> smallest(ranges.size(), kNobody);
  std::vector<size_t> range_of(specs.size(), kNobody);
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].storage_nbytes == 0) continue;
    range_of[i] = RangeOf(ranges, specs[i].storage_address);
    if (smallest[range_of[i]] == kNobody) smallest[range_of[i]] = i;
  }
  std::vector<size_t> order(ranges.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const bool a_small = !IsLarge(ranges[a].nbytes);
    const bool b_small = !IsLarge(ranges[b].nbytes);
    return a_small != b_small ? b_small : smallest[a] < smallest[b];
  });
  std::vector<DeviceRange> sources;
  std::vector<uint32_t> extent_of(ranges.size());
  for (const size_t range : order) {
    extent_of[range] = static_cast<uint32_t>(sources.size());
    sources.push_back(ranges[range]);
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    if (range_of[i] == kNobody) continue;
    records[i].extent = extent_of[range_of[i]];
    records[i].offset = spans[i] == 0 ? 0 : specs[i].address - ranges[range_of[i]].address;
  }
  return sources;
}

// Running numbers for objects, in name order. Names of one object describe the same bytes.
Status NumberObjects(const std::vector<TensorSpec>& specs, std::vector<TensorRecord>& records) {
  std::unordered_map<uint64_t, size_t> first_name;
  for (size_t i = 0; i < specs.size(); ++i) {
    const auto [known, is_new] = first_name.try_emplace(specs[i].object, i);
    records[i].object = is_new ? first_name.size() - 1 : records[known->second].object;
    if (!SameBytes(records[i], records[known->second])) {
      return Invalid(StrCat(TensorIs(specs[i]), "it is said to be the same object as ",
                            Quoted(specs[known->second].name), " but differs in dtype, shape, strides or address"));
    }
  }
  return Status::Ok();
}

uint64_t UncoveredBytes(const std::vector<TensorRecord>& records, const std::vector<uint64_t>& spans,
                        const std::vector<DeviceRange>& sources) {
  struct Covered {
    uint32_t extent;
    uint64_t begin, end;
  };
  std::vector<Covered> covered;
  for (size_t i = 0; i < records.size(); ++i) {
    if (spans[i] > 0) covered.push_back({*records[i].extent, records[i].offset, records[i].offset + spans[i]});
  }
  std::sort(covered.begin(), covered.end(), [](const Covered& a, const Covered& b) {
    return a.extent != b.extent ? a.extent < b.extent : a.begin < b.begin;
  });
  uint64_t uncovered = 0;
  for (const DeviceRange& source : sources) uncovered += source.nbytes;
  uint64_t done = 0;  // bytes [0, done) of the current extent are accounted for
  for (size_t i = 0; i < covered.size(); ++i) {
    if (i == 0 || covered[i].extent != covered[i - 1].extent) done = 0;
    if (covered[i].end <= done) continue;
    uncovered -= covered[i].end - std::max(done, covered[i].begin);
    done = covered[i].end;
  }
  return uncovered;
}

}  // namespace

Result<Layout> PlanLayout(std::vector<TensorSpec> tensors, uint64_t header_limit) {
  if (tensors.size() > UINT32_MAX) return Invalid(StrCat(tensors.size(), " tensors; at most 4294967295 are possible"));
  std::sort(tensors.begin(), tensors.end(), [](const TensorSpec& a, const TensorSpec& b) { return a.name < b.name; });
  Layout layout;
  std::vector<uint64_t> spans;
  for (size_t i = 0; i < tensors.size(); ++i) {
    TensorSpec& spec = tensors[i];
    if (i > 0 && spec.name == tensors[i - 1].name) return Invalid(StrCat(TensorIs(spec), "the name stands twice"));
    auto record = StartRecord(spec);
    if (!record.ok()) return std::move(record).status().Prefixed(TensorIs(spec));
    const auto span = SpanBytes(*record);
    if (!span.ok()) return span.status().Prefixed(TensorIs(spec));
    if (Status status = CheckInsideStorage(spec, *span); !status.ok())
      return std::move(status).Prefixed(TensorIs(spec));
    layout.tensors.push_back(*std::move(record));
    spans.push_back(*span);
  }
  layout.sources = OrderExtents(tensors, MergeStorages(tensors), spans, layout.tensors);
  RETURN_IF_ERROR(NumberObjects(tensors, layout.tensors));

  std::vector<uint64_t> nbytes;
  nbytes.reserve(layout.sources.size());
  for (const DeviceRange& source : layout.sources) nbytes.push_back(source.nbytes);
  ASSIGN_OR_RETURN(Placement placement, PlaceExtents(nbytes));
  ASSIGN_OR_RETURN(layout.header, BuildHeader(layout.tensors, nbytes, placement, header_limit));
  layout.data_start = layout.header.size();
  layout.blob_bytes = layout.data_start + placement.data_bytes;
  if (layout.blob_bytes > kMaxInteger)
    return Invalid(StrCat("the blob of ", layout.blob_bytes, " bytes passes 2^53-1"));
  layout.file_offsets = std::move(placement.offsets);
  for (uint64_t& offset : layout.file_offsets) offset += layout.data_start;
  layout.uncovered_bytes = UncoveredBytes(layout.tensors, spans, layout.sources);
  return layout;
}

}  // namespace coldsnap
