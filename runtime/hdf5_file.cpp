#include "runtime/hdf5_file.h"

#include <fcntl.h>
#include <hdf5.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "runtime/chunk_encoder.h"
#include "runtime/error.h"
#include "runtime/liveness.h"

namespace ssn {
namespace {

/// The library is not thread-safe as distributions build it. A file that could not be closed, as on a full
/// disk, makes its clean-up at the program's end crash, so that is turned off; it is worth nothing to files
/// that are closed.
std::mutex& library() {
  static std::mutex mutex;
  static const bool prepared = H5dont_atexit() >= 0 &&         // before any other call
                               H5PLset_loading_state(0) >= 0;  // a file must not choose code that is loaded
  static_cast<void>(prepared);
  return mutex;
}

/// The innermost message of the library's error stack; of a system call's failure only the system's words.
std::string innermost() {
  std::string text;
  const auto first = [](unsigned, const H5E_error2_t* e, void* out) -> herr_t {
    *static_cast<std::string*>(out) = e->desc ? e->desc : "";
    return 1;  // stop: upward starts at the innermost
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, first, &text);
  constexpr std::string_view kMark = "error message = '";
  if (const auto at = text.find(kMark); at != std::string::npos) {
    text = text.substr(at + kMark.size());
    text = text.substr(0, text.find('\''));
  }
  return text.empty() ? "unknown error" : text;
}

/// An identifier of the library, closed with its scope.
class Id {
 public:
  using Close = herr_t (*)(hid_t);
  Id(hid_t id, Close close) : id_(id), close_(close) {}
  Id(Id&& o) noexcept : id_(std::exchange(o.id_, -1)), close_(o.close_) {}
  Id(const Id&) = delete;
  ~Id() {
    if (id_ >= 0) close_(id_);
  }
  operator hid_t() const { return id_; }

 private:
  hid_t id_;
  Close close_;
};

/// One call of a public function: holds the library, silences its printing, and names file and object in
/// errors.
class Call {
 public:
  Call(const std::string& path, std::string action)
      : lock_(library()), path_(path), action_(std::move(action)) {
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    H5Eclear2(H5E_DEFAULT);
  }
  /// Passes on a result that is not negative; everything that the library returns goes through here.
  template <class T>
  T operator()(T result) const {
    check(result >= 0, "hdf5", "{}: cannot {}: {}", path_, action_, innermost());
    return result;
  }
  Id operator()(hid_t id, Id::Close close) const { return Id((*this)(id), close); }
  template <class... A>
  [[noreturn]] void refuse(fmt::format_string<A...> format, A&&... args) const {
    fail("hdf5", "{}: cannot {}: {}", path_, action_, fmt::format(format, std::forward<A>(args)...));
  }

