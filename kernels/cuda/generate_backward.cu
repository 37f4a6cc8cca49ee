#include "kernels/cuda/generate_channels.h"
#include "kernels/cuda/generate_pack.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/upload.cuh"
#include "runtime/cuda/launch.cuh"

// Backward. A thread keeps some packs of theta and of its gradient in registers while all terms of the list
// pass in their order; a block's threads own a tile of Columns. The gradient of a weight that several
// templates make is read once, into shared memory, if the layer is made of the tile's whole rows.
namespace ssn::kernels {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kRows = 4;  // packs that a thread owns

/// Consecutive elements of a block's tile that a warp owns, and what a whole block may own.
template <class T>
constexpr int kRun = kWarp* kRows* kPack<T>;
template <class T>
constexpr int kTile = kWarps* kRun<T>;

constexpr int kFewCoefficients = kWarp;  // partial sums of more are kept by their order within the run

/// A term of the device: a template, an exact weight or a tile.
template <class T>
struct Piece {
  std::int64_t first, size;  // of theta
  const T* weight_grad;      // of the piece; with the channels last, of its layer
  std::int64_t begin;        // there, in theta's order; else 0
  const T* coefficients;
  T* coefficients_grad;
  std::int64_t partials;  // where they start: `width` for every block and warp that meets it
  Divisor by_window;
  std::int32_t window;             // 0: the coefficient is 1 and has no gradient
  std::int32_t row, end_row;       // used rows of theta
  std::int32_t staged;             // row of the batch where weight_grad begins; −1: it is read from memory
  std::int32_t first_down, downs;  // blocks that it meets, counted by rows
  std::int32_t first_warp, warps;  // and their warps
  std::int32_t next;               // the next that adds to the same coefficients_grad; −1: none
  T gain;
  ChannelOrder order;  // of weight_grad

  SSN_HD std::int64_t end() const { return first + size; }
  SSN_HD std::int32_t width() const { return window < kRun<T> ? window : kRun<T>; }
  SSN_HD std::int64_t runs(const Columns& c) const { return std::int64_t{c.across()} * downs * warps; }
};

/// A weight gradient, or the part of it that a block needs, in shared memory: `rows` rows from `row` on.
template <class T>
struct Staged {
  const T* weight_grad;
  std::int32_t row, rows;
  ChannelOrder order;
};
/// What passes between two barriers.
struct Batch {
  std::int32_t first_piece, pieces, first_staged, staged, rows, reordered;  // reordered: of the staged
};

/// A thread's packs.
template <class T>
struct Own {
  int lane, place;         // place: in the tile, of the lane's first pack
  std::int64_t at[kRows];  // in theta; negative: no such
  FullPack<T> theta[kRows], grad[kRows];
  unsigned touched = 0;  // elements that a term added to, a bit each

  static constexpr int kStep = kWarp * kPack<T>;  // in the tile, from pack to pack
  static constexpr unsigned kAll = (1u << kPack<T>)-1;
};

/// Place in theta of element x of a block's tile; negative where there is none.
__device__ inline std::int64_t place_in_theta(const Columns& c, const std::int32_t* rows, int down,
                                              int across, int x) {
  const int row = static_cast<int>(c.by_width.quotient(static_cast<std::uint32_t>(x)));
  const int used = down * c.rows_of_block + row;
  const std::int64_t column = std::int64_t{across} * c.width + (x - row * c.width);
  if (row >= c.rows_of_block || used >= c.rows || column >= c.period) return -1;
  const std::int64_t at = rows[used] * c.period + column;
  return at < c.group_size ? at : -1;
}

/// f(row, element of the pack, g) for the elements of a thread that the piece adds to.
template <class T, class F>
__device__ void each_staged(Own<T>& own, int low, int high, const T* grads, F&& f) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int x = own.place + r * Own<T>::kStep;
    if (x < low || x >= high) continue;
    const FullPack<T> g = FullPack<T>::load(grads + (x - low));
#pragma unroll
    for (int v = 0; v < kPack<T>; ++v) f(r, v, g[v]);
    own.touched |= Own<T>::kAll << (r * kPack<T>);
  }
}
/// Elements [at, at + kPack) of a piece's gradient; those outside are 0.
template <class T>
__device__ FullPack<T> gradient_of(const Piece<T>& p, std::int64_t at) {
  if (p.order.is_thetas()) return load_pack(p.weight_grad, at, p.size);
  FullPack<T> g;
#pragma unroll
  for (int v = 0; v < kPack<T>; ++v)
    g[v] = at + v >= 0 && at + v < p.size ? p.weight_grad[p.order.weight_at(p.begin + at + v)] : T(0);
  return g;
}
template <class T, class F>
__device__ void each_in_memory(Own<T>& own, const Piece<T>& p, F&& f) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const std::int64_t at = own.at[r] - p.first;
    if (own.at[r] < 0 || at <= -kPack<T> || at >= p.size) continue;
    const FullPack<T> g = gradient_of(p, at);
