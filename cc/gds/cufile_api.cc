#include "cc/gds/cufile_api.h"

#include <dlfcn.h>

namespace coldsnap::cufile {
namespace {

Status Unavailable(const std::string& library, const char* why) {
  return Status(Code::kRouteUnavailable, StrCat("load cuFile from ", library, ": ", why))
      .WithRemedy(
          "install libcufile 1.15 to 1.18 (part of CUDA 13; the Python package nvidia-cufile) where the dynamic "
          "linker finds it, or use another route");
}

}  // namespace

Result<Api> Load(const std::string& library) {
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return Unavailable(library, ::dlerror());
  bool complete = true;
  std::string why;
  const auto find = [&]<typename Function>(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(::dlsym(handle, name));
    if (function != nullptr || !complete) return;
    complete = false;
    why = ::dlerror();
  };
  Api api{};
  find(api.driver_open, "cuFileDriverOpen");
  find(api.driver_close, "cuFileDriverClose_v2");
  find(api.get_properties, "cuFileDriverGetProperties");
  find(api.get_version, "cuFileGetVersion");
  find(api.set_bool, "cuFileSetParameterBool");
  find(api.set_stats_level, "cuFileSetStatsLevel");
  find(api.start_stats, "cuFileStatsStart");
  find(api.get_stats, "cuFileGetStatsL3");
  find(api.register_file, "cuFileHandleRegister");
  find(api.release_file, "cuFileHandleDeregister");
  find(api.register_buffer, "cuFileBufRegister");
  find(api.release_buffer, "cuFileBufDeregister");
  find(api.read, "cuFileRead");
  if (!complete) return Unavailable(library, why.c_str());
  return api;
}

}  // namespace coldsnap::cufile
