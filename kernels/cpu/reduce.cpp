#include "kernels/reduce.h"

#include "kernels/cpu/columns.h"

namespace ssn::kernels {

template <class T>
void column_sum(CpuQueue&, std::int64_t rows, std::int64_t cols, const T* x, Wider<T>* y,
                Wider<T>* workspace) {
  const Chunks chunks(rows, cols);
  for_columns(cols, [&](const Columns& columns) {
    for_chunks(chunks, false, [&](std::int64_t chunk, std::int64_t begin, std::int64_t end) {
      Wider<T> sums[Columns::kWidth] = {};
      columns.steps(begin, end,
                    [&](std::int64_t at, int n) { add_step(x + at, n, columns.ahead<T>(), sums); });
      columns.gather(sums, workspace + chunk * cols + columns.first);
    });
    double total[Columns::kWidth] = {};
    add_chunks(chunks.count, cols, workspace + columns.first, columns.count, total);
    for (int c = 0; c < columns.count; ++c) y[columns.first + c] += static_cast<Wider<T>>(total[c]);
  });
}
template void column_sum<bf16>(CpuQueue&, std::int64_t, std::int64_t, const bf16*, float*, float*);
template void column_sum<float>(CpuQueue&, std::int64_t, std::int64_t, const float*, float*, float*);
template void column_sum<double>(CpuQueue&, std::int64_t, std::int64_t, const double*, double*, double*);

}  // namespace ssn::kernels
