#include "kernels/generated_linear.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/generate_columns.h"
#include "kernels/cuda/generate_pack.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/reduce.cuh"
#include "runtime/cuda/launch.cuh"

// What memory can do is one read of theta. So the weight is made in the registers that multiply it: a lane
// holds eight neighbours of a row, which is where the tensor cores' instruction wants them if x is read in
// the same order (a product does not mind how k is numbered). Nothing of the weight, and nothing of x, is
// read twice by a block; sums meet in shared memory once, at the end.
namespace ssn::kernels {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * kWarp;
constexpr int kTiles = 2;              // of 8 rows of the weight, which a block owns
constexpr int kColumns = 8 * kTiles;   // of y, therefore
constexpr int kRun = 8;                // elements of a row that a lane has at once
constexpr int kStep = 4 * kRun;        // that a warp has
constexpr std::int64_t kBlocks = 264;  // enough for 132 processors, two on each

template <class W>
using Run = Values<W, kRun>;

/// GeneratedLinear for the device.
template <class T>
struct Problem {
  using W = Wider<T>;
  int rows, in, out;
  int columns, slices;  // blocks across; parts of k, each summed by blocks of its own
  std::int64_t group_size;
  const W *theta, *coefficients, *bias;
  const T* x;
  T* y;
  W* partial;  // (slices, rows, out), where there are several
  W gain;
  int templates, window;
  Divisor by_tile, by_window;
  std::int64_t offsets[kFusedTemplates];
};

/// Elements [at, at + kRun) of the `size` at `base`; those outside are 0. Where the address is not aligned,
/// the aligned packs around it.
template <class W>
__device__ Run<W> load_run(const W* base, std::int64_t at, std::int64_t size) {
  constexpr int N = kPack<W>, kPacks = kRun / N;
  const int past = elements_past_alignment(base + at);
  const std::int64_t first = at - past;
  Run<W> run;
  if (first >= 0 && first + kRun + (past > 0 ? N : 0) <= size) {
    FullPack<W> p[kPacks + 1];
#pragma unroll
    for (int i = 0; i <= kPacks; ++i)
      if (i < kPacks || past > 0) p[i] = FullPack<W>::load(base + first + i * N);
#pragma unroll
    for (int s = 0; s < N; ++s) {
      if (s != past) continue;
#pragma unroll
      for (int v = 0; v < kRun; ++v) run[v] = p[(s + v) / N][(s + v) % N];
    }
    return run;
  }
#pragma unroll
  for (int v = 0; v < kRun; ++v) run[v] = at + v >= 0 && at + v < size ? base[at + v] : W(0);
  return run;
}

/// Elements [at, at + kRun) of a sum of templates, of each of a block's tiles; `factors` are gain times
/// coefficient.
template <class T>
__device__ void combine_templates(const Problem<T>& p, const Wider<T>* factors,
                                  const std::int64_t (&at)[kTiles], Run<Wider<T>> (&w)[kTiles]) {
#pragma unroll 2
  for (int k = 0; k < p.templates; ++k) {
    const Wider<T> a = factors[k];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const Run<Wider<T>> x = load_run(p.theta, p.offsets[k] + at[t], p.group_size);
#pragma unroll
      for (int v = 0; v < kRun; ++v) w[t][v] = k ? fma(a, x[v], w[t][v]) : a * x[v];
    }
  }
}

/// Element `at` of a tiled weight.
template <class T>
__device__ Wider<T> tiled_element(const Problem<T>& p, std::int64_t at) {
  if (at >= std::int64_t{p.out} * p.in) return 0;
  const auto i = static_cast<std::uint32_t>(at);
  const std::uint32_t tile = p.by_tile.quotient(i), place = p.by_tile.rest(i);
  const bool masked = p.coefficients != nullptr && tile > 0;
  const std::int64_t mask = std::int64_t{p.window} * (tile - 1) + p.by_window.rest(place);
  return (masked ? p.gain * p.coefficients[mask] : p.gain) * p.theta[place];
}

/// Elements [at, at + kRun) of it.
template <class T>
__device__ Run<Wider<T>> mask_tile(const Problem<T>& p, std::int64_t at) {
  const std::int64_t length = p.by_tile.divisor;
  const std::uint32_t tile = p.by_tile.quotient(static_cast<std::uint32_t>(at));
  const std::int64_t place = at - tile * length;
  Run<Wider<T>> w;
  if (place + kRun > length || at + kRun > std::int64_t{p.out} * p.in) {
#pragma unroll
    for (int v = 0; v < kRun; ++v) w[v] = tiled_element(p, at + v);
    return w;
  }
  w = load_run(p.theta, place, length);
  const bool masked = p.coefficients != nullptr && tile > 0;
  const auto* const mask = p.coefficients + std::int64_t{p.window} * (masked ? tile - 1 : 0);
  std::uint32_t m = p.by_window.rest(static_cast<std::uint32_t>(place));
#pragma unroll
  for (int v = 0; v < kRun; ++v) {
    w[v] *= masked ? p.gain * mask[m] : p.gain;
    m = m + 1 == p.by_window.divisor ? 0 : m + 1;
  }
  return w;
}

