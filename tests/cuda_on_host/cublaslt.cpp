// The double of cuBLASLt.
#include "cublasLt.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/bf16.h"
#include "tests/cuda_on_host/device_memory.h"
#include "tests/cuda_on_host/runtime_error.h"
#include "tests/cuda_on_host/streams.h"

struct cublasLtContext {
  int device;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type;
  std::int64_t rows, columns, ld;
  bool operator==(const cublasLtMatrixLayoutOpaque_t&) const = default;
};
struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
};
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace = 0;
  std::uint32_t reductions = 7, align[4] = {256, 256, 256, 256};  // as in cuBLASLt
};

namespace cuda_on_host {
namespace {

thread_local std::string t_text;  // of the last error
template <class... A>
cublasStatus_t refuse(cublasStatus_t code, fmt::format_string<A...> format, A&&... args) {
  t_text = fmt::format(format, std::forward<A>(args)...);
  return code;
}

enum class Kind { handle, layout, operation, preference };
struct Objects {  // never destroyed: static objects may use handles late
  std::mutex mutex;
  std::map<const void*, Kind> live;
};
Objects& objects() {
  static Objects& o = *new Objects;
  return o;
}
void look_for_leaks() {
  std::size_t left = 0;
  std::map<int, int> handles;  // of each device; one lives as long as the program
  for (const auto& [object, kind] : objects().live) {
    if (kind != Kind::handle || ++handles[static_cast<const cublasLtContext*>(object)->device] > 1) ++left;
  }
  if (left == 0) return;
  std::fprintf(stderr, "cuda_on_host: %zu objects of cuBLASLt were not destroyed\n", left);
  std::_Exit(1);
}
template <class T>
cublasStatus_t add_object(T** place, Kind kind, T value) {
  if (!place) return refuse(CUBLAS_STATUS_INVALID_VALUE, "nowhere to put the object");
  static const int at_exit = std::atexit(look_for_leaks);
  if (at_exit != 0) return refuse(CUBLAS_STATUS_NOT_INITIALIZED, "leaks at exit would go unseen");
  std::lock_guard lock(objects().mutex);
  objects().live[*place = new T(value)] = kind;
  return CUBLAS_STATUS_SUCCESS;
}
bool is_live(const void* object, Kind kind) {
  std::lock_guard lock(objects().mutex);
  const auto found = objects().live.find(object);
  return found != objects().live.end() && found->second == kind;
}
template <class T>
cublasStatus_t remove_object(T* object, Kind kind) {
  if (!is_live(object, kind)) return refuse(CUBLAS_STATUS_INVALID_VALUE, "no such object: destroyed before?");
  std::lock_guard lock(objects().mutex);
  objects().live.erase(object);
  delete object;
  return CUBLAS_STATUS_SUCCESS;
}

/// Sets a member from an attribute's bytes.
template <class T>
cublasStatus_t set_member(T& member, const void* value, std::size_t bytes) {
  if (!value || bytes != sizeof member)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "the attribute has {} bytes, found {}", sizeof member, bytes);
  std::memcpy(&member, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

std::size_t size_of(cudaDataType_t type) {
  return type == CUDA_R_16BF ? 2 : type == CUDA_R_32F ? 4 : 8;
}
std::size_t bytes_of(const cublasLtMatrixLayoutOpaque_t& m) {
  return static_cast<std::size_t>(m.ld * (m.columns - 1) + m.rows) * size_of(m.type);
}

/// A product as its descriptors say it.
struct Product {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t a, b, c, d;
  std::int64_t k() const { return operation.a == CUBLAS_OP_T ? a.rows : a.columns; }
  bool has_bias() const { return operation.epilogue == CUBLASLT_EPILOGUE_BIAS; }
};

cublasStatus_t check_types(const Product& p) {
  const auto& [compute, scale, a, b, epilogue, bias] = p.operation;
  const bool f64 = compute == CUBLAS_COMPUTE_64F;
  const cudaDataType_t in = p.a.type, out = p.d.type;
  const bool same = in == p.b.type && out == p.c.type;
  const bool known = f64 ? in == CUDA_R_64F && out == CUDA_R_64F
                         : (in == CUDA_R_32F && out == CUDA_R_32F) ||
                               (compute == CUBLAS_COMPUTE_32F && in == CUDA_R_16BF && out != CUDA_R_64F);
  if (same && known && scale == (f64 ? CUDA_R_64F : CUDA_R_32F)) return CUBLAS_STATUS_SUCCESS;
  return refuse(CUBLAS_STATUS_NOT_SUPPORTED,
                "a, b, c, d of types {}, {}, {}, {}, computed as {}, scaled as {}",
                static_cast<int>(p.a.type), static_cast<int>(p.b.type), static_cast<int>(p.c.type),
                static_cast<int>(p.d.type), static_cast<int>(compute), static_cast<int>(scale));
}
cublasStatus_t check_shapes(const Product& p) {
  const auto& [operation, a, b, c, d] = p;
  const bool ta = operation.a == CUBLAS_OP_T, tb = operation.b == CUBLAS_OP_T;
  const std::int64_t m = ta ? a.columns : a.rows, n = tb ? b.rows : b.columns, kb = tb ? b.columns : b.rows;
  if (d.rows == m && d.columns == n && kb == p.k() && c == d) return CUBLAS_STATUS_SUCCESS;
  return refuse(CUBLAS_STATUS_INVALID_VALUE,
                "op(a) is {}x{}, op(b) {}x{}, c {}x{} with ld {}, d {}x{} with ld {}: they do not fit", m,
                p.k(), kb, n, c.rows, c.columns, c.ld, d.rows, d.columns, d.ld);
}
cublasStatus_t read_product(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
                            cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                            Product* p) {
  if (!is_live(handle, Kind::handle)) return refuse(CUBLAS_STATUS_NOT_INITIALIZED, "no such handle");
  if (handle->device != current_device())
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "the handle is of device {}, the current one is {}",
                  handle->device, current_device());
  if (!is_live(operation, Kind::operation))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "no such operation descriptor");
  for (const auto& [name, layout] : {std::pair{"a", a}, {"b", b}, {"c", c}, {"d", d}})
    if (!is_live(layout, Kind::layout))
      return refuse(CUBLAS_STATUS_INVALID_VALUE, "no such layout: of {}", name);
  *p = {*operation, *a, *b, *c, *d};
  if ((p->operation.bias != nullptr) != p->has_bias())
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "a bias and the epilogue for it go together");
  if (const cublasStatus_t e = check_types(*p); e != CUBLAS_STATUS_SUCCESS) return e;
  return check_shapes(*p);
}

