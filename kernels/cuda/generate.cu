#include "kernels/generate.h"

#include "kernels/cuda/generate_channels.h"
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
constexpr int kInFlight = 4;                 // packs that a thread moves at once
constexpr std::int64_t kMostSources = 1536;  // in one launch, since each takes shared memory

/// Elements of theta that a block has room for: with 96 KiB two blocks fit into a processor of compute
/// capability 9.0; others have less memory to share.
template <class T>
std::int64_t most_of_tile() {
  constexpr std::int64_t kTileBytes = 96 << 10, kSource = sizeof(T) + sizeof(std::int32_t);
  const std::int64_t room = cuda_shared_memory() - kMostSources * kSource;
  return std::min(kTileBytes, room / 1024 * 1024) / static_cast<std::int64_t>(sizeof(T));
}

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

/// p's elements, rounded to Out, to the first `count` places behind `to`.
template <class Out, class T, int kPacks>
__device__ void store_rounded(const FullPack<T> (&p)[kPacks], Out* to, std::int64_t count) {
  FullPack<Out> rounded;
#pragma unroll
  for (int i = 0; i < kPack<Out>; ++i) store(rounded[i], p[i / kPack<T>][i % kPack<T>]);
  store_pack(rounded, to, count);
}

/// A lane's packs of an aligned target in theta's order, kWrites of them a warp's width apart; x: the first's
/// place in the target's columns. Where Out is narrower than T, a lane reads two packs for each that it
/// writes; half of the lanes take the second first, since the same 16 bytes of each 32 are the same banks.
template <int kWrites, class Out, class T>
__device__ void write_packs(const Tile<T>& tile, const Target<T>& w, const Source<T>* sources, Out* to, int x,
                            int end) {
  constexpr int N = kPack<Out>, kReads = N / kPack<T>, kStep = kWarp * N;
  const int turned = kReads > 1 ? static_cast<int>(threadIdx.x) / 4 % 2 : 0;
  FullPack<T> sum[kWrites][kReads];
  for (int k = 0; k < w.sources; ++k) {
    const T a = tile.factors[w.first_source + k];
    const T* from = tile.theta + tile.places[w.first_source + k] + x;
#pragma unroll
    for (int u = 0; u < kWrites; ++u) {
      if (x + u * kStep >= end) break;
#pragma unroll
      for (int r = 0; r < kReads; ++r) {
        const FullPack<T> y = FullPack<T>::load(from + u * kStep + (r ^ turned) * kPack<T>);
#pragma unroll
        for (int v = 0; v < kPack<T>; ++v) sum[u][r][v] = k ? fma(a, y[v], sum[u][r][v]) : a * y[v];
      }
    }
  }
#pragma unroll
  for (int u = 0; u < kWrites; ++u) {
    if (x + u * kStep >= end) break;
    const std::int64_t at = tile.place(w, x + u * kStep);
    if (at < 0) continue;
    if (kReads > 1 && turned) std::swap(sum[u][0], sum[u][kReads - 1]);
    if (w.window > 1) {
      const T* from = tile.theta + tile.places[w.first_source] + x + u * kStep;
#pragma unroll
      for (int r = 0; r < kReads; ++r) {
        const FullPack<T> c = mask_at(w, sources[w.first_source], at + r * kPack<T>);
        const FullPack<T> y = FullPack<T>::load(from + r * kPack<T>);
#pragma unroll
        for (int v = 0; v < kPack<T>; ++v) sum[u][r][v] = c[v] * y[v];
      }
    }
    store_rounded(sum[u], to + at, w.size - at);
  }
}