#pragma unroll
    for (int v = 0; v < kPack<T>; ++v) {
      if (at + v < 0 || at + v >= p.size) continue;
      f(r, v, g[v]);
      own.touched |= 1u << (r * kPack<T> + v);
    }
  }
}

/// One coefficient for the whole piece. Returns the warp's part of its gradient.
template <class T>
__device__ T add_scaled(Own<T>& own, const Piece<T>* piece, T a, int low, int high, const T* grads) {
  T dot = 0;
  const auto add = [&](int r, int v, T g) {
    own.grad[r][v] = fma(a, g, own.grad[r][v]);
    dot = fma(own.theta[r][v], g, dot);
  };
  if (grads)
    each_staged(own, low, high, grads, add);
  else
    each_in_memory(own, *piece, add);
  return warp_reduce(dot, Sum{});
}

/// A mask (of a tile, which starts where theta does). The warp's run is one stretch of theta. Products go to
/// its shared memory, from where lanes add those of equal place in the window, counted from the run's begin.
/// Short windows are shared by several lanes, each taking every `sharers`-th.
template <class T>
__device__ void add_masked(Own<T>& own, const Piece<T>& p, T* products, T* partials) {
  int there = 0;  // elements of the run: a row of theta may end in it
#pragma unroll
  for (int r = 0; r < kRows; ++r) there += kPack<T> * __popc(__ballot_sync(0xffffffffu, own.at[r] >= 0));
  const std::int64_t begin = __shfl_sync(0xffffffffu, own.at[0], 0), left = p.size - begin;
  const int n = begin < 0 || left < 0 ? 0 : static_cast<int>(left < there ? left : there);
  std::uint32_t m = 0;
  each_in_memory(own, p, [&](int r, int v, T g) {
    if (v == 0) m = p.by_window.rest(static_cast<std::uint32_t>(own.at[r]));
    own.grad[r][v] = fma(p.gain * p.coefficients[m], g, own.grad[r][v]);
    products[(r * kWarp + own.lane) * kPack<T> + v] = own.theta[r][v] * g;
    if (++m == p.by_window.divisor) m = 0;
  });
  __syncwarp();
  const int window = p.window < n ? p.window : n;
  const int sharers = window > 0 && window < kWarp ? kWarp / window : 1, width = sharers * window;
  const bool few = p.window <= kFewCoefficients;
  const auto phase = static_cast<int>(n > 0 ? p.by_window.rest(static_cast<std::uint32_t>(begin)) : 0);
  if (few && own.lane >= window && own.lane < p.window) partials[(phase + own.lane) % p.window] = 0;
  for (int j = 0; j < width; j += kWarp) {
    T sum = 0;
    if (j + own.lane < width)
      for (int i = j + own.lane; i < n; i += width) sum += products[i];
    T all = sum;
    for (int k = 1; k < sharers; ++k) all += __shfl_sync(0xffffffffu, sum, (own.lane + k * window) % kWarp);
    if (j + own.lane < window) partials[few ? (phase + own.lane) % p.window : j + own.lane] = all;
  }
  __syncwarp();  // the next piece writes `products` again
}

