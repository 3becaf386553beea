// GPUDirect Storage by the stand-in for cuFile, on a machine that "has" nvidia-fs. Writes to host memory.
#pragma once

#include <dlfcn.h>

#include <filesystem>
#include <utility>

#include "cc/base/check.h"
#include "cc/gds/gds.h"
#include "cc/testing/fake_cufile/fake_cufile.h"
#include "cc/testing/temp_dir.h"

namespace coldsnap {

class FakeGds {
 public:
  FakeGds() {
    void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    COLDSNAP_CHECK(library != nullptr);
    control_ = reinterpret_cast<decltype(&fake_cufile)>(::dlsym(library, "fake_cufile"))();
    *control_ = {};
    control_->nvidia_fs = true;
    std::filesystem::create_directory(temp_.path() + "/nvidia-fs");
    temp_.Write("nvidia-fs/version", "version: 2.26\n");
    Result<SharedGdsDriver> driver = GdsDriver::Open({.library = kLibrary, .nvidia_fs = temp_.path() + "/nvidia-fs"});
    COLDSNAP_CHECK(driver.ok());
    driver_ = *std::move(driver);
  }

  const SharedGdsDriver& driver() const { return driver_; }
  FakeCufile& control() { return *control_; }

 private:
  static constexpr char kLibrary[] = "cc/testing/fake_cufile/libcufile.so.0";
  TempDir temp_;
  FakeCufile* control_ = nullptr;
  SharedGdsDriver driver_;
};

}  // namespace coldsnap
