#include "cc/hydrate/nvtx.h"

#include <nvtx3/nvToolsExt.h>

namespace coldsnap::nvtx {
namespace {

nvtxDomainHandle_t Domain() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("coldsnap");
  return domain;
}

}  // namespace

void Push(const char* name) {
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name;
  nvtxDomainRangePushEx(Domain(), &attributes);
}

void Pop() { nvtxDomainRangePop(Domain()); }

}  // namespace coldsnap::nvtx
