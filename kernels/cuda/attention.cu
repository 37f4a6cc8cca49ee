#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/warp_tile.cuh"
#include "kernels/functors.h"
#include "runtime/cuda/launch.cuh"

// FlashAttention-2 (Dao, 2023): a block keeps a tile of rows of one head and walks over tiles of the other
// side; scores exist in registers only. Backward is two such walks, one for gq and one for gk and gv, which
// compute the scores once each, so that nothing is added up across blocks. A gradient of a score is p (m g −
// D), and D_i = Σ_j p m g = gy_i · y_i.
namespace ssn::kernels {
namespace {

/// How a block divides heads of up to W columns. A warp owns 16 rows of its tile.
template <class T, int W>
struct Tiling {
  static constexpr int kWarps = std::is_same_v<T, bf16> ? 4 : sizeof(T) == 4 ? 2 : 1;
  static constexpr int kThreads = kWarps * kWarp, kRows = kWarps * 16;
  /// Rows of a tile of the other side; registers for gk, gv and two tiles of scores are the limit.
  static constexpr int kColumns = std::is_same_v<T, bf16> ? (W <= 64 ? 64 : 32)
                                  : sizeof(T) == 4        ? (W <= 64 ? 32 : 16)
                                                          : 16;
  static constexpr int kStride = kRowStride<T, W>;
  static constexpr int kOwn = kRows * kStride, kOther = kColumns * kStride;  // elements of a tile
  static constexpr int kScratch = kProductScratch<T, kColumns>;              // elements, for each warp
  static constexpr std::size_t shared(int own, int other) {
    return (own * kOwn + other * kOther + kWarps * kScratch) * sizeof(T);
  }
};

/// What all kernels read.
template <class T>
struct Problem {
  AttentionShape shape;
  AttentionDropout dropout;
  std::uint32_t threshold;  // draws below it are dropped
  Wider<T> scale, kept;     // 1 / sqrt(width); 1 / (1 − rate)
  const T *q, *k, *v;
  const std::int32_t* lengths;
};

template <class T>
Problem<T> problem_of(const AttentionShape& s, const AttentionDropout& dropout, const T* q, const T* k,
                      const T* v, const std::int32_t* lengths) {
  return {s,
          dropout,
          static_cast<std::uint32_t>(std::ldexp(dropout.rate, 32)),
          static_cast<Wider<T>>(1 / std::sqrt(static_cast<double>(s.width))),
          static_cast<Wider<T>>(1 / (1 - dropout.rate)),
          q,
          k,
          v,
          lengths};
}

// A tile's rows lie in shared memory in an order in which the columns of a WarpTile that a lane has in two
// neighbouring tiles are four neighbouring keys: one draw of Philox. Row 4a + 2h + b of each 16 is at place
// 8h + 2a + b.
__device__ inline int place_of(int row) {
  return row / 16 * 16 + row / 2 % 2 * 8 + row % 16 / 4 * 2 + row % 2;
}
__device__ inline int row_of(int place) {
  return place / 16 * 16 + place % 8 / 2 * 4 + place / 8 % 2 * 2 + place % 2;
}

/// One head of a sample: places of its first elements, and the factors m.
template <class T>
struct Head {
  std::int64_t sample, head, stride, query_at, key_at, row_at;
  int queries, keys, length, width;
  std::uint64_t seed, stream, draws;
  std::uint32_t threshold;

