#include "kernels/cpu/depthwise.h"

#include <algorithm>
#include <optional>

#include "runtime/bf16.h"
#include "runtime/hd.h"
#include "runtime/parallel.h"

// A task takes a tile of channels of some rows of an image. It keeps the rows of its input that the window
// covers in f32 in a ring that about fits the first-level cache, so each row is read from memory once,
// padding needs no case of its own, and sums stay in registers.
namespace ssn::kernels::depthwise {
namespace {
constexpr int kLanes = 16;
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));
constexpr int kBlock = 7;                                   // outputs that are summed together
constexpr int kTaps = 9;                                    // taps whose gradients are summed together
constexpr std::int64_t kMostVectors = 8;                    // of channels in a tile
constexpr std::int64_t kRingBytes = 64 << 10;               // where a tile may be narrow enough for it
constexpr std::int64_t kTaskBytes = std::int64_t{1} << 19;  // of all channels of a task's rows, in f32

std::int64_t divided_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// One of the two axes: which source each output takes for each tap of the window. The adjoint's sources are
/// the forward pass's outputs.
struct Axis {
  std::int64_t sources, outputs, taps, stride, padding, dilation;
  bool adjoint;

  /// Perhaps not within [0, sources); none where a stride passes over it.
  std::optional<std::int64_t> source(std::int64_t output, std::int64_t tap) const {
    if (!adjoint) return output * stride - padding + tap * dilation;
    const std::int64_t at = output + padding - tap * dilation;
    if (at % stride) return {};
    return at / stride;
  }
  /// Outputs that are this many apart take sources that are source_step() apart.
  std::int64_t output_step() const { return adjoint ? stride : 1; }
  std::int64_t source_step() const { return adjoint ? 1 : stride; }
  /// The most sources from an output's first to its last.
  std::int64_t span() const { return (taps - 1) * dilation / output_step() + 1; }
};

Axis axis(const ConvGeometry& g, int i, bool adjoint) {
  const std::int64_t x = i ? g.w : g.h, y = i ? g.out_w() : g.out_h();
  return {.sources = adjoint ? y : x,
          .outputs = adjoint ? x : y,
          .taps = i ? g.kw : g.kh,
          .stride = g.stride[i],
          .padding = g.padding[i],
          .dilation = g.dilation[i],
          .adjoint = adjoint};
}

/// Outputs of a row that are output_step() apart, so that the same taps apply to them, in blocks of equal
/// size.
struct Phase {
  std::int64_t count;
  int block;

  Phase(const Axis& columns, std::int64_t first)
      : count(divided_up(columns.outputs - first, columns.output_step())),
        block(static_cast<int>(divided_up(count, divided_up(count, kBlock)))) {}
  std::int64_t padded() const { return divided_up(count, block) * block; }
};

/// Vectors between neighbours: outputs, their sources, and a filter's weights for a tile's vectors.
struct Steps {
  std::int64_t y, x, weight;
};

/// The shape of a pass: of its tasks, and of a ring of source rows. A row of the ring holds sources [−left,
/// right), which are zero outside of the image, each as the tile's `vectors` of kLanes channels.
struct Layout {
  Axis rows, columns;
  std::int64_t images, channels, slots, left, right, vectors, tiles, parts;

  Layout(const ConvGeometry& g, bool adjoint)
      : rows(axis(g, 0, adjoint)),
        columns(axis(g, 1, adjoint)),
        images(g.n),
        channels(g.c),
        slots(std::min(rows.span(), rows.sources)),
        left(0),
        right(columns.sources) {
    for (std::int64_t first = 0; first < phases(); ++first) {
      const std::int64_t last = (Phase(columns, first).padded() - 1) * columns.source_step();
      for (std::int64_t tap = 0; tap < columns.taps; ++tap)
        if (const auto at = columns.source(first, tap)) {
          left = std::max(left, -*at);
          right = std::max(right, *at + last + 1);
        }
    }
    constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Lanes));
    const std::int64_t all = divided_up(channels, kLanes);
    tiles =
        divided_up(all, std::clamp<std::int64_t>(kRingBytes / (slots * width() * kBytes), 1, kMostVectors));
    vectors = divided_up(all, tiles);
    tiles = divided_up(all, vectors);
    const std::int64_t pixels = std::max(rows.sources * columns.sources, rows.outputs * columns.outputs);
    parts = std::min(rows.outputs, divided_up(pixels * all * kBytes, kTaskBytes));
  }
  std::int64_t phases() const { return std::min(columns.output_step(), columns.outputs); }
  std::int64_t taps() const { return rows.taps * columns.taps; }
  std::int64_t width() const { return left + right; }
  std::int64_t chunks() const { return images * parts; }
  std::int64_t tasks() const { return chunks() * tiles; }
  std::int64_t workers() const { return std::min<std::int64_t>(num_threads(), tasks()); }
  Steps steps() const { return {columns.output_step() * vectors, columns.source_step() * vectors, taps()}; }
  std::int64_t first_channel(std::int64_t tile) const { return tile * vectors * kLanes; }
  std::int64_t channels_of(std::int64_t tile) const {
    return std::min(vectors * kLanes, channels - first_channel(tile));
  }
};

