#pragma once
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runtime/tensor.h"

namespace ssn {

/// A value on the tape: a handle to a node that holds the tensor, its gradient and the closure that carries a
/// gradient to the inputs. Nodes are numbered as they are created; backward() follows the numbers downwards,
/// so the order of work, and of everything that hooks start, is the same on every rank.
class Var {
 public:
  /// Adds to the gradients of `inputs`; called once, with the finished gradient of the output. It reads the
  /// inputs through `inputs`, never by capturing their tensors: a regenerated input has no tensor to keep.
  using Backward = std::function<void(const Tensor& gy, std::span<const Var> inputs)>;

  Var() = default;
  /// A value without gradient.
  static Var constant(Tensor value);
  /// A value that wants a gradient.
  static Var leaf(Tensor value);
  /// The output of an operation. Keeps inputs and closure only if an input wants a gradient and no NoGrad is
  /// in force.
  static Var result(Tensor value, std::vector<Var> inputs, Backward backward);
  /// result() for an operation that reaches parameters which are not among its inputs (autograd/recompute.h):
  /// it wants a gradient whatever the inputs do.
  static Var always_recorded(Tensor value, std::vector<Var> inputs, Backward backward);
  /// An output whose tensor is not kept: value() calls `make` at each use.
  static Var regenerated(const Shape& shape, DType dtype, Device device, std::function<Tensor()> make,
                         std::vector<Var> inputs, Backward backward);

  explicit operator bool() const { return node_ != nullptr; }
  const Shape& shape() const;
  DType dtype() const;
  Device device() const;
  std::int64_t size() const { return shape().size(); }
  Tensor value() const;
  bool wants_grad() const;

  /// The gradient so far; an empty Tensor if there is none.
  Tensor grad() const;
  /// Adds g (this value's shape and type; or, as of weights in bf16, all of them f32). The first one is kept
  /// without a copy; a later one is added in place only if no other tensor shares the storage. Does nothing
  /// if no gradient is wanted.
  void add_grad(Tensor g) const;
  /// The gradient, zero-filled at the first request: for kernels that add into it themselves.
  Tensor grad_buffer() const;
  void clear_grad() const;

  /// Leaves only: gives the leaf its tensor and a gradient buffer that every later gradient is added into
  /// (views of flat buffers, see Parameters).
  void bind(Tensor value, Tensor grad) const;
  /// Leaves only: called in backward() when the last use reached has added its gradient.
  void on_ready(std::function<void()> hook) const;

 private:
  struct Node;
  explicit Var(std::shared_ptr<Node> node) : node_(std::move(node)) {}
  std::shared_ptr<Node> node_;
  friend void backward(std::span<const Var> outputs, std::span<const Tensor> gradients);
};

/// Carries the gradients of `outputs` (one tensor each) to every leaf they depend on. Frees each node's
/// closure, inputs and gradient as soon as it has run, so a graph can be walked once. No recursion: depth is
/// limited by memory only.
void backward(std::span<const Var> outputs, std::span<const Tensor> gradients);
/// Of one scalar loss: its gradient is 1.
void backward(const Var& loss);

/// While one lives, operations of this thread record nothing.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;
};
bool grad_enabled();

}  // namespace ssn