  __device__ Head(const Problem<T>& p, std::int64_t number)
      : sample(number / p.shape.heads),
        head(number % p.shape.heads),
        stride(p.shape.columns()),
        query_at(sample * p.shape.queries * stride + head * p.shape.width),
        key_at(sample * p.shape.keys * stride + head * p.shape.width),
        row_at(number * p.shape.queries),
        queries(static_cast<int>(p.shape.queries)),
        keys(static_cast<int>(p.shape.keys)),
        length(max(1, min(p.lengths[sample], keys))),
        width(static_cast<int>(p.shape.width)),
        seed(p.dropout.random.seed()),
        stream(p.threshold ? p.dropout.random.stream() : 0),
        draws(static_cast<std::uint64_t>((p.dropout.first + sample) * p.shape.heads + head) << 32),
        threshold(p.threshold) {}
  /// Bit b: whether element 4 (key / 4) + b of the query's row is kept.
  __device__ std::uint32_t kept(int query, int key) const {
    const PhiloxDraw d = philox(
        seed, stream, draws | static_cast<std::uint64_t>(query) << 16 | static_cast<unsigned>(key) / 4);
    std::uint32_t bits = 0;
#pragma unroll
    for (int b = 0; b < 4; ++b) bits |= static_cast<std::uint32_t>(d.v[b] >= threshold) << b;
    return bits;
  }
};

/// Bit 4t + j: whether element j of tile t of scores is kept; the rows are queries from `query` on, the
/// columns keys from `key` on.
template <int N, class T>
__device__ std::uint32_t kept_by_query(const Head<T>& head, int query, int key) {
  std::uint32_t all = ~0u;
  if (head.threshold == 0) return all;
#pragma unroll
  for (int t = 0; t < N / 8; t += 2)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t bits = head.kept(query + row_of(warp_row(i)), key + 8 * t + threadIdx.x % 4 * 4);
      all ^= (~bits & 3) << (4 * t + 2 * i) | (~bits >> 2 & 3) << (4 * t + 4 + 2 * i);
    }
  return all;
}
/// The same where rows are keys and columns queries. Two lanes have parts of the same draws: each makes one.
template <int N, class T>
__device__ std::uint32_t kept_by_key(const Head<T>& head, int key, int query) {
  std::uint32_t all = ~0u;
  if (head.threshold == 0) return all;
  const int odd = warp_row(0) % 2, first_query = query + static_cast<int>(threadIdx.x) % 4 * 4;
#pragma unroll
  for (int t = 0; t < N / 8; ++t) {
    const std::uint32_t mine =
        head.kept(first_query + 8 * (t - t % 2) + 2 * (t % 2) + odd, key + row_of(warp_row(0)));
    const std::uint32_t other = __shfl_xor_sync(0xffffffffu, mine, 4);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const std::uint32_t bits = j % 2 == odd ? mine : other;
      all ^= (~bits >> (odd + j / 2 * 2) & 1) << (4 * t + j);
    }
  }
  return all;
}

/// Copies `count` rows from `from` on into a tile of shared memory, in the order of place_of; rows behind
/// them, and columns behind the head's, are 0. By all threads of a block.
template <int W, int Rows, class T>
__device__ void load_tile(const Head<T>& head, const T* from, int count, T* tile) {
  constexpr int kPacks = W / kPack<T>;
  for (int i = static_cast<int>(threadIdx.x); i < Rows * kPacks; i += static_cast<int>(blockDim.x)) {
    const int row = i / kPacks, column = i % kPacks * kPack<T>;
    const auto p = load_pack(from + row * head.stride + column, row < count ? head.width - column : 0);
    p.store(tile + place_of(row) * kRowStride<T, W> + column);
  }
}

/// Writes the first `count` of a warp's 16 rows, by way of `rows`, where the warp's own rows of a tile are
/// that no one needs any more.
template <int W, class T>
__device__ void store_rows(const Head<T>& head, WarpTile<T, W>& values, T* rows, int count, T* to) {
  constexpr int kStride = kRowStride<T, W>, kPacks = W / kPack<T>;
  __syncwarp();
  values.each(
      [&](Wider<T> value, int j, int column) { store(rows[warp_row(j / 2) * kStride + column], value); });
  __syncwarp();
  for (int i = static_cast<int>(threadIdx.x) % kWarp; i < 16 * kPacks; i += kWarp) {
    const int row = row_of(i / kPacks), column = i % kPacks * kPack<T>;
    const auto p = Pack<T, kPack<T>>::load(rows + i / kPacks * kStride + column);
    store_pack(p, to + row * head.stride + column, row < count ? head.width - column : 0);
  }
}