/// M elements of a target from place x of its part of the columns on, `step` apart; `at`: the first's place
/// in the target.
template <int M, class T>
__device__ Values<T, M> sums_at(const Tile<T>& tile, const Target<T>& w, const Source<T>* sources, int x,
                                std::int64_t at, int step) {
  auto sum = Values<T, M>::filled(T(0));
  for (int k = 0; k < w.sources; ++k) {
    const T a = tile.factors[w.first_source + k];
    const T* from = tile.theta + tile.places[w.first_source + k] + x;
#pragma unroll
    for (int v = 0; v < M; ++v) sum[v] = k ? fma(a, from[v * step], sum[v]) : a * from[v * step];
  }
  if (w.window > 1) {
    const Source<T>& s = sources[w.first_source];
    const T* from = tile.theta + tile.places[w.first_source] + x;
#pragma unroll
    for (int v = 0; v < M; ++v) {
      const auto place = static_cast<std::uint32_t>(at + v * step);
      sum[v] = s.gain * s.coefficients[w.by_window.rest(place)] * from[v * step];
    }
  }
  return sum;
}

/// The same as write_packs for a target that is not aligned, element by element: neighbouring lanes write
/// neighbours, so that the memory still gets whole lines.
template <class Out, class T>
__device__ void write_elements(const Tile<T>& tile, const Target<T>& w, const Source<T>* sources, Out* to,
                               int x, int end) {
#pragma unroll 4
  for (int i = 0; i < kPart<T> / kWarp; ++i, x += kWarp) {
    const std::int64_t at = x < end ? tile.place(w, x) : -1;
    if (at >= 0) store(to[at], sums_at<1>(tile, w, sources, x, at, 0)[0]);
  }
}

/// A lane writes its channels of a stretch of `there` elements; sums(M, x): M elements from x on, a tap
/// apart.
template <int N, class Out, class F>
__device__ void write_channels(const ChannelOrder& order, const ChannelPlace& place, int there, Out* weight,
                               F&& sums) {
  const int last = place.x + (N - 1) * order.taps();
  if (place.x >= 0 && last < there)
    return sums(std::integral_constant<int, N>{}, place.x).store(weight + place.weight);
  if constexpr (N > 1) {
#pragma unroll 1
    for (int v = 0; v < N; ++v) {  // a block's columns begin or end within
      const int x = place.x + v * order.taps();
      if (x >= 0 && x < there) store(weight[place.weight + v], sums(std::integral_constant<int, 1>{}, x)[0]);
    }
  }
}

/// Warps write a target with the channels last, a stretch being a row of its part of the columns.
template <int N, class Out, class T>
__device__ void write_reordered(const Tile<T>& tile, const Target<T>& w, const Source<T>* sources, int turn) {
  const int end = w.rows * w.order.items(), taps = w.order.taps(), width = tile.columns.width;
  for (int i = turn * kWarp + static_cast<int>(threadIdx.x) % kWarp; i < end; i += kThreads) {
    const ChannelItem item = w.order.template item<N>(i);
    const std::int64_t first = tile.place(w, item.row * width);  // in the target
    if (first < 0) continue;
    const std::int64_t in_row = tile.columns.period - tile.first_column, left = w.size - first;
    const std::int64_t there = left < in_row ? left : in_row;
    write_channels<N>(w.order, w.order.template place<N>(item, w.begin + first),
                      static_cast<int>(there < width ? there : width), static_cast<Out*>(w.weight),
                      [&](auto count, int x) {
                        return sums_at<count.value>(tile, w, sources, item.row * width + x, first + x, taps);
                      });
  }
}