/// The rows of a gradient with the channels last, to their places in theta's order.
template <int N, class T>
__device__ void stage_reordered(const Columns& c, int across, const Staged<T>& s, T* grads) {
  const int end = s.rows * s.order.items(), taps = s.order.taps();
  const std::int64_t left = c.period - std::int64_t{across} * c.width;
  const int there = static_cast<int>(left < c.width ? left : c.width);
  for (int i = static_cast<int>(threadIdx.x); i < end; i += static_cast<int>(blockDim.x)) {
    const ChannelItem item = s.order.template item<N>(i);
    const ChannelPlace place =
        s.order.template place<N>(item, item.row * c.period + std::int64_t{across} * c.width);
    T* const to = grads + (s.row + item.row) * c.width;
    if (place.x >= 0 && place.x + (N - 1) * taps < there) {
      const auto g = Pack<T, N>::load(s.weight_grad + place.weight);
#pragma unroll
      for (int v = 0; v < N; ++v) to[place.x + v * taps] = g[v];
      continue;
    }
    for (int v = 0; v < N; ++v) {
      const int x = place.x + v * taps;
      if (x >= 0 && x < c.width) to[x] = x < there ? s.weight_grad[place.weight + v] : T(0);
    }
  }
}

/// A batch's weight gradients, row after row of the block's columns.
template <class T>
__device__ void stage(const Columns& c, int across, const Batch& batch, const Staged<T>* staged, T* grads) {
  const int end = batch.rows * c.width, step = static_cast<int>(blockDim.x) * kPack<T>;
  for (int i = static_cast<int>(threadIdx.x) * kPack<T>; i < end; i += kRows * step) {
    FullPack<T> g[kRows];
    unsigned loaded = 0;  // a bit each
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      if (i + u * step >= end) break;
      const int row = static_cast<int>(c.by_width.quotient(static_cast<std::uint32_t>(i + u * step)));
      int low = batch.first_staged, high = low + batch.staged;  // the last that starts at or before the row
      while (high - low > 1) {
        const int middle = (low + high) / 2;
        (staged[middle].row <= row ? low : high) = middle;
      }
      const Staged<T>& s = staged[low];
      if (!s.order.is_thetas()) continue;
      loaded |= 1u << u;
      const std::int64_t column = std::int64_t{across} * c.width + (i + u * step - row * c.width);
      g[u] = load_pack(s.weight_grad, (row - s.row) * c.period + column,
                       column < c.period ? s.rows * c.period : 0);
    }
#pragma unroll
    for (int u = 0; u < kRows; ++u)
      if (loaded >> u & 1) g[u].store(grads + i + u * step);
  }
  if (batch.reordered == 0) return;
  for (int s = batch.first_staged; s < batch.first_staged + batch.staged; ++s) {
    if (staged[s].order.is_thetas()) continue;
    if (staged[s].order.pack > 1)
      stage_reordered<kPack<T>>(c, across, staged[s], grads);
    else
      stage_reordered<1>(c, across, staged[s], grads);
  }
}

/// What a lane knows of one of 32 pieces, until the whole warp takes it.
template <class T>
struct Met {
  T factor = 0;
  int low = 0, high = 0, staged = -1;
  std::int64_t partials = -1;  // in the workspace; −1: none are wanted

  __device__ Met(const Columns& c, const Piece<T>& p, int across, int down, int warp)
      : factor(p.gain * (p.window ? *p.coefficients : T(1))),
        low((p.row - down * c.rows_of_block) * c.width),
        high((p.end_row - down * c.rows_of_block) * c.width),
        staged(p.staged < 0 ? -1 : p.staged * c.width) {
    const std::int64_t run =
        (std::int64_t{down - p.first_down} * c.across() + across) * p.warps + warp - p.first_warp;
    if (p.window) partials = p.partials + run * p.width();
  }
  __device__ Met() = default;
};

