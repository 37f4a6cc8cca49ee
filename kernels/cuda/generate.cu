#include "kernels/generate.h"

#include "kernels/cuda/generate_columns.h"
#include "kernels/cuda/generate_pack.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/upload.cuh"
#include "runtime/cuda/launch.cuh"

// Forward. What memory can do is one read of theta and one write of every weight; the caches behind the
// processors are not fast enough to read theta from them once for each template of each layer. So layers that
// read the same columns of theta are written by blocks that hold these in shared memory; the rest, which
// would gain nothing, straight from theta.
namespace ssn::kernels {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / kWarp;
constexpr int kInFlight = 4;                   // packs that a thread moves at once
constexpr std::int64_t kTileBytes = 96 << 10;  // two blocks fit into a processor
constexpr std::int64_t kMostSources = 1536;    // in one launch, since each takes shared memory

template <class T>
constexpr int kPart = kWarp* kInFlight* kPack<T>;

/// c[v] = gain · mask[(place + v) mod window]
template <class T>
__device__ FullPack<T> mask_at(const Target<T>& w, const Source<T>& s, std::int64_t place) {
  FullPack<T> c;
  std::uint32_t m = w.by_window.rest(static_cast<std::uint32_t>(place));
#pragma unroll
  for (int v = 0; v < kPack<T>; ++v) {
    c[v] = s.gain * s.coefficients[m];
    m = m + 1 == w.by_window.divisor ? 0 : m + 1;
  }
  return c;
}

/// What a block of write_columns has: its tile of theta, and the sources of all targets.
template <class T>
struct Tile {
  const Columns& columns;
  std::int64_t first_column;
  T *theta, *factors;    // factors: gain times coefficient of each source
  std::int32_t* places;  // in theta, of each source

  /// Place in a target of element x of its part of the columns; −1 where there is none.
  __device__ std::int64_t place(const Target<T>& w, int x) const {
    const std::int64_t row = columns.by_width.quotient(static_cast<std::uint32_t>(x));
    const std::int64_t column = first_column + (x - row * columns.width), at = row * columns.period + column;
    return column < columns.period && at < w.size ? at : -1;
  }
};

template <class T>
__device__ void fill_tile(const Tile<T>& tile, const std::int32_t* rows, const T* theta) {
  const Columns& c = tile.columns;
  const int packs = c.tile() / kPack<T>;
  for (int i = static_cast<int>(threadIdx.x); i < packs; i += kInFlight * kThreads) {
    FullPack<T> x[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      const int at = (i + u * kThreads) * kPack<T>;
      if (at >= c.tile()) break;
      const int row = static_cast<int>(c.by_width.quotient(static_cast<std::uint32_t>(at)));
      const std::int64_t column = tile.first_column + (at - row * c.width);
      x[u] = load_pack(theta, rows[row] * c.period + column, column < c.period ? c.group_size : 0);
    }
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      const int at = (i + u * kThreads) * kPack<T>;
      if (at < c.tile()) x[u].store(tile.theta + at);
    }
  }
}

/// A warp writes a part of an aligned target; x: the lane's first place in the target's columns.
template <class T>
__device__ void write_packs(const Tile<T>& tile, const Target<T>& w, const Source<T>* sources, int x,
                            int end) {
  constexpr int kStep = kWarp * kPack<T>;
  FullPack<T> sum[kInFlight];
  for (int k = 0; k < w.sources; ++k) {
    const T a = tile.factors[w.first_source + k];
    const T* from = tile.theta + tile.places[w.first_source + k] + x;
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      if (x + u * kStep >= end) break;
      const FullPack<T> y = FullPack<T>::load(from + u * kStep);
#pragma unroll
      for (int v = 0; v < kPack<T>; ++v) sum[u][v] = k ? fma(a, y[v], sum[u][v]) : a * y[v];
    }
  }
#pragma unroll
  for (int u = 0; u < kInFlight; ++u) {
    if (x + u * kStep >= end) break;
    const std::int64_t at = tile.place(w, x + u * kStep);
    if (at < 0) continue;
    if (w.window > 1) {
      const FullPack<T> c = mask_at(w, sources[w.first_source], at);
      const FullPack<T> y = FullPack<T>::load(tile.theta + tile.places[w.first_source] + x + u * kStep);
#pragma unroll
      for (int v = 0; v < kPack<T>; ++v) sum[u][v] = c[v] * y[v];
    }
    store_pack(sum[u], w.weight + at, w.size - at);
  }
}

/// The same for a target that is not aligned, element by element: neighbouring lanes write neighbours, so
/// that the memory still gets whole lines.
template <class T>
__device__ void write_elements(const Tile<T>& tile, const Target<T>& w, const Source<T>* sources, int x,
                               int end) {
#pragma unroll 4
  for (int i = 0; i < kPart<T> / kWarp; ++i, x += kWarp) {
    const std::int64_t at = x < end ? tile.place(w, x) : -1;
    if (at < 0) continue;
    T sum = 0;
    for (int k = 0; k < w.sources; ++k) {
      const T y = tile.theta[tile.places[w.first_source + k] + x], a = tile.factors[w.first_source + k];
      sum = k ? fma(a, y, sum) : a * y;
    }
    if (w.window > 1) {
      const Source<T>& s = sources[w.first_source];
      sum = s.gain * s.coefficients[w.by_window.rest(static_cast<std::uint32_t>(at))] *
            tile.theta[tile.places[w.first_source] + x];
    }
    w.weight[at] = sum;
  }
}