/// The first `count` channels of a row of pixels, into f32; `to` has a pixel each `stride` elements.
template <class T>
SSN_CLONES void read_row(std::int64_t pixels, std::int64_t channels, std::int64_t count, const T* from,
                         float* to, std::int64_t stride) {
  constexpr std::int64_t kAhead = 2048, kLine = 64 / sizeof(T);
  const std::int64_t ahead = divided_up(kAhead, count) * channels;
  for (std::int64_t i = 0; i < pixels; ++i, from += channels, to += stride) {
    for (std::int64_t k = 0; k < count; k += kLine) __builtin_prefetch(from + ahead + k);
#pragma omp simd
    for (std::int64_t k = 0; k < count; ++k) to[k] = from[k];
  }
}
/// The reverse.
template <class T>
SSN_CLONES void write_row(std::int64_t pixels, std::int64_t channels, std::int64_t count, const float* from,
                          std::int64_t stride, T* to) {
  for (std::int64_t i = 0; i < pixels; ++i, from += stride, to += channels) {
#pragma omp simd
    for (std::int64_t k = 0; k < count; ++k) store(to[k], from[k]);
  }
}

/// The last `slots` rows that were read, of one tile of one image. Nothing is written beside the image, where
/// `data` is zero; what lies behind the channels in the last vector is of no account.
template <class T>
struct Ring {
  const Layout& layout;
  const T* image;               // its first channel of the tile
  std::int64_t count, vectors;  // of the tile: channels, and what they fill
  Lanes* data;
  std::int64_t next = 0;  // the first row that was not read

  Ring(const Layout& l, const T* x, std::int64_t number, std::int64_t tile, Lanes* data)
      : layout(l),
        image(x + number * l.rows.sources * l.columns.sources * l.channels + l.first_channel(tile)),
        count(l.channels_of(tile)),
        vectors(divided_up(count, kLanes)),
        data(data) {}
  Lanes* row(std::int64_t r) const {
    return data + (r % layout.slots * layout.width() + layout.left) * layout.vectors;
  }
  void read_to(std::int64_t last) {
    const std::int64_t pixels = layout.columns.sources;
    for (next = std::max(next, last - layout.slots + 1); next <= last; ++next)
      read_row(pixels, layout.channels, count, image + next * pixels * layout.channels,
               reinterpret_cast<float*>(row(next)), layout.vectors * kLanes);
  }
  /// Reads what an output row takes; f(tap, source row).
  template <class F>
  void take(std::int64_t output, F&& f) {
    const Axis& rows = layout.rows;
    const auto each = [&](auto&& g) {
      for (std::int64_t tap = 0; tap < rows.taps; ++tap)
        if (const auto at = rows.source(output, tap); at && *at >= 0 && *at < rows.sources) g(tap, *at);
    };
    each([&](std::int64_t, std::int64_t at) { read_to(at); });
    each(f);
  }
};

/// What is added to an output: a source, for the first of the outputs, and the weight; of a tile's first
/// vector.
struct Tap {
  const Lanes *x, *weight;
};

/// y[i · steps.y + v] = Σ over the taps of x[i · steps.x + v] · weight[v · steps.weight], i < count and
/// v < vectors; y may hold more, up to a multiple of kCount.
template <int kCount>
SSN_CLONES void add_up(std::int64_t taps, const Tap* tap, std::int64_t count, std::int64_t vectors,
                       const Steps& steps, Lanes* y) {
  const auto [y_step, x_step, weight_step] = steps;
  for (std::int64_t v = 0; v < vectors; ++v)
    for (std::int64_t first = 0; first < count; first += kCount) {
      Lanes sums[kCount] = {};
      for (std::int64_t t = 0; t < taps; ++t) {
        const Lanes weight = tap[t].weight[v * weight_step], *x = tap[t].x + first * x_step + v;
#pragma GCC unroll 16
        for (int i = 0; i < kCount; ++i) sums[i] += x[i * x_step] * weight;
      }
#pragma GCC unroll 16
      for (int i = 0; i < kCount; ++i) y[(first + i) * y_step + v] = sums[i];
    }
}