template <class T>
__device__ Wider<T> exponential(Wider<T> x) {
  if constexpr (std::is_same_v<T, bf16>)
    return __expf(x);
  else
    return exp(x);
}

// ---- forward

/// The softmax of a row so far: the largest score, and the sum of e^(score − largest), of which a lane has a
/// part.
template <class T>
struct RunningSoftmax {
  Wider<T> most[2], sum[2] = {0, 0};

  __device__ RunningSoftmax() { most[0] = most[1] = -std::numeric_limits<Wider<T>>::infinity(); }
  /// Scores become e^((score − largest) scale); what was summed so far, in y too, is brought to the new
  /// largest.
  template <int N, int W>
  __device__ void take(WarpTile<T, N>& scores, WarpTile<T, W>& y, Wider<T> scale) {
    Wider<T> shift[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      Wider<T> high = most[i];
#pragma unroll
      for (int t = 0; t < N / 8; ++t)
#pragma unroll
        for (int e = 0; e < 2; ++e) high = Max{}(high, scores.v[t][2 * i + e]);
      high = quad_reduce(high, Max{});
      const Wider<T> factor = exponential<T>((most[i] - high) * scale);
      most[i] = high;
      shift[i] = high * scale;
      sum[i] *= factor;
#pragma unroll
      for (int t = 0; t < W / 8; ++t)
#pragma unroll
        for (int e = 0; e < 2; ++e) y.v[t][2 * i + e] *= factor;
    }
    scores.each([&](Wider<T>& s, int j, int) {
      s = exponential<T>(fma(s, scale, -shift[j / 2]));
      sum[j / 2] += s;
    });
  }
};

/// A block owns a tile of queries and walks over the keys.
template <int W, class T>
__global__ void __launch_bounds__(Tiling<T, W>::kThreads)
    forward_kernel(int tiles, Problem<T> p, T* y, Wider<T>* log_sum) {
  using L = Tiling<T, W>;
  SSN_DYNAMIC_SHARED(T, shared);
  T *const q = shared, *const k = q + L::kOwn, *const v = k + L::kOther;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  T *const scratch = v + L::kOther + warp * L::kScratch, *const own = q + warp * 16 * L::kStride;
  const Head<T> head(p, blockIdx.x / tiles);
  const int first = static_cast<int>(blockIdx.x % tiles) * L::kRows, mine = first + warp * 16;
  load_tile<W, L::kRows>(head, p.q + head.query_at + first * head.stride, head.queries - first, q);
  WarpTile<T, W> sum;
  RunningSoftmax<T> softmax;
  for (int key = 0; key < head.length; key += L::kColumns) {
    const std::int64_t at = head.key_at + key * head.stride;
    __syncthreads();
    load_tile<W, L::kColumns>(head, p.k + at, head.length - key, k);
    load_tile<W, L::kColumns>(head, p.v + at, head.length - key, v);
    __syncthreads();
    WarpTile<T, L::kColumns> s;
    add_product_transposed<W>(s, own, L::kStride, k, L::kStride);
    if (key + L::kColumns > head.length)
      s.each([&](Wider<T>& score, int, int column) {
        if (key + row_of(column) >= head.length) score = -std::numeric_limits<Wider<T>>::infinity();
      });
    softmax.take(s, sum, p.scale);
    const std::uint32_t kept = kept_by_query<L::kColumns>(head, mine, key);
#pragma unroll
    for (int t = 0; t < L::kColumns / 8; ++t)
#pragma unroll
      for (int j = 0; j < 4; ++j) s.v[t][j] = kept_if(kept >> (4 * t + j) & 1, s.v[t][j]);
    add_product(sum, s, v, L::kStride, scratch);
  }
  Wider<T> factor[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const Wider<T> total = quad_reduce(softmax.sum[i], Sum{});
    const int query = mine + row_of(warp_row(i));
    if (query < head.queries && threadIdx.x % 4 == 0)
      log_sum[head.row_at + query] = fma(softmax.most[i], p.scale, log(total));
    factor[i] = p.kept / total;
  }
  sum.each([&](Wider<T>& value, int j, int) { value *= factor[j / 2]; });
  store_rows(head, sum, own, head.queries - mine, y + head.query_at + mine * head.stride);
}

