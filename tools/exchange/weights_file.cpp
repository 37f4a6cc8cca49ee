#include "tools/exchange/weights_file.h"

#include <fstream>
#include <utility>

#include "runtime/npz.h"
#include "runtime/safetensors.h"

namespace ssn {
namespace {

bool has_at(std::ifstream& file, std::streamoff offset, std::string_view mark) {
  std::string found(mark.size(), '\0');
  file.clear();
  file.seekg(offset);
  file.read(found.data(), static_cast<std::streamsize>(found.size()));
  return file && found == mark;
}

Archive read_hdf5(const std::string& path) {
  Archive archive = load_hdf5(path);
  if (archive.attributes.contains("format_version")) return as_checkpoint(std::move(archive));
  archive.attributes.clear();  // others' may have the names of ours
  return archive;
}

}  // namespace

Archive read_weights(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  check(static_cast<bool>(file), "weights", "{}: cannot read it: does it exist?", path);
  // HDF5's mark is behind a user block, whose length is nothing or a power of two from 512 on.
  constexpr std::string_view kHdf5 = "\x89HDF\r\n\x1a\n";
  for (std::streamoff at = 0; at <= 1 << 16; at = at == 0 ? 512 : 2 * at)
    if (has_at(file, at, kHdf5)) return read_hdf5(path);
  if (has_at(file, 0, "PK")) return read_npz(path);
  // Behind the length of its header, which is an object in JSON.
  check(has_at(file, 8, "{"), "weights", "{}: it is neither HDF5 nor safetensors nor npz, or damaged", path);
  return read_safetensors(path);
}

}  // namespace ssn
