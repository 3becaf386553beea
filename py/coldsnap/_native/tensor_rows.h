// Tensors as Python describes them to the writers.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cc/artifact/tensor.h"

namespace coldsnap {

// name, dtype, shape, strides, address, storage_address, storage_nbytes, object, role, attrs
using TensorRow = std::tuple<std::string, std::string, std::vector<uint64_t>, std::vector<int64_t>, uint64_t, uint64_t,
                             uint64_t, uint64_t, std::string, std::vector<std::string>>;

inline std::vector<TensorSpec> SpecsOf(std::vector<TensorRow> rows) {
  std::vector<TensorSpec> specs(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    TensorSpec& spec = specs[i];
    std::tie(spec.name, spec.dtype, spec.shape, spec.strides, spec.address, spec.storage_address, spec.storage_nbytes,
             spec.object, spec.role, spec.attrs) = std::move(rows[i]);
  }
  return specs;
}

}  // namespace coldsnap