// ---- backward

template <class T>
struct Gradients {
  const Wider<T>* log_sum;
  const T* gy;
  T *gq, *gk, *gv;
  Wider<T>* dots;  // D, of each query
};

/// Of scores s (before scaling) and gradients g of m p: s becomes m p and g the gradient of s. log_sum and
/// dot are functions of (j, column).
template <class T, int N, class L, class D>
__device__ void score_gradients(const Problem<T>& p, std::uint32_t kept, WarpTile<T, N>& s, WarpTile<T, N>& g,
                                L&& log_sum, D&& dot) {
  int bit = 0;
  s.each([&](Wider<T>& score, int j, int column) {
    Wider<T>& gradient = g.v[bit / 4][j];
    const bool keep = kept >> bit & 1;
    const Wider<T> probability = exponential<T>(fma(score, p.scale, -log_sum(j, column)));
    score = kept_if(keep, probability * p.kept);
    gradient = probability * (kept_if(keep, gradient * p.kept) - dot(j, column)) * p.scale;
    ++bit;
  });
}

/// A block owns a tile of queries, of which it makes gq and D, and walks over the keys.
template <int W, class T>
__global__ void __launch_bounds__(Tiling<T, W>::kThreads)
    query_gradient_kernel(int tiles, Problem<T> p, const T* y, Gradients<T> out) {
  using L = Tiling<T, W>;
  SSN_DYNAMIC_SHARED(T, shared);
  T *const q = shared, *const gy = q + L::kOwn, *const k = gy + L::kOwn, *const v = k + L::kOther;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, own = warp * 16 * L::kStride;
  T* const scratch = v + L::kOther + warp * L::kScratch;
  const Head<T> head(p, blockIdx.x / tiles);
  const int first = static_cast<int>(blockIdx.x % tiles) * L::kRows, mine = first + warp * 16;
  const std::int64_t at = head.query_at + first * head.stride;
  load_tile<W, L::kRows>(head, p.q + at, head.queries - first, q);
  load_tile<W, L::kRows>(head, out.gy + at, head.queries - first, gy);
  __syncthreads();
  Wider<T> log_sum[2], dot[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int query = mine + row_of(warp_row(i));
    const bool there = query < head.queries;
    const T *const row = y + head.query_at + query * head.stride, *const grad =
                                                                      gy + own + warp_row(i) * L::kStride;
    Wider<T> sum = 0;
    for (int c = static_cast<int>(threadIdx.x) % 4; there && c < head.width; c += 4)
      sum = fma(static_cast<Wider<T>>(row[c]), static_cast<Wider<T>>(grad[c]), sum);
    dot[i] = quad_reduce(sum, Sum{});
    log_sum[i] = there ? out.log_sum[head.row_at + query] : Wider<T>(0);
    if (there && threadIdx.x % 4 == 0) out.dots[head.row_at + query] = dot[i];
  }
  WarpTile<T, W> gq;
  for (int key = 0; key < head.length; key += L::kColumns) {
    const std::int64_t key_at = head.key_at + key * head.stride;
    __syncthreads();
    load_tile<W, L::kColumns>(head, p.k + key_at, head.length - key, k);
    load_tile<W, L::kColumns>(head, p.v + key_at, head.length - key, v);
    __syncthreads();
    WarpTile<T, L::kColumns> s, g;
    add_product_transposed<W>(s, q + own, L::kStride, k, L::kStride);
    add_product_transposed<W>(g, gy + own, L::kStride, v, L::kStride);
    score_gradients(
        p, kept_by_query<L::kColumns>(head, mine, key), s, g, [&](int j, int) { return log_sum[j / 2]; },
        [&](int j, int) { return dot[j / 2]; });
    if (key + L::kColumns > head.length)
      g.each([&](Wider<T>& gradient, int, int column) {
        if (key + row_of(column) >= head.length) gradient = 0;
      });
    add_product(gq, g, k, L::kStride, scratch);
  }
  store_rows(head, gq, q + own, head.queries - mine, out.gq + head.query_at + mine * head.stride);
}

