#pragma once
#include <string>

#include "runtime/checkpoint.h"

namespace ssn {

/// Reads NumPy's .npz (a zip archive of .npy arrays, as numpy.savez and savez_compressed write it): tensors
/// under the arrays' names, row-major whatever their order in the file. float16 becomes f32 and bool u8;
/// other types that no DType holds, and big-endian numbers, are refused. An archive that unpacks to more than
/// 1 MiB and 32 times its size is refused. An Error names file and array.
Archive read_npz(const std::string& path);

}  // namespace ssn