std::uint32_t alignment_of(const void* p) {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  return address == 0 ? 256 : static_cast<std::uint32_t>(std::min<std::uintptr_t>(256, address & -address));
}

/// What is in an algorithm: for what it was chosen.
struct Choice {
  std::uint64_t product;    // a digest
  std::uint64_t workspace;  // bytes that it needs
  std::uint32_t align[5];   // of a, b, c, d and the bias
  std::uint32_t magic;
};
constexpr std::uint32_t kMagic = 0xB1A5;
static_assert(sizeof(Choice) <= sizeof(cublasLtMatmulAlgo_t));

std::uint64_t digest(const Product& p) {
  std::uint64_t sum = 0;
  const auto mix = [&](std::uint64_t value) { sum = (std::rotl(sum, 7) ^ value) * 0x9E3779B97F4A7C15u; };
  mix(static_cast<std::uint64_t>(p.operation.compute));
  mix(static_cast<std::uint64_t>(p.operation.a));
  mix(static_cast<std::uint64_t>(p.operation.b));
  mix(static_cast<std::uint64_t>(p.operation.epilogue));
  for (const auto& m : {p.a, p.b, p.d}) {
    mix(static_cast<std::uint64_t>(m.type));
    mix(static_cast<std::uint64_t>(m.rows));
    mix(static_cast<std::uint64_t>(m.columns));
    mix(static_cast<std::uint64_t>(m.ld));
  }
  return sum;
}

/// What one product works on.
struct Call {
  Product p;
  double alpha, beta;
  const void *a, *b, *c;
  void *d, *workspace;
  std::size_t workspace_bytes;
  int device;
};