 private:
  std::lock_guard<std::mutex> lock_;
  const std::string& path_;
  std::string action_;
};

std::string absolute(const std::string& object) {
  return object.starts_with('/') ? object : "/" + object;
}

/// Links by name could lead out of the file, or round in it.
void check_link(const Call& call, hid_t file, const std::string& path) {
  H5L_info_t info;
  call(H5Lget_info(file, path.c_str(), &info, H5P_DEFAULT));
  if (info.type != H5L_TYPE_HARD)
    call.refuse("{} is {} link, which is not followed: put there what it leads to", path,
                info.type == H5L_TYPE_SOFT ? "a soft" : "an external");
}

/// The library answers for the last link only: every link on the way is asked.
bool link_exists(const Call& call, hid_t file, const std::string& object) {
  const std::string path = absolute(object);
  for (std::size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
    const std::string part = path.substr(0, at);
    if (part != "/" && call(H5Lexists(file, part.c_str(), H5P_DEFAULT)) == 0) return false;
    if (part != "/") check_link(call, file, part);
    if (at == std::string::npos) return true;
  }
}

/// Properties for creating an object: without times, so that the same content gives the same bytes.
Id untimed(const Call& call, hid_t kind) {
  Id properties = call(H5Pcreate(kind), H5Pclose);
  call(H5Pset_obj_track_times(properties, false));
  return properties;
}

/// Creates what is missing of a path of groups.
void make_groups(const Call& call, hid_t file, const std::string& group) {
  const std::string path = absolute(group);
  const Id properties = untimed(call, H5P_GROUP_CREATE);
  for (std::size_t at = 0; at != std::string::npos && path != "/";) {
    at = path.find('/', at + 1);
    const std::string part = path.substr(0, at);
    if (call(H5Lexists(file, part.c_str(), H5P_DEFAULT)) > 0) continue;
    call(H5Gcreate2(file, part.c_str(), H5P_DEFAULT, properties, H5P_DEFAULT), H5Gclose);
  }
}

/// bfloat16: the library has no such type, but describes any layout.
Id bf16_type(const Call& call) {
  Id t = call(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
  call(H5Tset_fields(t, 15, 7, 8, 0, 7));
  call(H5Tset_size(t, 2));
  call(H5Tset_ebias(t, 127));
  return t;
}

Id file_type(const Call& call, DType dtype) {
  switch (dtype) {
    case DType::f32: return call(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
    case DType::f64: return call(H5Tcopy(H5T_IEEE_F64LE), H5Tclose);
    case DType::i32: return call(H5Tcopy(H5T_STD_I32LE), H5Tclose);
    case DType::i64: return call(H5Tcopy(H5T_STD_I64LE), H5Tclose);
    case DType::u8: return call(H5Tcopy(H5T_STD_U8LE), H5Tclose);
    case DType::bf16: break;
  }
  return bf16_type(call);
}

/// The types of this processor; bf16 is read and written as its bytes.
Id memory_type(const Call& call, DType dtype) {
  Id t = file_type(call, dtype);
  return dtype == DType::bf16 ? std::move(t) : call(H5Tget_native_type(t, H5T_DIR_DEFAULT), H5Tclose);
}

DType dtype_of_file(const Call& call, hid_t type) {
  const H5T_class_t cls = H5Tget_class(type);
  const std::size_t size = H5Tget_size(type);
  if (cls == H5T_FLOAT && size == 4) return DType::f32;
  if (cls == H5T_FLOAT && size == 8) return DType::f64;
  if (cls == H5T_FLOAT && size == 2 && call(H5Tequal(type, bf16_type(call))) > 0) return DType::bf16;
  if (cls == H5T_INTEGER) {
    const bool is_signed = H5Tget_sign(type) == H5T_SGN_2;
    if (is_signed && size == 4) return DType::i32;
    if (is_signed && size == 8) return DType::i64;
    if (!is_signed && size == 1) return DType::u8;
  }
  call.refuse("its type is none of f32, f64, bf16, i32, i64, u8 (class {}, {} bytes)", static_cast<int>(cls),
              size);
}

Shape shape_of(const Call& call, hid_t space) {
  if (H5Sget_simple_extent_type(space) == H5S_NULL) return Shape{0};
  const int rank = call(H5Sget_simple_extent_ndims(space));
  if (rank > Shape::kMaxRank)
    call.refuse("it has {} dimensions, at most {} are possible", rank, Shape::kMaxRank);
  hsize_t dims[Shape::kMaxRank + 1] = {};
  std::int64_t signed_dims[Shape::kMaxRank + 1];
  call(H5Sget_simple_extent_dims(space, dims, nullptr));
  std::int64_t elements = 1;
  for (int i = 0; i < rank; ++i) {
    signed_dims[i] = static_cast<std::int64_t>(dims[i]);
    if (__builtin_mul_overflow(elements, signed_dims[i], &elements) || elements < 0 || elements > (1ll << 56))
      call.refuse("its size is beyond any memory");
  }
  return Shape(std::span(signed_dims, static_cast<std::size_t>(rank)));
}

/// So many of such elements; shape_of() has seen to it that their number fits.
void check_bytes(const Call& call, const Shape& shape, std::size_t element, std::int64_t most) {
  const double bytes = static_cast<double>(shape.size()) * static_cast<double>(element);
  if (bytes > static_cast<double>(most))
    call.refuse("it says to have {:.0f} bytes, in a file that is much smaller", bytes);
}

/// Chunks of at most 1 MiB that are one after another in memory: as many of the last dimensions as there is
/// room for, and of the one before a part, all about alike.
std::vector<hsize_t> chunk_of(const Tensor& t) {
  std::vector<hsize_t> chunk(static_cast<std::size_t>(t.shape().rank()));
  std::int64_t room = (std::int64_t{1} << 20) / static_cast<std::int64_t>(size_of(t.dtype()));
  for (int i = t.shape().rank() - 1; i >= 0; --i) {
    const std::int64_t extent = t.shape()[i], pieces = (extent + room - 1) / room;
    chunk[static_cast<std::size_t>(i)] = static_cast<hsize_t>((extent + pieces - 1) / pieces);
    room = pieces > 1 ? 1 : room / extent;
  }
  return chunk;
}

/// The library can filter chunks only, and has none of a scalar or of nothing.
bool has_chunks(const Tensor& t, Layout layout) {
  return layout != Layout::plain && t.shape().rank() > 0 && t.size() > 0;
}

Id creation_properties(const Call& call, const Tensor& t, Layout layout) {
  Id properties = untimed(call, H5P_DATASET_CREATE);
  if (!has_chunks(t, layout)) return properties;
  call(H5Pset_chunk(properties, t.shape().rank(), chunk_of(t).data()));
  if (layout == Layout::compressed) {
    call(H5Pset_shuffle(properties));
    call(H5Pset_deflate(properties, ChunkEncoder::kLevel));
  }
  call(H5Pset_fletcher32(properties));
  return properties;
}

/// Writes the chunks as they will lie in the file: the library's own way there copies them several times.
void write_chunks(const Call& call, hid_t dataset, const Tensor& t, Layout layout) {
  const std::vector<hsize_t> chunk = chunk_of(t);
  const auto rank = chunk.size();
  std::size_t split = 0;  // the dimension that is cut; those before it are taken one by one
  while (split + 1 < rank && chunk[split] == 1) ++split;
  const auto extent = [&](std::size_t i) { return static_cast<hsize_t>(t.shape()[static_cast<int>(i)]); };
  std::size_t row = size_of(t.dtype());  // bytes of one index of that dimension
  for (std::size_t i = split + 1; i < rank; ++i) row *= extent(i);
  ChunkEncoder encoder(size_of(t.dtype()), layout == Layout::compressed);
  const auto bytes = std::span(static_cast<const std::byte*>(t.raw()), t.bytes());
  std::vector<hsize_t> at(rank, 0);
  for (std::size_t begin = 0; begin < bytes.size();) {
    const std::size_t rows = std::min(chunk[split], extent(split) - at[split]);
    const auto encoded = encoder.encode(bytes.subspan(begin, rows * row), chunk[split] * row);
    call(H5Dwrite_chunk(dataset, H5P_DEFAULT, encoder.left_out(), at.data(), encoded.size(), encoded.data()));
    note_progress();
    begin += rows * row;
    at[split] += rows;
    for (std::size_t i = split; at[i] == extent(i) && i > 0; --i) at[i] = 0, ++at[i - 1];
  }
}

Id access_properties(const Call& call) {
  Id properties = call(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  // This format's metadata carries checksums, attributes may be larger than 64 KiB, and any later library
  // writes the same.
  call(H5Pset_libver_bounds(properties, H5F_LIBVER_V110, H5F_LIBVER_V110));
  call(H5Pset_file_locking(properties, true, true));  // no error where the file system has no locks
  return properties;
}

Id open_object(const Call& call, hid_t file, const std::string& object) {
  if (!link_exists(call, file, object)) call.refuse("there is none");
  return call(H5Oopen(file, absolute(object).c_str(), H5P_DEFAULT), H5Oclose);
}

void check_filters(const Call& call, hid_t properties) {
  const int filters = call(H5Pget_nfilters(properties));
  for (int i = 0; i < filters; ++i) {
    unsigned flags = 0, configuration = 0;
    std::size_t values = 0;
    char name[64] = "";
    const H5Z_filter_t filter = call(H5Pget_filter2(properties, static_cast<unsigned>(i), &flags, &values,
                                                    nullptr, sizeof name - 1, name, &configuration));
    if (call(H5Zfilter_avail(filter)) == 0)
      call.refuse("it needs the filter {} ({}), which is not here: store it with gzip, or as it is", filter,
                  name);
  }
}

/// Opens a dataset that lies in the file as a whole, in a way that needs at most `most` bytes at once.
Id open_dataset(const Call& call, hid_t file, const std::string& dataset, std::int64_t most) {
  Id id = open_object(call, file, dataset);
  if (H5Iget_type(id) != H5I_DATASET) call.refuse("it is not a dataset");
  const Id properties = call(H5Dget_create_plist(id), H5Pclose);
  const H5D_layout_t layout = call(H5Pget_layout(properties));
  if (layout == H5D_VIRTUAL || call(H5Pget_external_count(properties)) > 0)
    call.refuse("its data lie in other files: put them into this one");
  if (layout != H5D_CHUNKED) return id;
  check_filters(call, properties);
  hsize_t chunk[H5S_MAX_RANK] = {};
  const int rank = call(H5Pget_chunk(properties, H5S_MAX_RANK, chunk));
  double bytes = static_cast<double>(H5Tget_size(call(H5Dget_type(id), H5Tclose)));
  for (int i = 0; i < rank; ++i) bytes *= static_cast<double>(chunk[i]);
  if (bytes > static_cast<double>(most))
    call.refuse("a chunk has {:.0f} bytes, in a file that is much smaller", bytes);
  return id;
}

/// A dataset of u8 with one dimension.
struct ByteSet {
  Id id, space;
  std::int64_t length;
};
ByteSet open_bytes(const Call& call, hid_t file, const std::string& dataset, std::int64_t most) {
  Id id = open_dataset(call, file, dataset, most);
  const Id type = call(H5Dget_type(id), H5Tclose);
  Id space = call(H5Dget_space(id), H5Sclose);
  const Shape shape = shape_of(call, space);
  if (dtype_of_file(call, type) != DType::u8 || shape.rank() != 1) call.refuse("it is not a list of bytes");
  check_bytes(call, shape, 1, most);
  return {std::move(id), std::move(space), shape[0]};
}

std::string read_string(const Call& call, hid_t attribute, hid_t type) {
  if (call(H5Tis_variable_str(type)) == 0) {
    std::string text(H5Tget_size(type), '\0');
    call(H5Aread(attribute, type, text.data()));
    return text.c_str();  // without the padding
  }
  char* text = nullptr;
  call(H5Aread(attribute, type, &text));
  const std::string copy = text ? text : "";
  H5free_memory(text);
  return copy;
}

/// None: of a type that Attribute has not.
std::optional<Attribute> read_attribute(const Call& call, hid_t object, const char* name, std::int64_t most) {
  const Id attribute = call(H5Aopen(object, name, H5P_DEFAULT), H5Aclose);
  if (H5Aget_storage_size(attribute) > static_cast<hsize_t>(most))
    call.refuse("attribute {} says to be larger than the file could hold", name);
  const Id type = call(H5Aget_type(attribute), H5Tclose), space = call(H5Aget_space(attribute), H5Sclose);
  const H5T_class_t cls = H5Tget_class(type);
  const bool scalar = H5Sget_simple_extent_type(space) == H5S_SCALAR;
  const Shape shape = shape_of(call, space);
  if (cls == H5T_STRING && shape.size() == 1) return read_string(call, attribute, type);
  if (shape.rank() > 1 || (cls != H5T_INTEGER && cls != H5T_FLOAT)) return std::nullopt;
  const auto numbers = [&]<class T>(hid_t native, T) -> Attribute {
    std::vector<T> values(static_cast<std::size_t>(shape.size()));
    if (!values.empty()) call(H5Aread(attribute, native, values.data()));
    if (scalar) return values[0];
    return values;
  };
  return cls == H5T_INTEGER ? numbers(H5T_NATIVE_INT64, std::int64_t{})
                            : numbers(H5T_NATIVE_DOUBLE, double{});
}

/// How one alternative of Attribute lies in a file.
struct AttributeForm {
  Id file_type, memory_type, space;
  const void* data;
};

AttributeForm form_of(const Call& call, const Attribute& value) {
  const auto own = [&](hid_t type) { return call(H5Tcopy(type), H5Tclose); };
  const auto list = [&](std::size_t n) {
    const hsize_t extent = n;
    return call(H5Screate_simple(1, &extent, nullptr), H5Sclose);
  };
  const auto scalar = [&] { return call(H5Screate(H5S_SCALAR), H5Sclose); };
  if (const auto* v = std::get_if<std::int64_t>(&value))
    return {own(H5T_STD_I64LE), own(H5T_NATIVE_INT64), scalar(), v};
  if (const auto* v = std::get_if<double>(&value))
    return {own(H5T_IEEE_F64LE), own(H5T_NATIVE_DOUBLE), scalar(), v};
  if (const auto* v = std::get_if<std::vector<std::int64_t>>(&value))
    return {own(H5T_STD_I64LE), own(H5T_NATIVE_INT64), list(v->size()), v->data()};
  if (const auto* v = std::get_if<std::vector<double>>(&value))
    return {own(H5T_IEEE_F64LE), own(H5T_NATIVE_DOUBLE), list(v->size()), v->data()};
  const auto& text = std::get<std::string>(value);
  if (text.find('\0') != std::string::npos) call.refuse("a string must not hold zero bytes");
  const auto string_type = [&] {
    Id t = own(H5T_C_S1);
    call(H5Tset_size(t, std::max<std::size_t>(text.size(), 1)));
    call(H5Tset_cset(t, H5T_CSET_UTF8));
    call(H5Tset_strpad(t, H5T_STR_NULLPAD));
    return t;
  };
  return {string_type(), string_type(), scalar(), text.c_str()};
}

/// The system's own words for what most often goes wrong, before the library is asked. The file's size.
std::int64_t check_opens(const std::string& path, int flags, const char* action) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0666);  // waits for nobody at a pipe
  check(fd >= 0, "hdf5", "{}: cannot {}: {}", path, action, std::strerror(errno));
  struct stat status {};
  ::fstat(fd, &status);
  ::close(fd);
  check(S_ISREG(status.st_mode), "hdf5", "{}: cannot {}: it is not a file", path, action);
  return status.st_size;
}

}  // namespace

std::unique_lock<std::mutex> lock_hdf5() {
  return std::unique_lock(library());
}

Hdf5File::Hdf5File(Hdf5File&& o) noexcept
    : path_(std::move(o.path_)), file_(std::exchange(o.file_, -1)), writes_(o.writes_), most_(o.most_) {}

Hdf5File& Hdf5File::operator=(Hdf5File&& o) noexcept {
  std::swap(path_, o.path_);
  std::swap(file_, o.file_);
  std::swap(writes_, o.writes_);
  std::swap(most_, o.most_);
  return *this;
}

Hdf5File::~Hdf5File() {
  if (file_ < 0) return;
  const std::lock_guard lock(library());
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  H5Fclose(file_);
}

Hdf5File Hdf5File::open(const std::string& path) {
  constexpr std::int64_t kLeast = 1 << 20, kExpansion = 32;
  const std::int64_t size = check_opens(path, O_RDONLY, "open it");
  const Call call(path, "open it");
  if (call(H5Fis_hdf5(path.c_str())) == 0) call.refuse("it is not an HDF5 file");
  const Id access = access_properties(call);
  Hdf5File file;
  file.path_ = path;
  file.most_ = kLeast + kExpansion * size;
  file.file_ = call(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access));
  return file;
}

Hdf5File Hdf5File::create(const std::string& path, std::int64_t user_block) {
  check_opens(path, O_WRONLY | O_CREAT, "create it");
  const Call call(path, "create it");
  const Id access = access_properties(call);
  Hdf5File file;
  file.path_ = path;
  const Id properties = untimed(call, H5P_FILE_CREATE);
  call(H5Pset_userblock(properties, static_cast<hsize_t>(user_block)));
  file.file_ = call(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, properties, access));
  file.writes_ = true;
  return file;
}