/// A warp adds the pieces of a batch that it meets, 32 looked at at a time.
template <class T>
__device__ void add_pieces(const Columns& c, Own<T>& own, const Batch& batch, const Piece<T>* pieces,
                           int across, int down, const T* grads, T* products, T* workspace) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp, end = batch.first_piece + batch.pieces;
  for (int first = batch.first_piece; first < end; first += kWarp) {
    const Piece<T>* const mine = pieces + first + own.lane;
    const bool meets = first + own.lane < end && warp >= mine->first_warp &&
                       warp < mine->first_warp + mine->warps && down >= mine->first_down &&
                       down < mine->first_down + mine->downs;
    const Met<T> met = meets ? Met<T>(c, *mine, across, down, warp) : Met<T>();
    unsigned left = __ballot_sync(0xffffffffu, meets);
    for (; left; left &= left - 1) {
      const int from = __ffs(static_cast<int>(left)) - 1, index = first + from;
      const int staged = __shfl_sync(0xffffffffu, met.staged, from);
      const int low = __shfl_sync(0xffffffffu, met.low, from);
      const int high = __shfl_sync(0xffffffffu, met.high, from);
      const T factor = __shfl_sync(0xffffffffu, met.factor, from);
      if (staged < 0 && pieces[index].window > 1) {
        const std::int64_t partials = __shfl_sync(0xffffffffu, met.partials, from);
        add_masked(own, pieces[index], products, workspace + partials);
        continue;
      }
      const T dot = add_scaled(own, pieces + index, factor, low, high, staged < 0 ? nullptr : grads + staged);
      if (own.lane == from && met.partials >= 0) workspace[met.partials] = dot;
    }
  }
}

/// The tables of a call.
template <class T>
struct Program {
  const std::int32_t* rows;
  const Batch* batches;
  const Staged<T>* staged;
  const Piece<T>* pieces;
};

/// A block owns a tile, a warp a run of it.
template <class T>
__global__ void __launch_bounds__(kThreads, 2)
    add_columns(Columns c, int batches, int staged_elements, Program<T> program, const T* theta,
                T* theta_grad, T* workspace) {
  SSN_DYNAMIC_SHARED(T, grads);
  const int down = static_cast<int>(c.by_across.quotient(blockIdx.x));
  const int across = static_cast<int>(blockIdx.x - down * c.by_across.divisor);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  T* const products = grads + staged_elements + warp * kRun<T>;
  Own<T> own;
  own.lane = static_cast<int>(threadIdx.x) % kWarp;
  own.place = warp * kRun<T> + own.lane * kPack<T>;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    own.at[r] = place_in_theta(c, program.rows, down, across, own.place + r * Own<T>::kStep);
    own.theta[r] = load_pack(theta, own.at[r], own.at[r] < 0 ? 0 : c.group_size);
    own.grad[r] = load_pack(static_cast<const T*>(theta_grad), own.at[r], own.at[r] < 0 ? 0 : c.group_size);
  }
  for (int b = 0; b < batches; ++b) {
    const Batch batch = program.batches[b];
    stage(c, across, batch, program.staged, grads);
    __syncthreads();
    add_pieces(c, own, batch, program.pieces, across, down, grads, products, workspace);
    __syncthreads();  // the next batch writes `grads` again
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const unsigned bits = own.touched >> (r * kPack<T>)&Own<T>::kAll;
    if (own.at[r] < 0 || bits == 0) continue;
    if (bits == Own<T>::kAll) {
      store_pack(own.grad[r], theta_grad + own.at[r], kPack<T>);
      continue;
    }
#pragma unroll
    for (int v = 0; v < kPack<T>; ++v)
      if (bits >> v & 1) theta_grad[own.at[r] + v] = own.grad[r][v];
  }
}

// ---- coefficients

constexpr int kTotalThreads = 512;

