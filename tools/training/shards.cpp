#include "tools/training/shards.h"

#include <algorithm>

#include "kernels/elementwise.h"
#include "runtime/dispatch.h"

namespace ssn {
namespace {

/// y += x
void add(const Tensor& x, const Tensor& y) {
  dispatch(y.device(), y.dtype(), "shard sum", [&]<class T>(auto& q) {
    kernels::accumulate(q, y.size(), x.template data<T>(), y.template data<T>());
  });
}

/// f(buffer, the same elements of `flat`)
template <class F>
void each_buffer(const Parameters& parameters, const Tensor& flat, F&& f) {
  std::int64_t first = 0;
  for (const Parameters::Buffer& buffer : parameters.buffers()) {
    f(buffer.tensor, flat.slice(first, buffer.tensor.shape()));
    first += buffer.tensor.size();
  }
}
void read_buffers(const Parameters& parameters, const Tensor& flat) {
  each_buffer(parameters, flat, [](const Tensor& buffer, const Tensor& part) { part.copy_from(buffer); });
}
void write_buffers(const Parameters& parameters, const Tensor& flat) {
  each_buffer(parameters, flat, [](const Tensor& buffer, const Tensor& part) { buffer.copy_from(part); });
}

/// For all running statistics.
Tensor flat_statistics(Comm& comm, const Parameters& parameters) {
  std::int64_t size = 0;
  for (const Parameters::Buffer& buffer : parameters.buffers()) size += buffer.tensor.size();
  return Tensor::over(comm.allocate(static_cast<std::size_t>(size) * sizeof(float)), Shape{size}, DType::f32);
}

}  // namespace

TreeSum::TreeSum(const Tensor& like, std::int64_t count) {
  for (std::int64_t kept = 1; kept < count; kept *= 2)
    levels_.push_back(Tensor::empty(like.shape(), like.dtype(), like.device()));
}

void TreeSum::keep(std::int64_t index, const Tensor& values) {
  std::size_t level = 0;
  for (; (index >> level) % 2 == 1; ++level) add(levels_[level], values);
  levels_[level].copy_from(values);
}

void TreeSum::add_kept(FlatRange range, const Tensor& values) const {
  const auto part = [&](const Tensor& whole) { return whole.slice(range.first, Shape{range.size}); };
  for (const Tensor& level : levels_) add(part(level), part(values));
}

Shards::Shards(Comm& comm, Parameters& parameters, std::int64_t count)
    : comm_(comm),
      parameters_(parameters),
      count_(count),
      statistics_(flat_statistics(comm, parameters)),
      before_(Tensor::empty(statistics_.shape(), DType::f32)),
      gradients_(parameters.gradients(), count),
      sums_(statistics_, count) {}

void Shards::begin() {
  if (shard_ == 0)
    read_buffers(parameters_, before_);
  else
    write_buffers(parameters_, before_);
  parameters_.zero_gradients();
}

void Shards::end() {
  read_buffers(parameters_, statistics_);
  if (shard_ + 1 < count_) {
    gradients_.keep(shard_, parameters_.gradients());
    sums_.keep(shard_, statistics_);
    ++shard_;
    return;
  }
  for (const FlatRange& stretch : parameters_.stretches())
    for (const FlatRange& gap : complete_.gaps(stretch)) complete(gap);
  sums_.add_kept({0, statistics_.size()}, statistics_);
  const Span span("start sum", comm_.size() > 1 ? static_cast<std::int64_t>(statistics_.bytes()) : 0);
  comm_.start_sum(statistics_);
}

void Shards::complete(FlatRange range) {
  complete_.add(range);
  gradients_.add_kept(range, parameters_.gradients());
}

void Shards::finish() {
  comm_.wait_all();
  const float share = 1 / static_cast<float>(count_ * comm_.size());  // exact
  for (float& sum : statistics_.span<float>()) sum *= share;
  write_buffers(parameters_, statistics_);
  complete_ = {};
  shard_ = 0;
}

}  // namespace ssn
