#include "autograd/var.h"

#include <algorithm>

#include "kernels/elementwise.h"
#include "runtime/dispatch.h"

namespace ssn {

struct Var::Node {
  Shape shape;
  DType dtype = DType::f32;
  Device device = Device::cpu;
  Tensor value;
  std::function<Tensor()> make;  // instead of value
  Tensor grad;
  bool wants_grad = false;
  bool bound = false;  // grad is a view of a flat buffer: always added into
  std::uint64_t number = 0;
  int pending = 0;  // uses whose gradient has not arrived yet; non-zero in backward() only
  std::vector<Var> inputs;
  Backward backward;
  std::function<void()> ready;

  ~Node() {  // takes long chains apart in a loop: the default would recurse as deep as the graph
    std::vector<Var> open = std::move(inputs);
    while (!open.empty()) {
      const Var v = std::move(open.back());
      open.pop_back();
      if (v.node_.use_count() > 1) continue;
      std::move(v.node_->inputs.begin(), v.node_->inputs.end(), std::back_inserter(open));
      v.node_->inputs.clear();
    }
  }
};

namespace {
thread_local int g_no_grad = 0;

std::uint64_t next_number() {
  static thread_local std::uint64_t number = 0;
  return ++number;
}

/// to += from
void accumulate(const Tensor& to, const Tensor& from) {
  dispatch_mixed(to.device(), to.dtype(), "accumulate", [&]<class T>(auto& q) {
    kernels::accumulate<T>(q, to.size(), from.data<T>(), to.data<T>());
  });
}
}  // namespace

NoGrad::NoGrad() {
  ++g_no_grad;
}
NoGrad::~NoGrad() {
  --g_no_grad;
}
bool grad_enabled() {
  return g_no_grad == 0;
}

Var Var::constant(Tensor value) {
  return result(std::move(value), {}, {});
}

Var Var::leaf(Tensor value) {
  Var v = constant(std::move(value));
  v.node_->wants_grad = true;
  return v;
}

Var Var::result(Tensor value, std::vector<Var> inputs, Backward backward) {
  Var v =
      regenerated(value.shape(), value.dtype(), value.device(), {}, std::move(inputs), std::move(backward));
  v.node_->value = std::move(value);
  return v;
}

Var Var::always_recorded(Tensor value, std::vector<Var> inputs, Backward backward) {
  Var v = result(std::move(value), {}, {});
  if (grad_enabled()) {
    v.node_->wants_grad = true;
    v.node_->inputs = std::move(inputs);
    v.node_->backward = std::move(backward);
  }
  return v;
}

Var Var::regenerated(const Shape& shape, DType dtype, Device device, std::function<Tensor()> make,
                     std::vector<Var> inputs, Backward backward) {
  Var v(std::make_shared<Node>());
  Node& n = *v.node_;
  n.shape = shape;
  n.dtype = dtype;
  n.device = device;
  n.make = std::move(make);
  n.number = next_number();
  n.wants_grad = grad_enabled() &&
                 std::any_of(inputs.begin(), inputs.end(), [](const Var& x) { return x.wants_grad(); });
  if (n.wants_grad) {
    n.inputs = std::move(inputs);
    n.backward = std::move(backward);
  }
  return v;
}

const Shape& Var::shape() const {
  return node_->shape;
}
DType Var::dtype() const {
  return node_->dtype;
}
Device Var::device() const {
  return node_->device;
}
Tensor Var::value() const {
  return node_->make ? node_->make() : node_->value;
}
bool Var::wants_grad() const {
  return node_ && node_->wants_grad;
}
Tensor Var::grad() const {
  return node_->grad;
}
void Var::clear_grad() const {
  node_->grad = {};
}

void Var::add_grad(Tensor g) const {
  Node& n = *node_;
  if (!n.wants_grad) return;
  const bool fits =
      n.grad ? g.dtype() == n.grad.dtype() : g.dtype() == n.dtype || g.dtype() == wider(n.dtype);
  check(g.shape() == n.shape && fits, "add_grad", "the gradient is {} {}, {} {} {}", g.shape().text(),
        name_of(g.dtype()), n.grad ? "what is there of it" : "the value", n.shape.text(),
        name_of(n.grad ? n.grad.dtype() : n.dtype));
  if (!n.grad) {
    n.grad = std::move(g);
  } else {
    if (!n.bound && !n.grad.exclusive()) n.grad = n.grad.clone();
    accumulate(n.grad, g);
  }
}

Tensor Var::grad_buffer() const {
  Node& n = *node_;
  if (!n.grad)
    n.grad = Tensor::zeros(n.shape, n.dtype, n.device);
  else if (!n.bound && !n.grad.exclusive())
    n.grad = n.grad.clone();
  return n.grad;
}

void Var::bind(Tensor value, Tensor grad) const {
  Node& n = *node_;
  check(value.shape() == grad.shape(), "bind", "the value is {}, the gradient {}", value.shape().text(),
        grad.shape().text());
  n.shape = value.shape();
  n.dtype = value.dtype();
  n.device = value.device();
  n.value = std::move(value);
  n.grad = std::move(grad);
  n.bound = true;
}

void Var::on_ready(std::function<void()> hook) const {
  node_->ready = std::move(hook);
}

void backward(std::span<const Var> outputs, std::span<const Tensor> gradients) {
  check(outputs.size() == gradients.size(), "backward", "{} outputs, {} gradients", outputs.size(),
        gradients.size());
  std::vector<Var> order, open;
  for (const Var& y : outputs)
    if (y.wants_grad() && y.node_->pending++ == 0) open.push_back(y);
  while (!open.empty()) {
    Var v = std::move(open.back());
    open.pop_back();
    for (const Var& x : v.node_->inputs)
      if (x.wants_grad() && x.node_->pending++ == 0) open.push_back(x);
    order.push_back(std::move(v));
  }
  // A node is created after its inputs, so the creation numbers are a topological order.
  std::sort(order.begin(), order.end(),
            [](const Var& a, const Var& b) { return a.node_->number > b.node_->number; });

  const auto arrived = [](const Var& x) {
    if (--x.node_->pending == 0 && x.node_->ready) x.node_->ready();
  };
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].wants_grad()) continue;
    outputs[i].add_grad(gradients[i]);
    arrived(outputs[i]);
  }
  for (const Var& v : order) {
    Var::Node& n = *v.node_;
    if (!n.backward) continue;  // a leaf keeps its gradient
    if (n.grad) n.backward(n.grad, n.inputs);
    for (const Var& x : n.inputs)
      if (x.wants_grad()) arrived(x);
    n.backward = nullptr;  // frees what it saved
    n.inputs.clear();
    n.grad = {};
  }
}

void backward(const Var& loss) {
  check(loss.size() == 1, "backward", "a loss has one element, found {}: give the gradient explicitly",
        loss.shape().text());
  const Tensor one = Tensor::full(loss.shape(), 1, loss.dtype(), loss.device());
  backward({&loss, 1}, {&one, 1});
}

}  // namespace ssn
