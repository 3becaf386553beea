// The part of cuFile's C interface (GPUDirect Storage) that we call, in declarations of our own: libcufile.so.0 is
// opened at run time and never linked, so the module loads where there is none. real_cufile_test.cc compares every
// size, offset and value with NVIDIA's header.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "cc/base/status.h"

namespace coldsnap::cufile {

struct Error {  // CUfileError_t
  int number = 0;
  int cuda = 0;  // CUresult, of meaning with number 5011
};

struct Properties {  // CUfileDrvProps_t; `nvfs` there is a struct of its own
  unsigned nvfs_major_version;
  unsigned nvfs_minor_version;
  size_t nvfs_poll_thresh_size;
  size_t nvfs_max_direct_io_size;
  unsigned nvfs_dstatusflags;
  unsigned nvfs_dcontrolflags;
  unsigned fflags;
  unsigned max_device_cache_size;
  unsigned per_buffer_cache_size;
  unsigned max_device_pinned_mem_size;
  unsigned max_batch_io_size;
  unsigned max_batch_io_timeout_msecs;
};

struct Descriptor {  // CUfileDescr_t
  int type;
  union {
    int fd;
    void* pointer;
  } handle;
  const void* fs_ops;
};

struct GpuStats {  // CUfilePerGpuStats_t
  char uuid[16];
  uint64_t read_bytes_and_rates[4];
  uint64_t n_total_reads;
  uint64_t n_p2p_reads;
  uint64_t n_nvfs_reads;
  uint64_t n_posix_reads;
  uint64_t unused[21];
};

inline constexpr size_t kMaxGpus = 16;
struct Stats {  // CUfileStatsLevel3_t
  uint64_t levels_1_and_2[128];
  uint32_t num_gpus;
  GpuStats per_gpu_stats[kMaxGpus];
};

inline constexpr int kHandleTypeFd = 1;       // CU_FILE_HANDLE_TYPE_OPAQUE_FD
inline constexpr int kAllowCompatMode = 1;    // CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE
inline constexpr int kForceCompatMode = 2;    // CUFILE_PARAM_FORCE_COMPAT_MODE
inline constexpr int kUsePciP2pdma = 7;       // CUFILE_PARAM_USE_PCIP2PDMA
inline constexpr int kNvmeP2pSupported = 11;  // CU_FILE_NVME_P2P_SUPPORTED, a bit of dstatusflags
inline constexpr int kP2pSupported = 4;       // CU_FILE_P2P_SUPPORTED, a bit of fflags, from 1.16 on
inline constexpr int kCudaDriverError = 5011;
inline constexpr int kStatsPerGpu = 3;  // level of cuFileSetStatsLevel

// 1.15 has the first statistics interface, 1.19 lays them out in another way (and would write past the end of Stats).
inline constexpr int kMinVersion = 1150;
inline constexpr int kEndVersion = 1190;

struct Api {
  Error (*driver_open)();
  Error (*driver_close)();
  Error (*get_properties)(Properties*);
  Error (*get_version)(int*);
  Error (*set_bool)(int parameter, bool value);
  Error (*set_stats_level)(int level);
  Error (*start_stats)();
  Error (*get_stats)(Stats*);
  Error (*register_file)(void** handle, Descriptor*);
  void (*release_file)(void* handle);
  Error (*register_buffer)(const void* address, size_t nbytes, int flags);
  Error (*release_buffer)(const void* address);
  ssize_t (*read)(void* handle, void* address, size_t nbytes, off_t file_offset, off_t address_offset);
};

// The functions of `library`, a name that the dynamic linker finds or a path. It stays loaded until the process ends:
// cuFile has threads of its own. A missing library or function is kRouteUnavailable with the linker's words.
Result<Api> Load(const std::string& library);

}  // namespace coldsnap::cufile
