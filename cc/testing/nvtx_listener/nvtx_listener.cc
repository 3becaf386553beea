// Notes the ranges that a program opens and closes in the domain "coldsnap": a letter, '+' or '-', for each, in a file
// descriptor that the test keeps, with the names of those that are opened.
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

namespace {

int domain_mark = 0;  // its address stands for the domain

void Note(const std::string& line) {
  const char* const fd = std::getenv("NVTX_LISTENER_FD");
  if (fd == nullptr) return;
  [[maybe_unused]] const ssize_t written = ::write(std::atoi(fd), line.data(), line.size());
}

nvtxDomainHandle_t NVTX_API DomainCreate(const char* name) {
  if (std::strcmp(name, "coldsnap") != 0) return nullptr;
  return reinterpret_cast<nvtxDomainHandle_t>(&domain_mark);
}

bool IsOurs(nvtxDomainHandle_t domain) { return domain == reinterpret_cast<nvtxDomainHandle_t>(&domain_mark); }

int NVTX_API Push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  if (IsOurs(domain)) Note(std::string("+") + attributes->message.ascii + "\n");
  return 0;
}

int NVTX_API Pop(nvtxDomainHandle_t domain) {
  if (IsOurs(domain)) Note("-\n");
  return 0;
}

template <typename Function>
void Put(NvtxFunctionTable table, int at, Function function) {
  *table[at] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const auto* const callbacks = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
  Put(table, NVTX_CBID_CORE2_DomainCreateA, &DomainCreate);
  Put(table, NVTX_CBID_CORE2_DomainRangePushEx, &Push);
  Put(table, NVTX_CBID_CORE2_DomainRangePop, &Pop);
  return 1;
}