/// A block owns a tile of keys, of which it makes gk and gv, and walks over the queries.
template <int W, class T>
__global__ void __launch_bounds__(Tiling<T, W>::kThreads)
    key_gradient_kernel(int tiles, Problem<T> p, Gradients<T> out) {
  using L = Tiling<T, W>;
  SSN_DYNAMIC_SHARED(T, shared);
  __shared__ Wider<T> log_sum[L::kColumns], dots[L::kColumns];
  T *const k = shared, *const v = k + L::kOwn, *const q = v + L::kOwn, *const gy = q + L::kOther;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, own = warp * 16 * L::kStride;
  T* const scratch = gy + L::kOther + warp * L::kScratch;
  const Head<T> head(p, blockIdx.x / tiles);
  const int first = static_cast<int>(blockIdx.x % tiles) * L::kRows, mine = first + warp * 16;
  load_tile<W, L::kRows>(head, p.k + head.key_at + first * head.stride, head.length - first, k);
  load_tile<W, L::kRows>(head, p.v + head.key_at + first * head.stride, head.length - first, v);
  __syncthreads();  // a warp writes its rows at the end, also where no query is read
  WarpTile<T, W> gk, gv;
  for (int query = 0; query < head.queries && first < head.length; query += L::kColumns) {
    const std::int64_t at = head.query_at + query * head.stride;
    __syncthreads();
    load_tile<W, L::kColumns>(head, p.q + at, head.queries - query, q);
    load_tile<W, L::kColumns>(head, out.gy + at, head.queries - query, gy);
    for (int i = static_cast<int>(threadIdx.x); i < L::kColumns; i += L::kThreads) {
      const bool there = query + i < head.queries;
      log_sum[place_of(i)] =
          there ? out.log_sum[head.row_at + query + i] : std::numeric_limits<Wider<T>>::infinity();
      dots[place_of(i)] = there ? out.dots[head.row_at + query + i] : Wider<T>(0);
    }
    __syncthreads();
    WarpTile<T, L::kColumns> s, g;
    add_product_transposed<W>(s, k + own, L::kStride, q, L::kStride);
    add_product_transposed<W>(g, v + own, L::kStride, gy, L::kStride);
    score_gradients(
        p, kept_by_key<L::kColumns>(head, mine, query), s, g, [&](int, int c) { return log_sum[c]; },
        [&](int, int c) { return dots[c]; });
    add_product(gv, s, gy, L::kStride, scratch);
    add_product(gk, g, q, L::kStride, scratch);
  }
  const auto there = [&](int j) { return mine + row_of(warp_row(j / 2)) < head.length; };
  gk.each([&](Wider<T>& value, int j, int) { value = there(j) ? value : Wider<T>(0); });
  gv.each([&](Wider<T>& value, int j, int) { value = there(j) ? value : Wider<T>(0); });
  const std::int64_t at = head.key_at + mine * head.stride;
  store_rows(head, gk, k + own, head.keys - mine, out.gk + at);
  store_rows(head, gv, v + own, head.keys - mine, out.gv + at);
}

/// f(the smallest W that holds the width). f64 is for tests.
template <class T, class F>
void with_width(std::int64_t width, F&& f) {
  if (sizeof(T) == 8 || (width > 32 && width <= 64)) return f(std::integral_constant<int, 64>{});
  if constexpr (sizeof(T) < 8) {
    if (width <= 32) return f(std::integral_constant<int, 32>{});
    f(std::integral_constant<int, 128>{});
  }
}

}  // namespace