/// The partial sum of coefficient j of many that a run has; 0 if it has none.
template <class T>
__device__ double partial_of(const Columns& c, const std::int32_t* rows, const Piece<T>& p, int run,
                             std::int64_t j, const T* partials) {
  const int across = c.across(), block = run / p.warps;
  const int x = (run % p.warps + p.first_warp) * kRun<T>;
  const std::int64_t begin = place_in_theta(c, rows, block / across + p.first_down, block % across, x);
  if (begin < 0) return 0;
  const std::int64_t row_end = (begin / c.period + 1) * c.period;
  const std::int64_t end = begin + kRun<T> < row_end ? begin + kRun<T> : row_end;
  const std::int64_t n = (end < p.size ? end : p.size) - begin;
  const std::int64_t at = (j + p.window - begin % p.window) % p.window;
  return at < n ? static_cast<double>(partials[run * std::int64_t{p.width()} + at]) : 0;
}

/// A block owns a piece: its partial sums to one a coefficient, times the gain.
template <class T>
__global__ void __launch_bounds__(kTotalThreads)
    sum_partials(Columns c, const std::int32_t* rows, const Piece<T>* pieces, const std::int64_t* totals,
                 T* workspace) {
  const Piece<T> p = pieces[blockIdx.x];
  if (p.coefficients_grad == nullptr) return;
  const T* const partials = workspace + p.partials;
  T* const total = workspace + totals[blockIdx.x];
  const int runs = static_cast<int>(p.runs(c));
  if (p.window > kFewCoefficients) {
    for (std::int64_t j = threadIdx.x; j < p.window; j += kTotalThreads) {
      double sum = 0;
      for (int run = 0; run < runs; ++run) sum += partial_of(c, rows, p, run, j, partials);
      total[j] = static_cast<T>(static_cast<double>(p.gain) * sum);
    }
    return;
  }
  for (int j = 0; j < p.window; ++j) {
    double sum = 0;
#pragma unroll 8
    for (std::int64_t run = threadIdx.x; run < runs; run += kTotalThreads)
      sum += static_cast<double>(partials[run * p.window + j]);
    sum = block_reduce(sum, Sum{}, 0.0);
    if (threadIdx.x == 0) total[j] = static_cast<T>(static_cast<double>(p.gain) * sum);
  }
}

/// A block owns the coefficients of a piece and of those that follow it in its chain.
template <class T>
__global__ void __launch_bounds__(kWarp) add_totals(const std::int32_t* heads, const Piece<T>* pieces,
                                                    const std::int64_t* totals, const T* workspace) {
  for (int i = heads[blockIdx.x]; i >= 0; i = pieces[i].next) {
    const int window = pieces[i].window;
    for (int j = static_cast<int>(threadIdx.x); j < window; j += kWarp)
      pieces[i].coefficients_grad[j] += workspace[totals[i] + j];
  }
}

// ---- on the host

template <class T>
bool is_masked(const GeneratedLayer<T>& l) {
  return l.method == GeneratedLayer<T>::Method::tiles && l.coefficients;
}
/// Reads that are saved where the layer's gradient is staged.
template <class T>
std::int64_t staging_saves(const GeneratedLayer<T>& l) {
  return l.method == GeneratedLayer<T>::Method::templates ? l.n * (l.templates - 1) : 0;
}

template <class T>
ChannelOrder order_of(const GeneratedLayer<T>& l) {
  return l.is_reordered() ? ChannelOrder(l.channels, l.taps, l.weight_grad, kPack<T>) : ChannelOrder();
}

/// A call, as its kernels see it.
template <class T>
class Schedule {
 public:
  Columns columns{};
  std::vector<std::int32_t> rows, heads;
  std::vector<Batch> batches{{}};
  std::vector<Staged<T>> staged;
  std::vector<Piece<T>> pieces;
  std::vector<std::int64_t> totals;
  std::int64_t elements = 0;     // of workspace
  std::int32_t staged_rows = 0;  // of the largest batch
  bool masked = false;

  Schedule(Layers<T> layers, std::int64_t group_size) {
    masked = std::any_of(layers.begin(), layers.end(), is_masked<T>);
    columns.group_size = group_size;
    choose_columns(layers);
    for (const auto& l : layers) add(l);
    number_results();
  }
  /// Threads of a block, and its shared memory in bytes.
  unsigned threads() const { return static_cast<unsigned>(warps() * kWarp); }
  std::size_t shared() const {
    const std::int64_t products = masked ? warps() * kRun<T> : 0;
    return static_cast<std::size_t>(std::max(staged_elements() + products, kUnit<T>)) * sizeof(T);
  }
  std::int64_t staged_elements() const { return std::int64_t{staged_rows} * columns.width; }