/// The memory must be there when the call is made, and still when the work is done; nothing overlaps what is
/// written.
cublasStatus_t check_memory(const Call& call) {
  const Product& p = call.p;
  struct Piece {
    const char* name;
    const void* at;
    std::size_t bytes;
    bool overlaps(const Piece& other) const {
      const auto *a = static_cast<const char*>(at), *b = static_cast<const char*>(other.at);
      return a < b + other.bytes && b < a + bytes;
    }
  };
  const std::size_t bias_bytes = static_cast<std::size_t>(p.d.rows) * size_of(p.d.type);
  const Piece pieces[] = {{"a", call.a, bytes_of(p.a)},
                          {"b", call.b, bytes_of(p.b)},
                          {"the bias", p.operation.bias, p.has_bias() ? bias_bytes : 0},
                          {"the workspace", call.workspace, call.workspace_bytes},
                          {"d", call.d, bytes_of(p.d)}};
  const Piece &workspace = pieces[3], &d = pieces[4];
  for (const Piece& piece : pieces) {
    if (piece.bytes == 0) continue;
    if (device_of(piece.at, piece.bytes) != call.device)
      return refuse(CUBLAS_STATUS_INVALID_VALUE, "{}: {} bytes at {} are not live memory of device {}",
                    piece.name, piece.bytes, piece.at, call.device);
    for (const Piece* written : {&workspace, &d})
      if (&piece != written && written->bytes > 0 && piece.overlaps(*written))
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "{} overlaps {}", piece.name, written->name);
  }
  if (call.c != call.d)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "c is another matrix than d: not known here");
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_choice(const Call& call, const cublasLtMatmulAlgo_t* algorithm) {
  Choice choice{};
  if (algorithm) std::memcpy(&choice, algorithm, sizeof choice);
  if (choice.magic != kMagic) return refuse(CUBLAS_STATUS_INVALID_VALUE, "no algorithm was chosen");
  if (choice.product != digest(call.p))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "the algorithm was chosen for another product");
  if (call.workspace_bytes < choice.workspace)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "a workspace of {} bytes, the algorithm needs {}",
                  call.workspace_bytes, choice.workspace);
  if (call.workspace_bytes > 0 && alignment_of(call.workspace) < 256)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "the workspace at {} is not aligned to 256", call.workspace);
  const void* pointers[] = {call.a, call.b, call.c, call.d, call.p.operation.bias};
  for (int i = 0; i < 5; ++i)
    if (alignment_of(pointers[i]) < choice.align[i])
      return refuse(CUBLAS_STATUS_INVALID_VALUE, "{} is aligned to {} bytes, the algorithm was chosen for {}",
                    "abcd+"[i], alignment_of(pointers[i]), choice.align[i]);
  return CUBLAS_STATUS_SUCCESS;
}

/// To 10 bits of mantissa, ties to even.
double as_tf32(double value) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return std::bit_cast<float>((bits + 0xFFF + (bits >> 13 & 1)) & ~0x1FFFu);
}

double element(const void* matrix, cudaDataType_t type, std::int64_t i) {
  if (type == CUDA_R_64F) return static_cast<const double*>(matrix)[i];
  if (type == CUDA_R_32F) return static_cast<const float*>(matrix)[i];
  return static_cast<const ssn::bf16*>(matrix)[i];
}
void set_element(void* matrix, cudaDataType_t type, std::int64_t i, double value) {
  if (type == CUDA_R_64F)
    static_cast<double*>(matrix)[i] = value;
  else if (type == CUDA_R_32F)
    static_cast<float*>(matrix)[i] = static_cast<float>(value);
  else
    static_cast<ssn::bf16*>(matrix)[i] = static_cast<float>(value);
}

/// The lines of op(matrix) along k, one behind the other.
std::vector<double> lines(const Product& p, const void* matrix, const cublasLtMatrixLayoutOpaque_t& m,
                          bool k_is_rows) {
  const std::int64_t count = k_is_rows ? m.columns : m.rows, k = k_is_rows ? m.rows : m.columns;
  const bool tf32 = p.operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(count * k));
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t l = 0; l < k; ++l) {
      const double value = element(matrix, m.type, k_is_rows ? l + i * m.ld : i + l * m.ld);
      values.push_back(tf32 ? as_tf32(value) : value);
    }
  return values;
}

void multiply(const Call& call) {
  const Product& p = call.p;
  const std::vector<double> a = lines(p, call.a, p.a, p.operation.a == CUBLAS_OP_T),
                            b = lines(p, call.b, p.b, p.operation.b == CUBLAS_OP_N);
  if (call.workspace_bytes > 0) std::memset(call.workspace, 0xFF, call.workspace_bytes);  // NaN
  const std::int64_t k = p.k();
  for (std::int64_t j = 0; j < p.d.columns; ++j)
    for (std::int64_t i = 0; i < p.d.rows; ++i) {
      double sum = 0;
      for (std::int64_t l = 0; l < k; ++l)
        sum += a[static_cast<std::size_t>(i * k + l)] * b[static_cast<std::size_t>(j * k + l)];
      sum *= call.alpha;
      const std::int64_t at = i + j * p.d.ld;
      if (call.beta != 0) sum += call.beta * element(call.c, p.c.type, at);
      if (p.has_bias()) sum += element(p.operation.bias, p.d.type, i);
      set_element(call.d, p.d.type, at, sum);
    }
}

}  // namespace
}  // namespace cuda_on_host