template <class T>
std::int64_t attention_workspace(CudaQueue&, const AttentionShape& s) {
  return s.samples * s.heads * s.queries;
}

template <class T>
void attention_forward(CudaQueue& queue, const AttentionShape& s, const AttentionDropout& dropout, const T* q,
                       const T* k, const T* v, const std::int32_t* lengths, T* y, Wider<T>* log_sum,
                       Wider<T>*) {
  const Problem<T> p = problem_of(s, dropout, q, k, v, lengths);
  with_width<T>(s.width, [&](auto w) {
    using L = Tiling<T, w.value>;
    const unsigned tiles = blocks_for(s.queries, L::kRows);
    launch(queue, "attention_forward", forward_kernel<w.value, T>,
           static_cast<unsigned>(tiles * s.heads * s.samples), L::kThreads, L::shared(1, 2), tiles, p, y,
           log_sum);
  });
}

template <class T>
void attention_backward(CudaQueue& queue, const AttentionShape& s, const AttentionDropout& dropout,
                        const T* q, const T* k, const T* v, const std::int32_t* lengths, const T* y,
                        const Wider<T>* log_sum, const T* gy, T* gq, T* gk, T* gv, Wider<T>* workspace) {
  const Problem<T> p = problem_of(s, dropout, q, k, v, lengths);
  const Gradients<T> out{log_sum, gy, gq, gk, gv, workspace};
  with_width<T>(s.width, [&](auto w) {
    using L = Tiling<T, w.value>;
    const std::int64_t heads = s.heads * s.samples;
    const unsigned of_queries = blocks_for(s.queries, L::kRows), of_keys = blocks_for(s.keys, L::kRows);
    launch(queue, "attention_backward", query_gradient_kernel<w.value, T>,
           static_cast<unsigned>(of_queries * heads), L::kThreads, L::shared(2, 2), of_queries, p, y, out);
    launch(queue, "attention_backward", key_gradient_kernel<w.value, T>,
           static_cast<unsigned>(of_keys * heads), L::kThreads, L::shared(2, 2), of_keys, p, out);
  });
}

template std::int64_t attention_workspace<bf16>(CudaQueue&, const AttentionShape&);
template void attention_forward<bf16>(CudaQueue&, const AttentionShape&, const AttentionDropout&, const bf16*,
                                      const bf16*, const bf16*, const std::int32_t*, bf16*, float*, float*);
template void attention_backward<bf16>(CudaQueue&, const AttentionShape&, const AttentionDropout&,
                                       const bf16*, const bf16*, const bf16*, const std::int32_t*,
                                       const bf16*, const float*, const bf16*, bf16*, bf16*, bf16*, float*);
template std::int64_t attention_workspace<float>(CudaQueue&, const AttentionShape&);
template void attention_forward<float>(CudaQueue&, const AttentionShape&, const AttentionDropout&,
                                       const float*, const float*, const float*, const std::int32_t*, float*,
                                       float*, float*);
template void attention_backward<float>(CudaQueue&, const AttentionShape&, const AttentionDropout&,
                                        const float*, const float*, const float*, const std::int32_t*,
                                        const float*, const float*, const float*, float*, float*, float*,
                                        float*);
template std::int64_t attention_workspace<double>(CudaQueue&, const AttentionShape&);
template void attention_forward<double>(CudaQueue&, const AttentionShape&, const AttentionDropout&,
                                        const double*, const double*, const double*, const std::int32_t*,
                                        double*, double*, double*);
template void attention_backward<double>(CudaQueue&, const AttentionShape&, const AttentionDropout&,
                                         const double*, const double*, const double*, const std::int32_t*,
                                         const double*, const double*, const double*, double*, double*,
                                         double*, double*);

}  // namespace ssn::kernels