 private:
  std::int64_t warps() const { return ceil_div(columns.tile(), kRun<T>); }
  void choose_columns(Layers<T> layers);
  void add(const GeneratedLayer<T>& l);
  Piece<T> piece_of(const Term<T>& t) const;
  void number_results();

  std::vector<std::int32_t> places_;  // of the rows of theta among those used
  bool staging_ = false;
};

/// With masks, a warp's run must be one stretch of theta. Without anything to stage, a row is what a block
/// owns.
template <class T>
void Schedule<T>::choose_columns(Layers<T> layers) {
  const std::int64_t n = columns.group_size;
  std::int64_t unit = masked ? kRun<T> : kUnit<T>;
  columns.period = best_period(layers, n, kTile<T> / unit, staging_saves<T>);
  staging_ = columns.period > 0;
  if (!staging_)
    columns.period = kRun<T> * std::clamp<std::int64_t>(ceil_div(ceil_div(n, 528), kRun<T>), 1, kWarps);
  UsedRows used(n, columns.period);
  for_each_term(layers, n, kRun<T>, [&](const Term<T>& t) { used.use(t.first, t.size); });
  rows = used.number();
  columns.rows = static_cast<std::int32_t>(rows.size());
  columns.rows_of_block = staging_ ? columns.rows : 1;
  const bool narrow = staging_ && columns.rows > 0;
  for (const auto& l : layers)
    if (narrow && l.is_reordered())
      unit =
          common_unit(unit, {l.channels, l.taps, nullptr, kPack<T>}, columns.period, kTile<T> / columns.rows);
  columns.set_width(narrow ? block_width(columns.period, columns.rows, kTile<T>, unit, 64) : columns.period);
  places_ = used.places();
}

template <class T>
void Schedule<T>::add(const GeneratedLayer<T>& l) {
  const std::int64_t period = columns.period, layer_rows = l.n / period;
  const bool stage = staging_ && staging_saves(l) > 0 && fits(l, period) && l.n % period == 0 &&
                     layer_rows * columns.width <= kTile<T>;
  if (stage) {
    if ((batches.back().rows + layer_rows) * columns.width > kTile<T>)
      batches.push_back(
          {static_cast<std::int32_t>(pieces.size()), 0, static_cast<std::int32_t>(staged.size()), 0, 0, 0});
    staged.push_back(
        {l.weight_grad, batches.back().rows, static_cast<std::int32_t>(layer_rows), order_of(l)});
    staged.back().order.cover(columns.width, 0, std::gcd(period, std::int64_t{columns.width}));
    ++batches.back().staged;
    batches.back().reordered += l.is_reordered() ? 1 : 0;
    batches.back().rows += static_cast<std::int32_t>(layer_rows);
    staged_rows = std::max(staged_rows, batches.back().rows);
  }
  for_each_term(Layers<T>{&l, 1}, columns.group_size, kRun<T>, [&](const Term<T>& t) {
    pieces.push_back(piece_of(t));
    if (l.is_reordered()) {
      pieces.back().begin = t.weight_grad - l.weight_grad;
      pieces.back().weight_grad = l.weight_grad;
      pieces.back().order = order_of(l);
    }
    pieces.back().staged = stage ? staged.back().row : -1;
    ++batches.back().pieces;
  });
}

