#include "kernels/reduce.h"

#include "kernels/cpu/columns.h"

namespace ssn::kernels {

template <class T>
void column_sum(CpuQueue&, std::int64_t rows, std::int64_t cols, const T* x, T* y, T* workspace) {
  for_columns(cols, [&](const Columns& columns) {
    for_chunks(rows, cols, false, [&](std::int64_t chunk, std::int64_t begin, std::int64_t end) {
      T sums[Columns::kWidth] = {};
      columns.steps(begin, end, [&]<int R>(std::integral_constant<int, R>, std::int64_t at, int width) {
        add_rows<R>(x + at, columns.stride, width, sums);
      });
      columns.gather(sums, workspace + chunk * cols + columns.first);
    });
  });
  for (std::int64_t c = 0; c < cols; ++c) {
    double sum = 0;
    for (std::int64_t i = 0; i < chunk_count(rows, cols); ++i) sum += workspace[i * cols + c];
    y[c] += static_cast<T>(sum);
  }
}
template void column_sum<float>(CpuQueue&, std::int64_t, std::int64_t, const float*, float*, float*);
template void column_sum<double>(CpuQueue&, std::int64_t, std::int64_t, const double*, double*, double*);

}  // namespace ssn::kernels
