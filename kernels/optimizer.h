#pragma once
#include <algorithm>
#include <cstdint>

#include "runtime/queue.h"

// One pass over n flat parameters, each: states and theta are updated in place, g is only read. In all of
// them ĝ = scale · g, by which a gradient is clipped without a pass of its own. (kernels/optimizer_terms.h
// has the formulas.)
namespace ssn::kernels {

/// What differs from step to step. It lies in the memory of the queue's device, so that work which is
/// recorded once and repeated reads the numbers of each step.
struct StepValues {
  double step;                      // from 1
  double lr, scale;                 // ĝ = scale · g
  double correction1, correction2;  // of Adam and LAMB: 1 / (1 − beta_k^step)
  double norm;                      // of ĝ, 0 until clip() finds it; not finite: nothing changes
};
/// *step = values. Returns before that is done, and without waiting for what the queue has to do.
void set_step(CpuQueue&, const StepValues& values, StepValues* step);
void set_step(CudaQueue&, const StepValues& values, StepValues* step);

/// Stochastic gradient descent with momentum.
///   d = ĝ + decay · theta
///   velocity = momentum · velocity + d
///   theta −= lr · (nesterov ? d + momentum · velocity : velocity)
/// velocity starts at 0.
struct SgdRates {
  double decay, momentum;
  bool nesterov;
};
template <class T>
void sgd(CpuQueue&, std::int64_t n, const SgdRates& rates, const StepValues* step, const T* g, T* velocity,
         T* theta);
template <class T>
void sgd(CudaQueue&, std::int64_t n, const SgdRates& rates, const StepValues* step, const T* g, T* velocity,
         T* theta);

/// Adam (Kingma and Ba 2015, Algorithm 1), and AdamW, whose decay is decoupled (Loshchilov and Hutter 2019,
/// Algorithm 2).
///   d = decoupled ? ĝ : ĝ + decay · theta
///   m = beta1 · m + (1 − beta1) · d
///   v = beta2 · v + (1 − beta2) · d²
///   r = (correction1 · m) / (sqrt(correction2 · v) + epsilon)
///   theta −= lr · (decoupled ? r + decay · theta : r)
/// m and v start at 0; epsilon > 0.
struct AdamRates {
  double decay, beta1, beta2, epsilon;
  bool decoupled;
};
template <class T>
void adam(CpuQueue&, std::int64_t n, const AdamRates& rates, const StepValues* step, const T* g, T* m, T* v,
          T* theta);
template <class T>
void adam(CudaQueue&, std::int64_t n, const AdamRates& rates, const StepValues* step, const T* g, T* m, T* v,
          T* theta);

/// RMSProp in TensorFlow's form, with which EfficientNet is trained: the mean of squares starts at 1 and not
/// at 0, epsilon is inside the root, and the rate inside the momentum.
///   d = ĝ + decay · theta
///   square = beta2 · square + (1 − beta2) · d²
///   velocity = momentum · velocity + lr · d / sqrt(square + epsilon)
///   theta −= velocity
/// velocity starts at 0; epsilon > 0.
struct RmsPropRates {
  double decay, beta2, epsilon, momentum;
};
template <class T>
void rmsprop(CpuQueue&, std::int64_t n, const RmsPropRates& rates, const StepValues* step, const T* g,
             T* square, T* velocity, T* theta);
template <class T>
void rmsprop(CudaQueue&, std::int64_t n, const RmsPropRates& rates, const StepValues* step, const T* g,
             T* square, T* velocity, T* theta);

/// What LAMB runs over: tensors of the flat buffers, in order, each cut into chunks of at most kLambChunk
/// elements. Tensor t has the chunks [first_chunk[t], first_chunk[t + 1]). Both arrays are on the device.
struct LambChunk {
  std::int64_t first, size;  // in the flat buffers
  std::int64_t tensor;
  std::int64_t decays;  // 0: decay counts as 0
};
constexpr std::int64_t kLambChunk = 8192;
struct LambLayout {
  std::int64_t tensors, chunks;
  const std::int64_t* first_chunk;
  const LambChunk* chunk;
};

/// LAMB (You et al. 2020, Algorithm 2, phi the identity).
///   m, v, r as Adam's, decoupled
///   u = r + decay · theta
///   theta −= lr · ratio · u,   ratio = ‖theta‖ / ‖u‖ of its tensor; 1 where either norm is 0
/// Two passes: the second computes u again from the states that the first has updated. Norms are summed in
/// double, chunk by chunk. `workspace`: lamb_workspace(layout) doubles.
template <class T>
void lamb(CpuQueue&, const LambLayout& layout, const AdamRates& rates, const StepValues* step, const T* g,
          T* m, T* v, T* theta, double* workspace);
template <class T>
void lamb(CudaQueue&, const LambLayout& layout, const AdamRates& rates, const StepValues* step, const T* g,
          T* m, T* v, T* theta, double* workspace);
constexpr std::int64_t lamb_workspace(const LambLayout& layout) {
  return 2 * layout.chunks + layout.tensors;
}

/// average += (1 − d) · (x − average), d = min(decay, (1 + t) / (10 + t)) after step t
template <class T>
void move_average(CpuQueue&, std::int64_t n, double decay, const StepValues* step, const T* x, T* average);
template <class T>
void move_average(CudaQueue&, std::int64_t n, double decay, const StepValues* step, const T* x, T* average);

/// *sum = Σ x², in double: chunks of kSquaresChunk elements, then the chunks' sums. `workspace`:
/// squares_workspace(n) doubles. Overwrites.
constexpr std::int64_t kSquaresChunk = 8192;
constexpr std::int64_t squares_workspace(std::int64_t n) {
  return (n + kSquaresChunk - 1) / kSquaresChunk;
}
template <class T>
void sum_of_squares(CpuQueue&, std::int64_t n, const T* x, double* sum, double* workspace);
template <class T>
void sum_of_squares(CudaQueue&, std::int64_t n, const T* x, double* sum, double* workspace);

/// step->norm = step->scale · sqrt(*squares), that of ĝ; where most > 0 and it is larger, step->scale *= most
/// / norm, so that the norm of ĝ is at most `most` (Pascanu et al. 2013, Algorithm 1).
void clip(CpuQueue&, double most, const double* squares, StepValues* step);
void clip(CudaQueue&, double most, const double* squares, StepValues* step);

/// *found = min(*found, first + the index of the first element of x that is not finite); as it was if all
/// are.
template <class T>
void find_not_finite(CpuQueue&, std::int64_t n, const T* x, std::int64_t first, std::int64_t* found);
template <class T>
void find_not_finite(CudaQueue&, std::int64_t n, const T* x, std::int64_t first, std::int64_t* found);

}  // namespace ssn::kernels
