#include "runtime/safetensors.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/half.h"
#include "runtime/liveness.h"

namespace ssn {
namespace {

using Json = nlohmann::json;
constexpr std::uint64_t kLongestHeader = 100'000'000;  // the format's own limit
constexpr std::size_t kAlignment = 8;

struct FileType {
  std::string_view name;
  DType dtype;  // in memory
  std::size_t size;
};
constexpr FileType kTypes[] = {{"F32", DType::f32, 4}, {"F64", DType::f64, 8}, {"BF16", DType::bf16, 2},
                               {"I32", DType::i32, 4}, {"I64", DType::i64, 8}, {"U8", DType::u8, 1},
                               {"F16", DType::f32, 2}, {"BOOL", DType::u8, 1}};
constexpr std::size_t kWritten = 6;  // the first ones, in which memory and file are alike

struct Entry {
  std::string name;
  FileType type;
  Shape shape;
  std::uint64_t begin, end;  // in the data
};

/// A reader's errors: `path: name: what`.
template <class... A>
void require(bool condition, const std::string& path, std::string_view name, fmt::format_string<A...> format,
             A&&... args) {
  if (!condition)
    fail("safetensors", "{}: {}{}{}", path, name, name.empty() ? "" : ": ",
         fmt::format(format, std::forward<A>(args)...));
}

std::optional<std::vector<std::uint64_t>> whole_numbers(const Json& json, const char* key) {
  const auto it = json.find(key);
  if (it == json.end() || !it->is_array()) return {};
  if (!std::ranges::all_of(*it, [](const Json& n) { return n.is_number_unsigned(); })) return {};
  return it->get<std::vector<std::uint64_t>>();
}

/// Of the tensor that the header describes; `available` bytes of data follow the header.
Entry entry_of(const std::string& path, const std::string& name, const Json& json, std::uint64_t available) {
  require(json.is_object(), path, name, "the header has no description of it");
  const auto dtype = json.find("dtype");
  require(dtype != json.end() && dtype->is_string(), path, name, "the header has no dtype for it");
  const auto* type = std::ranges::find(kTypes, dtype->get<std::string>(), &FileType::name);
  require(type != std::end(kTypes), path, name, "its type {} cannot be read: convert it to F32",
          dtype->get<std::string>());
  const auto shape = whole_numbers(json, "shape"), offsets = whole_numbers(json, "data_offsets");
  require(shape && offsets && offsets->size() == 2, path, name,
          "expected a shape and two data_offsets, all whole numbers");
  require(shape->size() <= Shape::kMaxRank, path, name, "it has {} dimensions, at most {} are possible",
          shape->size(), Shape::kMaxRank);
  const std::uint64_t begin = (*offsets)[0], end = (*offsets)[1];
  require(begin <= end && end <= available, path, name, "it would be at bytes {} to {} of {}", begin, end,
          available);
  std::uint64_t bytes = type->size;
  bool fits = true;
  for (const std::uint64_t n : *shape) fits = fits && !__builtin_mul_overflow(bytes, n, &bytes);
  require(fits && bytes == end - begin, path, name, "its shape {} does not go with its {} bytes",
          fmt::join(*shape, "x"), end - begin);
  std::array<std::int64_t, Shape::kMaxRank> dims{};
  for (std::size_t i = 0; i < shape->size(); ++i) {
    require((*shape)[i] <= std::uint64_t{1} << 48, path, name, "a dimension of {} is not possible",
            (*shape)[i]);
    dims[i] = static_cast<std::int64_t>((*shape)[i]);
  }
  return {name, *type, Shape(std::span<const std::int64_t>(dims.data(), shape->size())), begin, end};
}

Tensor read_tensor(std::ifstream& file, const std::string& path, const Entry& entry) {
  const auto read = [&](void* to, std::uint64_t bytes) {
    file.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes));
    require(static_cast<bool>(file), path, entry.name, "cannot read it");
  };
  Tensor tensor = Tensor::empty(entry.shape, entry.type.dtype);
  if (entry.type.name != "F16") {
    read(tensor.raw(), entry.end - entry.begin);
    return tensor;
  }
  std::vector<std::uint16_t> halves(static_cast<std::size_t>(tensor.size()));
  read(halves.data(), entry.end - entry.begin);
  std::ranges::transform(halves, tensor.data<float>(), from_half);
  return tensor;
}