void Hdf5File::close() {
  if (file_ < 0) return;
  const Call call(path_, writes_ ? "write it" : "close it");
  if (writes_) call(H5Fflush(file_, H5F_SCOPE_GLOBAL));
  call(H5Fclose(std::exchange(file_, -1)));
}

bool Hdf5File::exists(const std::string& object) const {
  const Call call(path_, "look for /" + object);
  return link_exists(call, file_, object);
}

bool Hdf5File::is_group(const std::string& object) const {
  const Call call(path_, "look at /" + object);
  return H5Iget_type(open_object(call, file_, object)) == H5I_GROUP;
}

std::vector<std::string> Hdf5File::children(const std::string& group) const {
  const Call call(path_, "list /" + group);
  const Id id = open_object(call, file_, group);
  if (H5Iget_type(id) != H5I_GROUP) call.refuse("it is not a group");
  std::vector<std::string> names;
  const auto add = [](hid_t, const char* name, const H5L_info_t*, void* out) -> herr_t {
    static_cast<std::vector<std::string>*>(out)->emplace_back(name);
    return 0;
  };
  call(H5Literate(id, H5_INDEX_NAME, H5_ITER_INC, nullptr, add, &names));
  std::sort(names.begin(), names.end());
  return names;
}

void Hdf5File::create_group(const std::string& group) {
  const Call call(path_, "create group /" + group);
  make_groups(call, file_, group);
}