/// Elements [k, k + kRun) of rows `row`, row + 8, ... of the weight; 0 behind a row's end.
template <bool tiled, class T>
__device__ void make_weight(const Problem<T>& p, const Wider<T>* factors, int row, int k,
                            Run<Wider<T>> (&w)[kTiles]) {
  std::int64_t at[kTiles];
#pragma unroll
  for (int t = 0; t < kTiles; ++t) at[t] = std::int64_t{row + 8 * t} * p.in + k;
  if constexpr (tiled) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) w[t] = mask_tile(p, at[t]);
  } else {
    combine_templates(p, factors, at, w);
  }
  if (k + kRun <= p.in) return;
#pragma unroll
  for (int t = 0; t < kTiles; ++t)
#pragma unroll
    for (int v = 0; v < kRun; ++v)
      if (k + v >= p.in) w[t][v] = 0;
}

/// The sums of a warp for Rows rows of x, as a lane has them: by fused multiply-adds, of its elements of k.
template <int Rows, class T>
struct Sums {
  T v[Rows][kTiles] = {};

  __device__ void add(const Problem<T>& p, int first_row, int k, const Run<T> (&w)[kTiles]) {
    constexpr int N = kPack<T>;
#pragma unroll
    for (int m = 0; m < Rows; ++m) {
      if (first_row + m >= p.rows) break;
      const T* const x = p.x + std::int64_t{first_row + m} * p.in + k;
#pragma unroll
      for (int i = 0; i < kRun; i += N) {
        const FullPack<T> values = load_pack(x + i, p.in - k - i);
#pragma unroll
        for (int j = 0; j < N; ++j)
#pragma unroll
          for (int t = 0; t < kTiles; ++t) v[m][t] = fma(values[j], w[t][i + j], v[m][t]);
      }
    }
  }
  /// Of all lanes, to the warp's place in shared memory.
  __device__ void store_all(T (&to)[Rows][kColumns]) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int m = 0; m < Rows; ++m)
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        const T sum = quad_reduce(v[m][t], Sum{});
        if (lane % 4 == 0) to[m][8 * t + lane / 4] = sum;
      }
  }
};

/// By tensor cores, spread as mma.cuh spreads d.
template <int Rows>
struct Sums<Rows, bf16> {
  float v[Rows / 16][kTiles][4] = {};

  __device__ void add(const Problem<bf16>& p, int first_row, int k, const Run<float> (&w)[kTiles]) {
    static_assert(kRun == kPack<bf16>);
    std::uint32_t b[kTiles][kRun / 2];
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int i = 0; i < kRun / 2; ++i) b[t][i] = pair_of(w[t][2 * i], w[t][2 * i + 1]);
#pragma unroll
    for (int m = 0; m < Rows / 16; ++m) {
      Registers x[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = first_row + 16 * m + 8 * i + static_cast<int>(threadIdx.x) % kWarp / 4;
        x[i] = std::bit_cast<Registers>(
            load_pack(p.x + std::int64_t{row} * p.in + k, row < p.rows ? p.in - k : 0));
      }
#pragma unroll
      for (int i = 0; i < kRun / 2; i += 2) {
        const Registers a = {x[0].v[i], x[1].v[i], x[0].v[i + 1], x[1].v[i + 1]};
#pragma unroll
        for (int t = 0; t < kTiles; ++t) mma(v[m][t], a, b[t][i], b[t][i + 1]);
      }
    }
  }
  __device__ void store_all(float (&to)[Rows][kColumns]) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int m = 0; m < Rows / 16; ++m)
#pragma unroll
      for (int t = 0; t < kTiles; ++t)
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
          for (int e = 0; e < 2; ++e)
            to[16 * m + 8 * i + lane / 4][8 * t + lane % 4 * 2 + e] = v[m][t][2 * i + e];
  }
};

/// A block owns kColumns columns and Rows rows of y, and of k a slice, of which its warps take turns.
template <int Rows, bool tiled, class T>
__global__ void __launch_bounds__(kThreads, std::is_same_v<T, bf16> ? 2 : 1) multiply(const Problem<T> p) {
  using W = Wider<T>;
  __shared__ W factors[kFusedTemplates], sums_of[kWarps][Rows][kColumns];
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int block = static_cast<int>(blockIdx.x), slice = block / p.columns % p.slices;
  const int first_column = block % p.columns * kColumns, first_row = block / p.columns / p.slices * Rows;
  for (int k = static_cast<int>(threadIdx.x); k < p.templates; k += kThreads)
    factors[k] = p.gain * (p.coefficients ? p.coefficients[k] : W(1));
  __syncthreads();
  Sums<Rows, T> sums;
  for (int k = (slice * kWarps + warp) * kStep; k < p.in; k += p.slices * kWarps * kStep) {
    const int mine = k + lane % 4 * kRun;
    Run<W> w[kTiles];
    make_weight<tiled>(p, factors, first_column + lane / 4, mine, w);
    __syncwarp();  // a tensor core wants its warp together
    sums.add(p, first_row, mine, w);
  }
  sums.store_all(sums_of[warp]);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < Rows * kColumns; i += kThreads) {
    const int m = i / kColumns, n = i % kColumns, row = first_row + m, column = first_column + n;
    if (row >= p.rows || column >= p.out) continue;
    W sum = sums_of[0][m][n];
#pragma unroll
    for (int other = 1; other < kWarps; ++other) sum += sums_of[other][m][n];
    const std::int64_t at = std::int64_t{row} * p.out + column;
    if (p.slices > 1)
      p.partial[std::int64_t{slice} * p.rows * p.out + at] = sum;
    else
      store(p.y[at], p.bias ? sum + p.bias[column] : sum);
  }
}

