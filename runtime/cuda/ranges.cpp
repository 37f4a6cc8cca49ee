// Spans as NVTX ranges, for Nsight Systems.
#include <nvtx3/nvToolsExt.h>

#include "runtime/trace.h"

namespace ssn::detail {

void open_range(const char* name) {
  nvtxRangePushA(name);
}
void close_range() {
  nvtxRangePop();
}

}  // namespace ssn::detail
