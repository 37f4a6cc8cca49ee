#pragma once
#include <string>

#include "runtime/checkpoint.h"

namespace ssn {

/// Reads a safetensors file (an 8-byte length, a JSON header, the tensors' bytes side by side): tensors under
/// their names, the header's `__metadata__` as text attributes. F16 becomes f32 and BOOL u8; other types that
/// no DType holds are refused. Everything that the header says is compared with the file's size before memory
/// is taken for it. An Error names file and tensor.
Archive read_safetensors(const std::string& path);

/// Writes one, in the way of save_checkpoint: whole or not at all. Attributes become `__metadata__`, numbers
/// as text.
void write_safetensors(const std::string& path, const Archive& archive);

}  // namespace ssn
