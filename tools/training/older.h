#pragma once
#include <string>

#include "runtime/checkpoint.h"

namespace ssn {

/// A checkpoint of this version of the format or an earlier one, as if this version had written it: what was
/// named otherwise is renamed, and what was missing is what it must have been.
Archive load_run(const std::string& path);

}  // namespace ssn