/// A block owns columns of theta, and writes them of all targets; its warps take turns at the parts.
template <class T>
__global__ void __launch_bounds__(kThreads, 2)
    write_columns(Columns columns, const std::int32_t* rows, int targets, const Target<T>* target,
                  int sources, const Source<T>* source, const T* theta) {
  SSN_DYNAMIC_SHARED(T, shared);
  T* const factors = shared + columns.tile();
  const Tile<T> tile{columns, std::int64_t{blockIdx.x} * columns.width, shared, factors,
                     reinterpret_cast<std::int32_t*>(factors + sources)};
  fill_tile(tile, rows, theta);
  for (int k = static_cast<int>(threadIdx.x); k < sources; k += kThreads) {
    const Source<T> s = source[k];
    tile.factors[k] = s.gain * (s.coefficients ? *s.coefficients : T(1));
    tile.places[k] = s.row * columns.width;
  }
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int t = 0; t < targets; ++t) {
    const Target<T> w = target[t];
    const int end = w.rows * columns.width;
    const int turn = (warp + kWarps - static_cast<int>(w.first_part % kWarps)) % kWarps;
    const bool aligned = elements_past_alignment(w.weight) == 0;
    for (int x = turn * kPart<T>; x < end; x += kWarps * kPart<T>) {
      if (aligned)
        write_packs(tile, w, source, x + lane * kPack<T>, end);
      else
        write_elements(tile, w, source, x + lane, end);
    }
  }
}

constexpr int kChunkThreads = 256;
template <class T>
constexpr std::int64_t kChunk = kChunkThreads* kPack<T>;

/// A block owns a chunk, here the part, of one target, a thread a pack of it.
template <class T>
__global__ void __launch_bounds__(kChunkThreads)
    write_chunks(std::int64_t group_size, int targets, const Target<T>* target, const Source<T>* source,
                 const T* theta) {
  int low = 0, high = targets;  // the last target that starts at or before the block
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (target[middle].first_part <= blockIdx.x ? low : high) = middle;
  }
  const Target<T> w = target[low];
  const std::int64_t i = (blockIdx.x - w.first_part) * kChunk<T> + std::int64_t{threadIdx.x} * kPack<T>;
  if (i >= w.size) return;
  FullPack<T> sum;
#pragma unroll 4
  for (int k = 0; k < w.sources; ++k) {
    const Source<T> s = source[w.first_source + k];
    const FullPack<T> x = load_pack(theta, s.first + i, group_size);
    const T one = s.gain * (s.coefficients ? *s.coefficients : T(1));
    const FullPack<T> c = w.window > 1 ? mask_at(w, s, i) : FullPack<T>::filled(one);
#pragma unroll
    for (int v = 0; v < kPack<T>; ++v) sum[v] = k ? fma(c[v], x[v], sum[v]) : c[v] * x[v];
  }
  store_pack(sum, w.weight + i, w.size - i);
}

// ---- on the host

/// The targets and sources of some layers.
template <class T>
struct Work {
  std::vector<Target<T>> targets;
  std::vector<Source<T>> sources;

  Work(Layers<T> layers, std::int64_t group_size) {
    for (const auto& l : layers) {
      const bool tiles = l.method == GeneratedLayer<T>::Method::tiles;
      const std::int64_t whole = tiles ? tile_of(l, group_size) : l.n;
      for (std::int64_t at = 0; at < l.n; at += whole) {
        const auto first = static_cast<std::int32_t>(sources.size());
        const std::int64_t size = std::min(whole, l.n - at);
        targets.push_back({l.weight + at, size, 0, first, tiles ? 1 : l.templates, 0, 1, Divisor()});
        if (tiles)
          add_tile(l, at / whole);
        else
          for (int k = 0; k < l.templates; ++k)
            sources.push_back({l.offsets[k], l.coefficients ? l.coefficients + k : nullptr, l.gain});
      }
    }
  }
  /// The parts of all targets, if those of one cover `size` elements of it.
  template <class F>
  std::int64_t number_parts(F&& parts_of) {
    std::int64_t parts = 0;
    for (Target<T>& t : targets) {
      t.first_part = parts;
      parts += parts_of(t);
    }
    return parts;
  }

 private:
  void add_tile(const GeneratedLayer<T>& l, std::int64_t tile) {
    const bool masked = tile > 0 && l.coefficients;
    sources.push_back({0, masked ? l.coefficients + (tile - 1) * l.window : nullptr, l.gain});
    if (!masked) return;
    targets.back().window = static_cast<std::int32_t>(l.window);
    targets.back().by_window = Divisor(l.window);
  }
};