/// sums[t][v · steps.weight] += Σ over i < count of gy[i · steps.y + v] · x[t][i · steps.x + v], t < kCount
/// and v < vectors
template <int kCount>
SSN_CLONES void add_products(std::int64_t count, std::int64_t vectors, const Steps& steps, const Lanes* gy,
                             const Lanes* const* x, Lanes* const* sums) {
  const auto [y_step, x_step, weight_step] = steps;
  for (std::int64_t v = 0; v < vectors; ++v) {
    Lanes total[kCount];
    const Lanes* at[kCount];
#pragma GCC unroll 16
    for (int t = 0; t < kCount; ++t) total[t] = sums[t][v * weight_step], at[t] = x[t] + v;
    for (std::int64_t i = 0; i < count; ++i) {
      const Lanes g = gy[i * y_step + v];
#pragma GCC unroll 16
      for (int t = 0; t < kCount; ++t) total[t] += g * at[t][i * x_step];
    }
#pragma GCC unroll 16
    for (int t = 0; t < kCount; ++t) sums[t][v * weight_step] = total[t];
  }
}

/// f(integral_constant of n), 1 <= n <= kMost
template <int kMost, class F>
void with_count(int n, F&& f) {
  if constexpr (kMost > 1) {
    if (n < kMost) return with_count<kMost - 1>(n, std::forward<F>(f));
  }
  f(std::integral_constant<int, kMost>{});
}

/// The parts of the workspace: what all share first (weights or sums), then for each worker a ring, a row of
/// outputs and pointers.
struct Places {
  Lanes* shared;
  std::int64_t shared_size, ring, row, pointers;

  Places(const Layout& l, std::int64_t filters, void* workspace)
      : shared(static_cast<Lanes*>(workspace)),
        shared_size(filters * l.tiles * l.vectors * l.taps()),
        ring(l.slots * l.width() * l.vectors),
        row((l.columns.outputs + kBlock * l.columns.output_step()) * l.vectors),
        pointers(divided_up(l.taps() * static_cast<std::int64_t>(sizeof(Tap)), sizeof(Lanes))) {}
  std::int64_t worker_size() const { return ring + row + pointers; }
  Lanes* ring_of(std::int64_t worker) const { return shared + shared_size + worker * worker_size(); }
  Lanes* row_of(std::int64_t worker) const { return ring_of(worker) + ring; }
  void* pointers_of(std::int64_t worker) const { return row_of(worker) + row; }
  std::size_t bytes(std::int64_t workers) const {
    return static_cast<std::size_t>(shared_size + workers * worker_size()) * sizeof(Lanes);
  }
};

/// f(worker, image, rows [begin, end) of the outputs, tile, task), in parallel; the rings are zero at first.
template <class F>
void for_tasks(const Layout& l, const Places& places, F&& f) {
  const std::int64_t tasks = l.tasks(), workers = l.workers();
  parallel_for(workers, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t worker = first; worker < last; ++worker) {
      std::fill_n(places.ring_of(worker), places.ring, Lanes{});
      for (std::int64_t task = tasks * worker / workers; task < tasks * (worker + 1) / workers; ++task) {
        const std::int64_t chunk = task / l.tiles, part = chunk % l.parts;
        f(worker, chunk / l.parts, l.rows.outputs * part / l.parts, l.rows.outputs * (part + 1) / l.parts,
          task % l.tiles, task);
      }
    }
  });
}

/// to (vectors of all channels, taps, kLanes) = weight (channels, taps)
void spread_weight(const Layout& l, const float* weight, Lanes* to) {
  const std::int64_t taps = l.taps();
  parallel_for(l.tiles * l.vectors, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin * taps; at < end * taps; ++at)
      for (std::int64_t k = 0; k < kLanes; ++k) {
        const std::int64_t c = at / taps * kLanes + k;
        to[at][k] = c < l.channels ? weight[c * taps + at % taps] : 0;
      }
  });
}

/// The outputs from the sources: y from x, or gx from gy.
template <class T>
void gather(const Layout& l, const T* x, const float* weight, T* y, void* workspace) {
  const Places places(l, 1, workspace);
  spread_weight(l, weight, places.shared);
  for_tasks(
      l, places,
      [&](std::int64_t worker, std::int64_t image, std::int64_t begin, std::int64_t end, std::int64_t tile,
          std::int64_t) {
        Ring<T> ring(l, x, image, tile, places.ring_of(worker));
        const Lanes* const weights = places.shared + tile * l.vectors * l.taps();
        Tap* const taps = static_cast<Tap*>(places.pointers_of(worker));
        Lanes* const sums = places.row_of(worker);
        for (std::int64_t row = begin; row < end; ++row) {
          for (std::int64_t first = 0; first < l.phases(); ++first) {
            std::int64_t count = 0;
            ring.take(row, [&](std::int64_t i, std::int64_t source) {
              for (std::int64_t j = 0; j < l.columns.taps; ++j)
                if (const auto at = l.columns.source(first, j))
                  taps[count++] = {ring.row(source) + *at * l.vectors, weights + i * l.columns.taps + j};
            });
            const Phase phase(l.columns, first);
            with_count<kBlock>(phase.block, [&](auto block) {
              add_up<block.value>(count, taps, phase.count, ring.vectors, l.steps(),
                                  sums + first * l.vectors);
            });
          }
          write_row(
              l.columns.outputs, l.channels, ring.count, reinterpret_cast<const float*>(sums),
              l.vectors * kLanes,
              y + (image * l.rows.outputs + row) * l.columns.outputs * l.channels + l.first_channel(tile));
        }
      });
}

