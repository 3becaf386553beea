#include "cc/testing/fake_cufile/fake_cufile.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

#include "cufile.h"

namespace {

using coldsnap::FakeCufile;

FakeCufile fake;
std::mutex mutex;
std::map<const void*, size_t> buffers;
uint64_t direct_reads = 0;
uint64_t posix_reads = 0;
int stats_level = 0;
bool stats_started = false;

CUfileError_t Answer(int number) { return {static_cast<CUfileOpError>(number), CUDA_SUCCESS}; }

bool GoesThroughHost() { return fake.bounces || fake.force_compat || (!fake.nvidia_fs && !fake.p2pdma); }

uint64_t Registered() {
  uint64_t sum = 0;
  for (const auto& [base, length] : buffers) sum += length;
  return sum;
}

}  // namespace

__attribute__((visibility("default"))) FakeCufile* fake_cufile() { return &fake; }

CUfileError_t cuFileDriverOpen() {
  fake.calls += "open ";
  const char* path = std::getenv("CUFILE_LOGFILE_PATH");
  fake.log_path = path == nullptr ? "" : path;
  std::this_thread::sleep_for(std::chrono::milliseconds(fake.open_ms));
  if (fake.open_error != 0) return Answer(fake.open_error);
  const bool can = fake.nvidia_fs || fake.p2pdma || fake.bounces || fake.allow_compat;
  return Answer(can ? 0 : CU_FILE_DRIVER_NOT_INITIALIZED);
}

// NVIDIA's header renames this to cuFileDriverClose_v2.
CUfileError_t cuFileDriverClose() {
  fake.calls += "-open ";
  stats_started = false;
  return Answer(0);
}

CUfileError_t cuFileDriverGetProperties(CUfileDrvProps_t* props) {
  *props = {};
  if (fake.nvidia_fs) {
    props->nvfs.major_version = 2;
    props->nvfs.minor_version = 26;
    props->nvfs.dstatusflags |= 1U << CU_FILE_NVME_SUPPORTED;
  }
  if (fake.p2pdma) props->nvfs.dstatusflags |= 1U << CU_FILE_NVME_P2P_SUPPORTED;
  return Answer(fake.properties_error);
}

CUfileError_t cuFileGetVersion(int* version) {
  *version = fake.version;
  return Answer(fake.version_error);
}

CUfileError_t cuFileSetParameterBool(CUFileBoolConfigParameter_t param, bool value) {
  if (param == CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE) fake.allow_compat = value;
  if (param == CUFILE_PARAM_FORCE_COMPAT_MODE) fake.force_compat = value;
  if (param == CUFILE_PARAM_USE_PCIP2PDMA) fake.asked_for_p2pdma = value;
  return Answer(fake.parameter_error);
}

CUfileError_t cuFileSetStatsLevel(int level) {
  stats_level = level;
  return Answer(0);
}

CUfileError_t cuFileStatsStart() {
  stats_started = stats_level == 3;
  return Answer(0);
}

// Two GPUs, so that whoever asks has to look at both.
CUfileError_t cuFileGetStatsL3(CUfileStatsLevel3_t* stats) {
  const std::lock_guard lock(mutex);
  *stats = {};
  stats->num_gpus = 2;
  stats->per_gpu_stats[0].n_posix_reads = posix_reads / 2;
  stats->per_gpu_stats[1].n_posix_reads = posix_reads - posix_reads / 2;
  auto& direct = fake.nvidia_fs ? stats->per_gpu_stats[1].n_nvfs_reads : stats->per_gpu_stats[1].n_p2p_reads;
  direct = direct_reads;
  return Answer(fake.stats_error);
}

CUfileError_t cuFileHandleRegister(CUfileHandle_t* handle, CUfileDescr_t* descr) {
  fake.calls += "file ";
  if (fake.file_error != 0) return Answer(fake.file_error);
  // The real one (1.15.1) takes no such flags.
  if ((::fcntl(descr->handle.fd, F_GETFL) & (O_NONBLOCK | O_NOFOLLOW | O_APPEND)) != 0) return Answer(5019);
  if (descr->type != CU_FILE_HANDLE_TYPE_OPAQUE_FD) return Answer(CU_FILE_INVALID_VALUE);
  *handle = new int(descr->handle.fd);
  return Answer(0);
}

void cuFileHandleDeregister(CUfileHandle_t handle) {
  fake.calls += "-file ";
  delete static_cast<int*>(handle);
}

CUfileError_t cuFileBufRegister(const void* base, size_t length, int /*flags*/) {
  const std::lock_guard lock(mutex);
  if (fake.buffer_error != 0) return Answer(fake.buffer_error);
  if (length > fake.largest_buffer) return Answer(CU_FILE_INVALID_MAPPING_SIZE);
  if (Registered() + length > fake.all_buffers) return Answer(CU_FILE_GPU_MEMORY_PINNING_FAILED);
  fake.calls += "buffer ";
  buffers[base] = length;
  return Answer(0);
}

CUfileError_t cuFileBufDeregister(const void* base) {
  const std::lock_guard lock(mutex);
  fake.calls += "-buffer ";
  return Answer(buffers.erase(base) == 1 ? 0 : CU_FILE_INVALID_VALUE);
}

// Through a descriptor of its own: the caller's has O_DIRECT, which host memory of a test is not aligned for.
ssize_t cuFileRead(CUfileHandle_t handle, void* base, size_t size, off_t file_offset, off_t base_offset) {
  const std::lock_guard lock(mutex);
  const auto buffer = buffers.find(base);
  if (buffer == buffers.end()) return -CU_FILE_MEMORY_NOT_REGISTERED;
  if (static_cast<size_t>(base_offset) + size > buffer->second) return -CU_FILE_INVALID_MAPPING_RANGE;
  if (fake.read_error != 0) return -fake.read_error;
  if (fake.read_errno != 0 || fake.interrupted_reads > 0) {
    errno = fake.interrupted_reads-- > 0 ? EINTR : fake.read_errno;
    return -1;
  }
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", *static_cast<int*>(handle));
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  const ssize_t got =
      ::pread(fd, static_cast<char*>(base) + base_offset, std::min<uint64_t>(size, fake.longest_read), file_offset);
  ::close(fd);
  if (fake.counts && stats_started) ++(GoesThroughHost() ? posix_reads : direct_reads);
  return got;
}
