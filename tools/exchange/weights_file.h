#pragma once
#include <string>

#include "runtime/checkpoint.h"

namespace ssn {

/// Reads any file of tensors, by what it is and not by its name: a checkpoint or another HDF5 file, a NumPy
/// .npz archive, or safetensors. Names of an HDF5 file's tensors are their paths.
Archive read_weights(const std::string& path);

}  // namespace ssn