using namespace cuda_on_host;

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "unknown status";
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : t_text.c_str();
}
std::size_t cublasLtGetVersion() {
  return 0;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) return refuse(CUBLAS_STATUS_NOT_INITIALIZED, "no device");
  return add_object(handle, Kind::handle, {current_device()});
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return remove_object(handle, Kind::handle);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          std::uint64_t rows, std::uint64_t columns, std::int64_t ld) {
  const auto r = static_cast<std::int64_t>(rows), c = static_cast<std::int64_t>(columns);
  if (type != CUDA_R_32F && type != CUDA_R_64F && type != CUDA_R_16BF)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "type {} is not known here", static_cast<int>(type));
  if (r < 1 || c < 1 || ld < r)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "{} rows, {} columns, leading dimension {}", r, c, ld);
  return add_object(layout, Kind::layout, {type, r, c, ld});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return remove_object(layout, Kind::layout);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  return add_object(operation, Kind::operation, {compute, scale});
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  return remove_object(operation, Kind::operation);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              std::size_t bytes) {
  if (!is_live(operation, Kind::operation))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "no such operation descriptor");
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return set_member(operation->a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return set_member(operation->b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return set_member(operation->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set_member(operation->bias, value, bytes);
  }
  return refuse(CUBLAS_STATUS_INVALID_VALUE, "attribute {} is not known here", static_cast<int>(attribute));
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return add_object(preference, Kind::preference, {});
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return remove_object(preference, Kind::preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  if (!is_live(preference, Kind::preference))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "no such preference descriptor");
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return set_member(preference->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return set_member(preference->reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return set_member(preference->align[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return set_member(preference->align[1], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return set_member(preference->align[2], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return set_member(preference->align[3], value, bytes);
  }
  return refuse(CUBLAS_STATUS_INVALID_VALUE, "attribute {} is not known here", static_cast<int>(attribute));
}

/// Partial sums of two parts of k, where there is room for them.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  Product p{};
  if (const auto e = read_product(handle, operation, a, b, c, d, &p); e != CUBLAS_STATUS_SUCCESS) return e;
  if (!is_live(preference, Kind::preference) || requested < 1 || !results || !found)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "no preference, or no place for results");
  if (preference->reductions & ~std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE})
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED,
                  "reduction schemes {} would round partial sums: this project allows none",
                  preference->reductions);
  Choice choice{.product = digest(p), .workspace = 0, .align = {}, .magic = kMagic};
  const std::uint64_t parts = 2 * 8 * static_cast<std::uint64_t>(p.d.rows * p.d.columns);
  if (preference->reductions && p.k() > 1 && parts <= preference->workspace) choice.workspace = parts;
  std::copy_n(preference->align, 4, choice.align);
  choice.align[4] = p.has_bias() ? alignment_of(p.operation.bias) : 1;
  results[0] = {};
  std::memcpy(&results[0].algo, &choice, sizeof choice);
  results[0].workspaceSize = choice.workspace;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  Call call{.a = a, .b = b, .c = c, .d = d, .workspace = workspace, .workspace_bytes = workspace_bytes};
  if (const auto e = read_product(handle, operation, a_layout, b_layout, c_layout, d_layout, &call.p);
      e != CUBLAS_STATUS_SUCCESS)
    return e;
  if (!alpha || !beta || device_of(alpha, 1) >= 0 || device_of(beta, 1) >= 0)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "alpha and beta must be in host memory");
  call.alpha = element(alpha, call.p.operation.scale, 0),
  call.beta = element(beta, call.p.operation.scale, 0);
  call.device = handle->device;
  if (const auto e = check_choice(call, algorithm); e != CUBLAS_STATUS_SUCCESS) return e;
  if (const auto e = check_memory(call); e != CUBLAS_STATUS_SUCCESS) return e;
  const cudaError_t queued = enqueue(stream, [call] {
    if (check_memory(call) != CUBLAS_STATUS_SUCCESS)
      return error(cudaErrorLaunchFailure, "cublasLtMatmul, when its turn came: {}", t_text);
    multiply(call);
    return cudaSuccess;
  });
  if (queued == cudaSuccess) return CUBLAS_STATUS_SUCCESS;
  return refuse(CUBLAS_STATUS_EXECUTION_FAILED, "{}", cudaGetErrorString(queued));
}