Tensor Hdf5File::read(const std::string& dataset) const {
  const Call call(path_, "read /" + dataset);
  const Id id = open_dataset(call, file_, dataset, most_);
  const Id type = call(H5Dget_type(id), H5Tclose), space = call(H5Dget_space(id), H5Sclose);
  const DType dtype = dtype_of_file(call, type);
  const Shape shape = shape_of(call, space);
  check_bytes(call, shape, size_of(dtype), most_);
  const Tensor t = Tensor::empty(shape, dtype);
  if (t.size() > 0) call(H5Dread(id, memory_type(call, dtype), H5S_ALL, H5S_ALL, H5P_DEFAULT, t.raw()));
  return t;
}

std::int64_t Hdf5File::length(const std::string& dataset) const {
  const Call call(path_, "look at /" + dataset);
  return open_bytes(call, file_, dataset, most_).length;
}

void Hdf5File::read_part(const std::string& dataset, std::int64_t first, std::span<std::uint8_t> to) const {
  const Call call(path_, "read /" + dataset);
  const ByteSet bytes = open_bytes(call, file_, dataset, most_);
  if (first < 0 || first > bytes.length || std::ssize(to) > bytes.length - first)
    call.refuse("there are no {} bytes from {} on, it has {}", to.size(), first, bytes.length);
  if (to.empty()) return;
  const hsize_t begin = static_cast<hsize_t>(first), count = to.size();
  call(H5Sselect_hyperslab(bytes.space, H5S_SELECT_SET, &begin, nullptr, &count, nullptr));
  const Id memory = call(H5Screate_simple(1, &count, nullptr), H5Sclose);
  call(H5Dread(bytes.id, H5T_NATIVE_UINT8, memory, bytes.space, H5P_DEFAULT, to.data()));
}