/// A block writes its part of a target; `turn`: which of its parts a warp begins with.
template <class Out, class T>
__device__ void write_target(const Tile<T>& tile, const Target<T>& w, const Source<T>* sources, int turn) {
  if (!w.order.is_thetas()) {
    if (w.order.pack > 1)
      write_reordered<kPack<Out>, Out>(tile, w, sources, turn);
    else
      write_reordered<1, Out>(tile, w, sources, turn);
    return;
  }
  const int end = w.rows * tile.columns.width, lane = static_cast<int>(threadIdx.x) % kWarp;
  Out* const to = static_cast<Out*>(w.weight) + w.begin;
  const bool aligned = elements_past_alignment(to) == 0;
  constexpr int kStep = kWarp * kPack<Out>, kWrites = sizeof(Out) == sizeof(T) ? kInFlight : 1;
  for (int x = turn * kPart<T>; x < end; x += kWarps * kPart<T>) {
    if (!aligned) {
      write_elements(tile, w, sources, to, x + lane, end);
      continue;
    }
#pragma unroll 1  // or registers do not suffice
    for (int from = 0; from < kPart<T>; from += kWrites * kStep)
      write_packs<kWrites>(tile, w, sources, to, x + from + lane * kPack<Out>, end);
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
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  for (int t = 0; t < targets; ++t) {
    const Target<T>& w = target[t];  // in registers all of it would leave none
    const int turn = (warp + kWarps - static_cast<int>(w.first_part % kWarps)) % kWarps;
    if constexpr (std::is_same_v<T, float>) {
      if (w.half) {
        write_target<bf16>(tile, w, source, turn);
        continue;
      }
    }
    write_target<T>(tile, w, source, turn);
  }
}

constexpr int kChunkThreads = 256, kOwn = 2;  // kOwn: packs of a thread
template <class T>
constexpr int kChunk = kChunkThreads* kOwn* kPack<T>;

/// A thread's packs of a target, at places `at`.
template <class T>
__device__ void sum_packs(const Target<T>& w, const Source<T>* source, const T* theta,
                          std::int64_t group_size, const std::int64_t (&at)[kOwn], FullPack<T> (&sum)[kOwn]) {
#pragma unroll 2
  for (int k = 0; k < w.sources; ++k) {
    const Source<T> s = source[w.first_source + k];
    const T one = s.gain * (s.coefficients ? *s.coefficients : T(1));
#pragma unroll
    for (int u = 0; u < kOwn; ++u) {
      if (at[u] >= w.size) continue;
      const FullPack<T> x = load_pack(theta, s.first + at[u], group_size);
      const FullPack<T> c = w.window > 1 ? mask_at(w, s, at[u]) : FullPack<T>::filled(one);
#pragma unroll
      for (int v = 0; v < kPack<T>; ++v) sum[u][v] = k ? fma(c[v], x[v], sum[u][v]) : c[v] * x[v];
    }
  }
}

/// A block writes `there` elements of a target from `first` on with the channels last, whose sums are in
/// theta's order in `sums`.
template <int N, class Out, class T>
__device__ void write_chunk_reordered(const Target<T>& w, std::int64_t first, int there, const T* sums) {
  const int end = w.order.items(), taps = w.order.taps();
  for (int i = static_cast<int>(threadIdx.x); i < end; i += kChunkThreads)
    write_channels<N>(w.order, w.order.template place<N>(w.order.template item<N>(i), w.begin + first), there,
                      static_cast<Out*>(w.weight), [&](auto count, int x) {
                        Values<T, count.value> y;
#pragma unroll
                        for (int v = 0; v < count.value; ++v) y[v] = sums[x + v * taps];
                        return y;
                      });
}

/// A block writes its chunk of a target: in theta's order from its threads' packs, or from `sums`.
template <class Out, class T>
__device__ void write_chunk(const Target<T>& w, std::int64_t first, int there, const std::int64_t (&at)[kOwn],
                            const FullPack<T> (&sum)[kOwn], const T* sums) {
  if (!w.order.is_thetas()) {
    if (w.order.pack > 1) return write_chunk_reordered<kPack<Out>, Out>(w, first, there, sums);
    return write_chunk_reordered<1, Out>(w, first, there, sums);
  }
  Out* const to = static_cast<Out*>(w.weight) + w.begin;
  if constexpr (kPack<Out> == kOwn * kPack<T>) {
    if (at[0] < w.size) store_rounded(sum, to + at[0], w.size - at[0]);
  } else {
#pragma unroll
    for (int u = 0; u < kOwn; ++u)
      if (at[u] < w.size) store_pack(sum[u], to + at[u], w.size - at[u]);
  }
}

/// A block owns a chunk, here the part, of one target, a thread packs of it: side by side where they are
/// written together, else each beside its neighbour's.
template <class T>
__global__ void __launch_bounds__(kChunkThreads)
    write_chunks(std::int64_t group_size, int targets, const Target<T>* target, const Source<T>* source,
                 const T* theta) {
  alignas(16) __shared__ T sums[kChunk<T>];
  int low = 0, high = targets;  // the last target that starts at or before the block
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (target[middle].first_part <= blockIdx.x ? low : high) = middle;
  }
  const Target<T> w = target[low];
  const bool reordered = !w.order.is_thetas(), together = w.half && !reordered;
  const std::int64_t first = (blockIdx.x - w.first_part) * w.chunk, left = w.size - first;
  const int own = static_cast<int>(threadIdx.x);
  std::int64_t at[kOwn];
  FullPack<T> sum[kOwn] = {};
#pragma unroll
  for (int u = 0; u < kOwn; ++u)
    at[u] = first + (together ? own * kOwn + u : u * kChunkThreads + own) * kPack<T>;
  sum_packs(w, source, theta, group_size, at, sum);
#pragma unroll
  for (int u = 0; u < kOwn; ++u)
    if (reordered) sum[u].store(sums + (at[u] - first));
  __syncthreads();
  const int there = static_cast<int>(left < w.chunk ? left : w.chunk);
  if constexpr (std::is_same_v<T, float>) {
    if (w.half) return write_chunk<bf16>(w, first, there, at, sum, sums);
  }
  write_chunk<T>(w, first, there, at, sum, sums);
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
        targets.push_back({l.weight, at, size, first, tiles ? 1 : l.templates, 1, l.half, {}, order_of(l)});
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
  static ChannelOrder order_of(const GeneratedLayer<T>& l) {
    if (!l.is_reordered()) return {};
    return ChannelOrder(l.channels, l.taps, l.weight, l.half ? kPack<bf16> : kPack<T>);
  }
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
  const std::int64_t most_rows = most_of_tile<T>() / 32;
  std::vector<Pass<T>> passes;
  std::vector<GeneratedLayer<T>> left;
  std::copy_if(layers.begin(), layers.end(), std::back_inserter(left), [](const auto& l) { return l.n > 0; });
  const auto reads = [&](const GeneratedLayer<T>& l) {
    return l.method == GeneratedLayer<T>::Method::tiles ? l.n : l.n * l.templates;
  };
  while (!left.empty()) {
    const std::int64_t period = best_period(Layers<T>(left), group_size, most_rows, reads);
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
  const std::int64_t room = most_of_tile<T>();
  std::int64_t unit = kUnit<T>;
  for (const Target<T>& t : work.targets) unit = common_unit(unit, t.order, pass.period, room / columns.rows);
  columns.set_width(block_width(pass.period, columns.rows, room, unit, 128));
  work.number_parts([&](Target<T>& t) {
    t.rows = static_cast<std::int32_t>(ceil_div(t.size, pass.period));
    if (t.order.is_thetas()) return ceil_div(std::int64_t{t.rows} * columns.width, kPart<T>);
    t.order.cover(columns.width, t.begin, std::gcd(pass.period, std::int64_t{columns.width}));
    return ceil_div(std::int64_t{t.rows} * t.order.items(), kWarp);
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
  const std::int64_t blocks = work.number_parts([](Target<T>& t) {
    t.chunk = kChunk<T>;
    if (!t.order.is_thetas()) {
      const std::int64_t unit = std::lcm(t.order.unit(), std::int64_t{kPack<T>});
      if (unit <= kChunk<T>) t.chunk -= static_cast<std::int32_t>(kChunk<T> % unit);
      t.order.cover(t.chunk, t.begin, t.chunk);
    }
    return ceil_div(t.size, t.chunk);
  });
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