/// The parsed header; `data` becomes the place of the tensors' bytes.
Json read_header(std::ifstream& file, const std::string& path, std::uint64_t size, std::uint64_t& data) {
  std::uint64_t length = 0;
  require(size >= sizeof(length), path, "", "it has {} bytes, too few for a safetensors file", size);
  file.read(reinterpret_cast<char*>(&length), sizeof(length));
  require(length <= std::min(size - sizeof(length), kLongestHeader), path, "",
          "it is no safetensors file, or cut off: its header would have {} bytes", length);
  std::string text(length, '\0');
  file.read(text.data(), static_cast<std::streamsize>(length));
  require(static_cast<bool>(file), path, "", "cannot read its header");
  Json header = Json::parse(text, nullptr, false);
  require(header.is_object(), path, "", "it is no safetensors file: its header is not a JSON object");
  data = sizeof(length) + length;
  return header;
}

void take_metadata(const std::string& path, const Json& metadata, Archive& archive) {
  require(metadata.is_object(), path, "__metadata__", "it is not a JSON object");
  for (const auto& [name, value] : metadata.items()) {
    require(value.is_string(), path, "__metadata__", "{} is not a text", name);
    archive.attributes[name] = value.get<std::string>();
  }
}

std::string text_of(const Attribute& attribute) {
  return std::visit(
      [](const auto& value) {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, std::string>)
          return value;
        else if constexpr (std::is_arithmetic_v<T>)
          return fmt::format("{}", value);
        else
          return fmt::format("{}", fmt::join(value, ", "));
      },
      attribute);
}

/// The larger elements first, so that all lie at multiples of their size.
std::vector<std::pair<std::string, Tensor>> in_file_order(const Archive& archive) {
  std::vector<std::pair<std::string, Tensor>> order;
  for (const auto& [name, tensor] : archive.tensors) order.emplace_back(name, tensor.to(Device::cpu));
  std::ranges::stable_sort(order, std::greater<>(), [](const auto& t) { return size_of(t.second.dtype()); });
  return order;
}

}  // namespace

Archive read_safetensors(const std::string& path) {
  const Busy busy("reads a safetensors file");
  std::ifstream file(path, std::ios::binary);
  std::error_code error;
  const std::uint64_t size = std::filesystem::file_size(path, error);
  require(file && !error, path, "", "cannot read it: {}", error ? error.message() : "no permission?");
  std::uint64_t data = 0;
  const Json header = read_header(file, path, size, data);
  Archive archive;
  std::vector<Entry> entries;
  for (const auto& [name, json] : header.items()) {
    if (name == "__metadata__")
      take_metadata(path, json, archive);
    else
      entries.push_back(entry_of(path, name, json, size - data));
  }
  std::ranges::sort(entries, {}, [](const Entry& e) { return std::pair(e.begin, e.end); });
  std::uint64_t at = 0;
  for (const Entry& entry : entries) {
    require(entry.begin == at, path, entry.name, "it begins at byte {} of the data, expected {}", entry.begin,
            at);
    archive.tensors[entry.name] = read_tensor(file, path, entry);
    at = entry.end;
  }
  require(at == size - data, path, "", "{} bytes of it belong to no tensor", size - data - at);
  return archive;
}

void write_safetensors(const std::string& path, const Archive& archive) {
  const Busy busy("writes a safetensors file");
  const auto tensors = in_file_order(archive);
  Json header = Json::object();
  for (const auto& [name, value] : archive.attributes) header["__metadata__"][name] = text_of(value);
  std::uint64_t at = 0;
  for (const auto& [name, tensor] : tensors) {
    const auto* type = std::find_if(kTypes, kTypes + kWritten,
                                    [dtype = tensor.dtype()](const FileType& t) { return t.dtype == dtype; });
    header[name] = {{"dtype", type->name},
                    {"shape", std::vector<std::int64_t>(tensor.shape().begin(), tensor.shape().end())},
                    {"data_offsets", {at, at + tensor.bytes()}}};
    at += tensor.bytes();
  }
  std::string text = header.dump();
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  const std::uint64_t length = text.size();
  replace_file(path, [&](const std::string& temporary) {
    std::ofstream file(temporary, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), sizeof(length));
    file.write(text.data(), static_cast<std::streamsize>(text.size()));
    for (const auto& [name, tensor] : tensors)
      file.write(static_cast<const char*>(tensor.raw()), static_cast<std::streamsize>(tensor.bytes()));
    file.close();
    require(static_cast<bool>(file), path, "", "cannot write it: is the disk full?");
  });
}

}  // namespace ssn