/// gweight (channels, taps) = Σ over the chunks of sums (chunks, vectors of all channels, taps, kLanes)
void add_chunks(const Layout& l, const Lanes* sums, float* gweight) {
  const std::int64_t taps = l.taps(), all = l.tiles * l.vectors * taps;
  parallel_for(divided_up(l.channels, kLanes) * taps, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; ++at) {
      double total[kLanes] = {};
      for (std::int64_t chunk = 0; chunk < l.chunks(); ++chunk)
        for (int k = 0; k < kLanes; ++k) total[k] += sums[chunk * all + at][k];
      for (std::int64_t k = 0, c = at / taps * kLanes; k < kLanes && c < l.channels; ++k, ++c)
        gweight[c * taps + at % taps] = static_cast<float>(total[k]);
    }
  });
}

/// Adds a row's products to the sums of `count` taps, in groups of about equal size.
void add_row(const Layout& l, std::int64_t count, std::int64_t vectors, const Lanes* gy,
             const Lanes* const* x, Lanes* const* sums) {
  const std::int64_t groups = divided_up(count, kTaps);
  for (std::int64_t group = 0; group < groups; ++group) {
    const std::int64_t begin = count * group / groups, end = count * (group + 1) / groups;
    with_count<kTaps>(static_cast<int>(end - begin), [&](auto n) {
      add_products<n.value>(l.columns.outputs, vectors, l.steps(), gy, x + begin, sums + begin);
    });
  }
}

}  // namespace

std::size_t workspace(const ConvGeometry& g) {
  const Layout forward(g, false), backward(g, true);
  return std::max(Places(forward, forward.chunks(), nullptr).bytes(forward.workers()),
                  Places(backward, 1, nullptr).bytes(backward.workers()));
}

template <class T>
void forward(const ConvGeometry& g, const T* x, const float* weight, T* y, void* workspace) {
  gather(Layout(g, false), x, weight, y, workspace);
}

template <class T>
void backward_data(const ConvGeometry& g, const T* gy, const float* weight, T* gx, void* workspace) {
  gather(Layout(g, true), gy, weight, gx, workspace);
}

template <class T>
void backward_weight(const ConvGeometry& g, const T* x, const T* gy, float* gweight, void* workspace) {
  const Layout l(g, false);
  const Places places(l, l.chunks(), workspace);
  for_tasks(l, places,
            [&](std::int64_t worker, std::int64_t image, std::int64_t begin, std::int64_t end,
                std::int64_t tile, std::int64_t task) {
              Lanes* const sums = places.shared + task * l.vectors * l.taps();
              std::fill_n(sums, l.vectors * l.taps(), Lanes{});
              Ring<T> ring(l, x, image, tile, places.ring_of(worker));
              Lanes* const row = places.row_of(worker);
              const Lanes** const sources = static_cast<const Lanes**>(places.pointers_of(worker));
              Lanes** const to = const_cast<Lanes**>(sources) + l.taps();
              for (std::int64_t i = begin; i < end; ++i) {
                read_row(g.out_w(), g.c, ring.count,
                         gy + (image * g.out_h() + i) * g.out_w() * g.c + l.first_channel(tile),
                         reinterpret_cast<float*>(row), l.vectors * kLanes);
                std::int64_t count = 0;
                ring.take(i, [&](std::int64_t tap, std::int64_t source) {
                  for (std::int64_t j = 0; j < g.kw; ++j, ++count) {
                    sources[count] = ring.row(source) + *l.columns.source(0, j) * l.vectors;
                    to[count] = sums + tap * g.kw + j;
                  }
                });
                add_row(l, count, ring.vectors, row, sources, to);
              }
            });
  add_chunks(l, places.shared, gweight);
}

template void forward<bf16>(const ConvGeometry&, const bf16*, const float*, bf16*, void*);
template void forward<float>(const ConvGeometry&, const float*, const float*, float*, void*);
template void backward_data<bf16>(const ConvGeometry&, const bf16*, const float*, bf16*, void*);
template void backward_data<float>(const ConvGeometry&, const float*, const float*, float*, void*);
template void backward_weight<bf16>(const ConvGeometry&, const bf16*, const bf16*, float*, void*);
template void backward_weight<float>(const ConvGeometry&, const float*, const float*, float*, void*);

}  // namespace ssn::kernels::depthwise