template <class T>
std::int64_t sources_of(const GeneratedLayer<T>& l, std::int64_t group_size) {
  return l.method == GeneratedLayer<T>::Method::tiles ? ceil_div(l.n, tile_of(l, group_size)) : l.templates;
}

/// Layers that one launch writes. period: 0: from chunks; else by columns.
template <class T>
struct Pass {
  std::int64_t period;
  std::vector<GeneratedLayer<T>> layers;
};

/// By columns as long as that saves reads of theta, the rest from chunks.
template <class T>
std::vector<Pass<T>> passes_of(Layers<T> layers, std::int64_t group_size) {
  constexpr std::int64_t kMostRows = kTileBytes / static_cast<std::int64_t>(sizeof(T)) / 32;
  std::vector<Pass<T>> passes;
  std::vector<GeneratedLayer<T>> left;
  std::copy_if(layers.begin(), layers.end(), std::back_inserter(left), [](const auto& l) { return l.n > 0; });
  const auto reads = [&](const GeneratedLayer<T>& l) {
    return l.method == GeneratedLayer<T>::Method::tiles ? l.n : l.n * l.templates;
  };
  while (!left.empty()) {
    const std::int64_t period = best_period(Layers<T>(left), group_size, kMostRows, reads);
    Pass<T> pass{period, {}};
    std::vector<GeneratedLayer<T>> others;
    std::int64_t saved = 0, sources = 0;
    for (const auto& l : left) {
      const std::int64_t more = sources_of(l, group_size);
      const bool taken = fits(l, period) && sources + more <= kMostSources;
      (taken ? pass.layers : others).push_back(l);
      if (taken) saved += reads(l), sources += more;
    }
    if (10 * group_size >= 9 * saved) break;
    passes.push_back(std::move(pass));
    left = std::move(others);
  }
  if (!left.empty()) passes.push_back({0, std::move(left)});
  return passes;
}

template <class T>
void write_by_columns(CudaQueue& q, const Pass<T>& pass, std::int64_t group_size, const T* theta,
                      void* plain) {
  Work<T> work(pass.layers, group_size);
  UsedRows used(group_size, pass.period);
  for (const Target<T>& t : work.targets)
    for (int k = 0; k < t.sources; ++k)
      used.use(work.sources[static_cast<std::size_t>(t.first_source + k)].first, t.size);
  const std::vector<std::int32_t> rows = used.number();
  for (Source<T>& s : work.sources) s.row = used.places()[static_cast<std::size_t>(s.first / pass.period)];
  Columns columns;
  columns.group_size = group_size, columns.period = pass.period;
  columns.rows = columns.rows_of_block = static_cast<std::int32_t>(rows.size());
  columns.set_width(block_width(pass.period, columns.rows, kTileBytes / static_cast<std::int64_t>(sizeof(T)),
                                kUnit<T>, 128));
  work.number_parts([&](Target<T>& t) {
    t.rows = static_cast<std::int32_t>(ceil_div(t.size, pass.period));
    return ceil_div(std::int64_t{t.rows} * columns.width, kPart<T>);
  });
  Tables tables;
  const std::size_t at_rows = tables.add(rows), at_targets = tables.add(work.targets),
                    at_sources = tables.add(work.sources);
  upload(q, tables.words(), plain);
  const std::size_t shared = static_cast<std::size_t>(columns.tile()) * sizeof(T) +
                             work.sources.size() * (sizeof(T) + sizeof(std::int32_t));
  launch(q, "generate_forward", write_columns<T>, static_cast<unsigned>(columns.across()), kThreads, shared,
         columns, Tables::at<std::int32_t>(plain, at_rows), work.targets.size(),
         Tables::at<Target<T>>(plain, at_targets), work.sources.size(),
         Tables::at<Source<T>>(plain, at_sources), theta);
}

template <class T>
void write_by_chunks(CudaQueue& q, const Pass<T>& pass, std::int64_t group_size, const T* theta,
                     void* plain) {
  Work<T> work(pass.layers, group_size);
  const std::int64_t blocks = work.number_parts([](Target<T>& t) { return ceil_div(t.size, kChunk<T>); });
  Tables tables;
  const std::size_t at_targets = tables.add(work.targets), at_sources = tables.add(work.sources);
  upload(q, tables.words(), plain);
  launch(q, "generate_forward", write_chunks<T>, static_cast<unsigned>(blocks), kChunkThreads, 0, group_size,
         work.targets.size(), Tables::at<Target<T>>(plain, at_targets),
         Tables::at<Source<T>>(plain, at_sources), theta);
}

}  // namespace

template <class T>
void generate_forward(CudaQueue& q, Layers<T> layers, std::int64_t group_size, const T* theta, void* plain) {
  for (const Pass<T>& pass : passes_of(layers, group_size))
    (pass.period > 0 ? write_by_columns<T> : write_by_chunks<T>)(q, pass, group_size, theta, plain);
}

template void generate_forward(CudaQueue&, Layers<float>, std::int64_t, const float*, void*);
template void generate_forward(CudaQueue&, Layers<double>, std::int64_t, const double*, void*);

}  // namespace ssn::kernels