template <class T>
Piece<T> Schedule<T>::piece_of(const Term<T>& t) const {
  Piece<T> p{};
  p.first = t.first, p.size = t.size;
  p.weight_grad = t.weight_grad, p.coefficients = t.coefficients, p.coefficients_grad = t.coefficients_grad;
  p.window = static_cast<std::int32_t>(t.period);
  if (t.period > 0) p.by_window = Divisor(t.period);
  p.gain = t.gain;
  p.row = places_[static_cast<std::size_t>(t.first / columns.period)];
  p.end_row = places_[static_cast<std::size_t>((t.end() - 1) / columns.period)] + 1;
  p.first_down = p.row / columns.rows_of_block;
  p.downs = (p.end_row - 1) / columns.rows_of_block + 1 - p.first_down;
  p.first_warp = 0, p.warps = static_cast<std::int32_t>(warps());
  if (columns.blocks_down() == 1) {
    p.first_warp = p.row * columns.width / kRun<T>;
    p.warps = (p.end_row * columns.width - 1) / kRun<T> + 1 - p.first_warp;
  }
  return p;
}

/// Places of sums in the workspace, and the chains of pieces that add to the same.
template <class T>
void Schedule<T>::number_results() {
  std::map<const T*, std::size_t> last;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    Piece<T>& p = pieces[i];
    p.next = -1;
    p.partials = elements;
    elements += p.runs(columns) * p.width();
    totals.push_back(elements);
    if (p.coefficients_grad == nullptr) continue;
    elements += p.window;
    const auto [at, is_new] = last.try_emplace(p.coefficients_grad, i);
    if (is_new)
      heads.push_back(static_cast<std::int32_t>(i));
    else
      pieces[at->second].next = static_cast<std::int32_t>(i), at->second = i;
  }
}

}  // namespace

template <class T>
GenerateWorkspace generate_workspace(CudaQueue&, Layers<T> layers, std::int64_t group_size) {
  const Schedule<T> s(layers, group_size);
  Tables tables;
  tables.add(s.rows), tables.add(s.batches), tables.add(s.staged), tables.add(s.pieces);
  tables.add(s.totals), tables.add(s.heads);
  const TermCounts counts = count_terms<T>(layers, group_size, kRun<T>);
  return {s.elements, std::max(tables.bytes(), forward_table_bytes<T>(counts, group_size))};
}

template <class T>
void generate_backward(CudaQueue& q, Layers<T> layers, std::int64_t group_size, const T* theta, T* theta_grad,
                       T* workspace, void* plain) {
  const Schedule<T> s(layers, group_size);
  if (s.pieces.empty()) return;
  Tables tables;
  const std::size_t rows = tables.add(s.rows), batches = tables.add(s.batches), staged = tables.add(s.staged),
                    pieces = tables.add(s.pieces), totals = tables.add(s.totals), heads = tables.add(s.heads);
  upload(q, tables.words(), plain);
  const Program<T> program{Tables::at<std::int32_t>(plain, rows), Tables::at<Batch>(plain, batches),
                           Tables::at<Staged<T>>(plain, staged), Tables::at<Piece<T>>(plain, pieces)};
  const auto blocks = static_cast<unsigned>(s.columns.across() * s.columns.blocks_down());
  launch(q, "generate_backward", add_columns<T>, blocks, s.threads(), s.shared(), s.columns, s.batches.size(),
         s.staged_elements(), program, theta, theta_grad, workspace);
  if (s.heads.empty()) return;
  const std::int64_t* const places = Tables::at<std::int64_t>(plain, totals);
  launch(q, "generate_backward", sum_partials<T>, static_cast<unsigned>(s.pieces.size()), kTotalThreads, 0,
         s.columns, program.rows, program.pieces, places, workspace);
  launch(q, "generate_backward", add_totals<T>, static_cast<unsigned>(s.heads.size()), kWarp, 0,
         Tables::at<std::int32_t>(plain, heads), program.pieces, places, workspace);
}

template GenerateWorkspace generate_workspace(CudaQueue&, Layers<float>, std::int64_t);
template GenerateWorkspace generate_workspace(CudaQueue&, Layers<double>, std::int64_t);
template void generate_backward(CudaQueue&, Layers<float>, std::int64_t, const float*, float*, float*, void*);
template void generate_backward(CudaQueue&, Layers<double>, std::int64_t, const double*, double*, double*,
                                void*);

}  // namespace ssn::kernels
