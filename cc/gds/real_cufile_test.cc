// Our declarations against NVIDIA's header and library, which third_party/cuda pins. Runs with and without a GPU.
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <type_traits>

#include "cc/gds/cufile_api.h"
#include "cc/gds/gds.h"
#include "cc/testing/temp_dir.h"
#include "cufile.h"
#include "gtest/gtest.h"

namespace coldsnap {
namespace {

#define SAME_SIZE(ours, theirs) static_assert(sizeof(cufile::ours) == sizeof(theirs))
#define SAME_FIELD(ours, our_field, theirs, their_field)                              \
  static_assert(offsetof(cufile::ours, our_field) == offsetof(theirs, their_field) && \
                sizeof(cufile::ours::our_field) == sizeof(std::declval<theirs>().their_field))

SAME_SIZE(Error, CUfileError_t);
SAME_FIELD(Error, number, CUfileError_t, err);
SAME_FIELD(Error, cuda, CUfileError_t, cu_err);
SAME_SIZE(Properties, CUfileDrvProps_t);
SAME_FIELD(Properties, nvfs_major_version, CUfileDrvProps_t, nvfs.major_version);
SAME_FIELD(Properties, nvfs_minor_version, CUfileDrvProps_t, nvfs.minor_version);
SAME_FIELD(Properties, nvfs_poll_thresh_size, CUfileDrvProps_t, nvfs.poll_thresh_size);
SAME_FIELD(Properties, nvfs_max_direct_io_size, CUfileDrvProps_t, nvfs.max_direct_io_size);
SAME_FIELD(Properties, nvfs_dstatusflags, CUfileDrvProps_t, nvfs.dstatusflags);
SAME_FIELD(Properties, nvfs_dcontrolflags, CUfileDrvProps_t, nvfs.dcontrolflags);
SAME_FIELD(Properties, fflags, CUfileDrvProps_t, fflags);
SAME_FIELD(Properties, max_device_cache_size, CUfileDrvProps_t, max_device_cache_size);
SAME_FIELD(Properties, per_buffer_cache_size, CUfileDrvProps_t, per_buffer_cache_size);
SAME_FIELD(Properties, max_device_pinned_mem_size, CUfileDrvProps_t, max_device_pinned_mem_size);
SAME_FIELD(Properties, max_batch_io_size, CUfileDrvProps_t, max_batch_io_size);
SAME_FIELD(Properties, max_batch_io_timeout_msecs, CUfileDrvProps_t, max_batch_io_timeout_msecs);
SAME_SIZE(Descriptor, CUfileDescr_t);
SAME_FIELD(Descriptor, type, CUfileDescr_t, type);
SAME_FIELD(Descriptor, handle, CUfileDescr_t, handle);
SAME_FIELD(Descriptor, fs_ops, CUfileDescr_t, fs_ops);
SAME_SIZE(GpuStats, CUfilePerGpuStats_t);
SAME_FIELD(GpuStats, uuid, CUfilePerGpuStats_t, uuid);
SAME_FIELD(GpuStats, n_total_reads, CUfilePerGpuStats_t, n_total_reads);
SAME_FIELD(GpuStats, n_p2p_reads, CUfilePerGpuStats_t, n_p2p_reads);
SAME_FIELD(GpuStats, n_nvfs_reads, CUfilePerGpuStats_t, n_nvfs_reads);
SAME_FIELD(GpuStats, n_posix_reads, CUfilePerGpuStats_t, n_posix_reads);
SAME_SIZE(Stats, CUfileStatsLevel3_t);
SAME_FIELD(Stats, num_gpus, CUfileStatsLevel3_t, num_gpus);
SAME_FIELD(Stats, per_gpu_stats, CUfileStatsLevel3_t, per_gpu_stats);

static_assert(cufile::kHandleTypeFd == CU_FILE_HANDLE_TYPE_OPAQUE_FD);
static_assert(cufile::kAllowCompatMode == CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE);
static_assert(cufile::kForceCompatMode == CUFILE_PARAM_FORCE_COMPAT_MODE);
static_assert(cufile::kUsePciP2pdma == CUFILE_PARAM_USE_PCIP2PDMA);
static_assert(cufile::kNvmeP2pSupported == CU_FILE_NVME_P2P_SUPPORTED);
static_assert(cufile::kCudaDriverError == CU_FILE_CUDA_DRIVER_ERROR);
static_assert(std::is_same_v<decltype(cufile::Api::read), decltype(&cuFileRead)>);
static_assert(std::is_same_v<decltype(cufile::Api::release_file), decltype(&cuFileHandleDeregister)>);
// The other calls have types of ours in them; the stand-in, built with NVIDIA's header, answers each.

class RealCufile : public testing::Test {
 protected:
  // cuFile leaves its log in the working directory, so that is one of our own.
  void SetUp() override {
    library_ = std::filesystem::absolute(std::getenv("COLDSNAP_TEST_CUFILE"));
    std::filesystem::current_path(temp_.path());
  }
  void TearDown() override { std::filesystem::current_path(before_); }

  const std::filesystem::path before_ = std::filesystem::current_path();
  TempDir temp_;
  std::string library_;
};

TEST_F(RealCufile, HasEveryFunction) {
  const Result<cufile::Api> api = cufile::Load(library_);
  ASSERT_TRUE(api.ok()) << api.status().message();
  int version = 0;
  EXPECT_EQ(api->get_version(&version).number, 0);
  EXPECT_EQ(version / 10, 115);
}

TEST_F(RealCufile, ADriverThatDoesNotOpenSaysWhyAndLeavesNoLog) {
  const Result<SharedGdsDriver> driver = GdsDriver::Open({.library = library_});
  EXPECT_TRUE(std::filesystem::is_empty(temp_.path()));
  if (driver.ok()) GTEST_SKIP() << "this machine has GPUDirect Storage: " << (*driver)->expected().text;
  EXPECT_EQ(driver.status().code(), Code::kRouteUnavailable);
  EXPECT_EQ(driver.status().domain(), Domain::kGds);
  // 5033: no libcuda.so.1; 5001: a driver, but no direct path; 5011: a driver without a GPU.
  EXPECT_TRUE(driver.status().native() == 5033 || driver.status().native() == 5001 || driver.status().native() == 5011)
      << driver.status().message();
  EXPECT_EQ(driver.status().message().find("open cuFile's driver: cuFile error 50"), 0U) << driver.status().message();
  EXPECT_FALSE(driver.status().remedy().empty());
}

}  // namespace
}  // namespace coldsnap
