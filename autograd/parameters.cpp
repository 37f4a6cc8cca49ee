#include "autograd/parameters.h"

#include <algorithm>

#include "runtime/dry_run.h"
#include "runtime/parallel.h"

namespace ssn {
namespace {
constexpr std::size_t kBuffer = static_cast<std::size_t>(-1);  // in the index: a buffer's name
constexpr std::int64_t kAlignment = 16;                        // elements between the starts of groups

std::int64_t aligned(std::int64_t n) {
  return (n + kAlignment - 1) / kAlignment * kAlignment;
}

void initialise(const Tensor& values, const Parameters::Init& init) {
  Tensor host = Tensor::empty(values.shape(), values.dtype());
  if (dry_run()) return;
  const auto fill = [&]<class T>(T* to) {
    parallel_for(host.size(), 4096, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) to[i] = static_cast<T>(init(i));
    });
  };
  if (host.dtype() == DType::f64)
    fill(host.data<double>());
  else
    fill(host.data<float>());
  values.copy_from(host);
}
}  // namespace

Var Parameters::add(std::string name, const Shape& shape, Section section, bool decay, Init init) {
  check(!values_, "parameters", "'{}' is asked for after build()", name);
  check(shape.size() > 0, "parameters", "'{}' has shape {}: every parameter needs at least one element", name,
        shape.text());
  check(index_.emplace(name, entries_.size()).second, "parameters", "the name '{}' is used twice", name);
  Var leaf = Var::leaf({});
  entries_.push_back({std::move(name), shape, section, decay, std::move(init), leaf, {}});
  return leaf;
}

Tensor Parameters::add_buffer(std::string name, const Shape& shape, double value) {
  check(index_.emplace(name, kBuffer).second, "parameters", "the name '{}' is used twice", name);
  buffers_.push_back({std::move(name), Tensor::full(shape, value, dtype_, device_)});
  return buffers_.back().tensor;
}

void Parameters::build(const std::function<Storage(std::size_t)>& allocate) {
  check(!values_, "parameters", "build() is called twice");
  std::vector<Entry*> order;
  for (Entry& e : entries_) order.push_back(&e);
  std::stable_sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) {
    return std::pair(a->section, !a->decay) < std::pair(b->section, !b->decay);
  });
  std::int64_t end = 0;
  bool in_rest = false;
  for (Entry* e : order) {
    const bool group = e->section == Section::group;
    if (group || !in_rest) {
      end = aligned(end);
      stretches_.push_back({end, 0});
    }
    in_rest = !group;
    e->range = {end, e->shape.size()};
    end += e->range.size;
    stretches_.back().size += e->range.size;
  }
  const Shape flat{end};
  values_ = Tensor::zeros(flat, dtype_, device_);
  const std::size_t bytes = static_cast<std::size_t>(end) * size_of(dtype_);
  gradients_ = allocate ? Tensor::over(allocate(bytes), flat, dtype_) : Tensor::empty(flat, dtype_, device_);
  zero_gradients();
  for (Entry& e : entries_) {
    e.leaf.bind(values_.slice(e.range.first, e.shape), gradients_.slice(e.range.first, e.shape));
    initialise(e.leaf.value(), e.init);
  }
  values_changed();
}

const Parameters::Entry& Parameters::entry(std::string_view name) const {
  const auto it = index_.find(name);
  check(it != index_.end() && it->second != kBuffer, "parameters", "there is no parameter '{}'", name);
  return entries_[it->second];
}

std::int64_t Parameters::count(Section section) const {
  std::int64_t n = 0;
  for (const Entry& e : entries_) n += e.section == section ? e.shape.size() : 0;
  return n;
}

std::int64_t Parameters::total() const {
  std::int64_t n = 0;
  for (const Entry& e : entries_) n += e.shape.size();
  return n;
}

std::vector<FlatRange> Parameters::ranges(bool decay) const {
  RangeSet set;
  for (const Entry& e : entries_)
    if (e.decay == decay) set.add(e.range);
  return set.ranges();
}

void Parameters::zero_gradients() {
  gradients_.fill(0);
}

}  // namespace ssn