void Hdf5File::write(const std::string& dataset, const Tensor& tensor, Layout layout) {
  check(static_cast<bool>(tensor), "hdf5", "{}: the tensor for /{} was never made", path_, dataset);
  const Tensor t = tensor.to(Device::cpu);
  const Call call(path_, "write /" + dataset);
  hsize_t dims[Shape::kMaxRank];
  std::copy(t.shape().begin(), t.shape().end(), dims);
  const int rank = t.shape().rank();
  const Id space = call(rank == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(rank, dims, nullptr), H5Sclose);
  const Id type = file_type(call, t.dtype()), properties = creation_properties(call, t, layout);
  if (const auto at = dataset.rfind('/'); at != std::string::npos)
    make_groups(call, file_, dataset.substr(0, at));
  const Id id =
      call(H5Dcreate2(file_, absolute(dataset).c_str(), type, space, H5P_DEFAULT, properties, H5P_DEFAULT),
           H5Dclose);
  if (has_chunks(t, layout))
    write_chunks(call, id, t, layout);
  else if (t.size() > 0)
    call(H5Dwrite(id, memory_type(call, t.dtype()), H5S_ALL, H5S_ALL, H5P_DEFAULT, t.raw()));
}

bool Hdf5File::has_attribute(const std::string& object, const std::string& name) const {
  const Call call(path_, "look at /" + object);
  return link_exists(call, file_, object) &&
         call(H5Aexists(open_object(call, file_, object), name.c_str())) > 0;
}