/// A thread owns one element of y.
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_slices(std::int64_t size, int out, int slices, const Wider<T>* partial, const Wider<T>* bias, T* y) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= size) return;
  Wider<T> sum = partial[i];
  for (int s = 1; s < slices; ++s) sum += partial[s * size + i];
  store(y[i], bias ? sum + bias[i % out] : sum);
}

// ---- on the host

/// f(rows that a block owns), as many as are needed or as registers hold.
template <class T, class F>
decltype(auto) with_rows(std::int64_t rows, F&& f) {
  if constexpr (std::is_same_v<T, bf16>)
    if (rows > 32) return f(std::integral_constant<int, 64>{});
  if constexpr (sizeof(T) <= sizeof(float))
    if (rows > 16) return f(std::integral_constant<int, 32>{});
  return f(std::integral_constant<int, 16>{});
}

template <class T>
std::int64_t blocks_of_rows(std::int64_t rows) {
  return with_rows<T>(rows, [&](auto n) { return ceil_div(rows, std::int64_t{n}); });
}

/// As many as give all processors work, each with a step for every warp.
template <class T>
std::int64_t slices_of(std::int64_t rows, std::int64_t in, std::int64_t out) {
  const std::int64_t blocks = ceil_div(out, std::int64_t{kColumns}) * blocks_of_rows<T>(rows);
  return std::max<std::int64_t>(1, std::min(kBlocks / blocks, ceil_div(in, std::int64_t{kWarps} * kStep)));
}

template <class T>
Problem<T> problem_of(const GeneratedLinear<T>& g, void* workspace) {
  const auto& l = g.layer;
  Problem<T> p{};
  p.rows = static_cast<int>(g.rows), p.in = static_cast<int>(g.in), p.out = static_cast<int>(g.out);
  p.columns = static_cast<int>(ceil_div(g.out, std::int64_t{kColumns}));
  p.slices = static_cast<int>(slices_of<T>(g.rows, g.in, g.out));
  p.group_size = g.group_size;
  p.theta = g.theta, p.coefficients = l.coefficients, p.bias = g.bias, p.x = g.x, p.y = g.y;
  p.partial = static_cast<Wider<T>*>(workspace);
  p.gain = l.gain;
  if (l.method == GeneratedLayer<Wider<T>>::Method::tiles) {
    p.window = static_cast<int>(l.window);
    p.by_tile = Divisor(tile_of(l, g.group_size)), p.by_window = Divisor(std::max<std::int64_t>(l.window, 1));
  } else {
    p.templates = l.templates;
    std::copy_n(l.offsets, l.templates, p.offsets);
  }
  return p;
}

}  // namespace

template <class T>
std::size_t generated_linear_workspace(CudaQueue&, std::int64_t rows, std::int64_t in, std::int64_t out) {
  const std::int64_t slices = slices_of<T>(rows, in, out);
  return slices > 1 ? static_cast<std::size_t>(slices * rows * out) * sizeof(Wider<T>) : 0;
}

template <class T>
void generated_linear(CudaQueue& q, const GeneratedLinear<T>& g, void* workspace) {
  const Problem<T> p = problem_of(g, workspace);
  const bool tiled = g.layer.method == GeneratedLayer<Wider<T>>::Method::tiles;
  with_rows<T>(g.rows, [&](auto rows) {
    launch(q, "generated_linear", tiled ? multiply<rows.value, true, T> : multiply<rows.value, false, T>,
           static_cast<unsigned>(p.columns * p.slices * blocks_of_rows<T>(g.rows)), kThreads, 0, p);
  });
  const std::int64_t size = g.rows * g.out;
  if (p.slices > 1)
    launch(q, "generated_linear", add_slices<T>, blocks_for(size, kThreads), kThreads, 0, size, p.out,
           p.slices, p.partial, p.bias, p.y);
}

template void generated_linear(CudaQueue&, const GeneratedLinear<bf16>&, void*);
template void generated_linear(CudaQueue&, const GeneratedLinear<float>&, void*);
template void generated_linear(CudaQueue&, const GeneratedLinear<double>&, void*);
template std::size_t generated_linear_workspace<bf16>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t);
template std::size_t generated_linear_workspace<float>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t);
template std::size_t generated_linear_workspace<double>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t);

}  // namespace ssn::kernels