Attribute Hdf5File::attribute(const std::string& object, const std::string& name) const {
  const Call call(path_, fmt::format("read attribute {} of /{}", name, object));
  std::optional<Attribute> value =
      read_attribute(call, open_object(call, file_, object), name.c_str(), most_);
  if (!value) call.refuse("it is neither a number, a list of numbers nor a string");
  return *std::move(value);
}

std::map<std::string, Attribute> Hdf5File::attributes(const std::string& object) const {
  const Call call(path_, "read the attributes of /" + object);
  const Id id = open_object(call, file_, object);
  std::vector<std::string> names;
  const auto add = [](hid_t, const char* name, const H5A_info_t*, void* out) -> herr_t {
    static_cast<std::vector<std::string>*>(out)->emplace_back(name);
    return 0;
  };
  call(H5Aiterate2(id, H5_INDEX_NAME, H5_ITER_INC, nullptr, add, &names));
  std::map<std::string, Attribute> all;
  for (const std::string& name : names)
    if (std::optional<Attribute> value = read_attribute(call, id, name.c_str(), most_))
      all.emplace(name, *std::move(value));
  return all;
}

void Hdf5File::set_attribute(const std::string& object, const std::string& name, const Attribute& value) {
  const Call call(path_, fmt::format("write attribute {} of /{}", name, object));
  const Id id = open_object(call, file_, object);
  const AttributeForm form = form_of(call, value);
  const Id attribute =
      call(H5Acreate2(id, name.c_str(), form.file_type, form.space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  if (form.data && H5Sget_simple_extent_npoints(form.space) > 0)
    call(H5Awrite(attribute, form.memory_type, form.data));
}

}  // namespace ssn
