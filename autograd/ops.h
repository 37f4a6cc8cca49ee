#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "autograd/var.h"
#include "kernels/activation.h"
#include "kernels/weight_format.h"
#include "runtime/random.h"

// Every differentiable function: one declaration and one formula each. All check their arguments and throw
// Error; inputs on one device and of one floating type. x is (n, h, w, c) for images and (rows, cols) for
// matrices.
namespace ssn {

// ---- ops_math.cpp
/// y = a + b, same shapes
Var add(const Var& a, const Var& b);
/// relu(add(a, b)) in one pass
Var add_relu(const Var& a, const Var& b);
/// y = max(x, 0)
Var relu(const Var& x);
Var tanh(const Var& x);
/// y = 1 / (1 + e^−x)
Var sigmoid(const Var& x);
/// y = x sigmoid(x)
Var silu(const Var& x);
/// y = x Φ(x), Φ the normal distribution
Var gelu(const Var& x);
/// y[...,c] = x[...,c] + b[c]
Var bias_add(const Var& x, const Var& b);
/// gelu(bias_add(x, b)) in one pass
Var bias_gelu(const Var& x, const Var& b);
/// The same elements in another shape.
Var reshape(const Var& x, const Shape& shape);

// ---- ops_shape.cpp
/// x in another type, f32 or bf16; x itself if it has that type.
Var cast(const Var& x, DType to);
/// y (..., channels) holds x (..., in) from channel `before` on, and 0 elsewhere.
Var pad_channels(const Var& x, std::int64_t before, std::int64_t channels);

// ---- ops_weight_format.cpp
using kernels::WeightFormat;
/// The shape in a format of a weight (o, i, kh, kw); of other weights, which have one order only, their own.
Shape shape_in(const WeightFormat& format, const Shape& weight);
/// A weight (o, i, kh, kw) or its gradient, which is in the order of `from`, in the format `to`; itself where
/// nothing changes.
Tensor reformatted(const Tensor& w, const Shape& weight, const WeightFormat& from, const WeightFormat& to);

// ---- ops_conv.cpp
struct ConvOptions {
  std::int64_t stride[2] = {1, 1}, padding[2] = {0, 0}, dilation[2] = {1, 1};
  std::int64_t groups = 1;
  bool channels_last = false;  // of the weight
};
/// y (n, oh, ow, o) = x (n, h, w, c) * w (o, c/groups, kh, kw), or (o, kh, kw, c/groups) with channels_last:
/// cross-correlation, zero padding. A bf16 x takes w in bf16 too; w's gradient is f32 then as well.
Var conv2d(const Var& x, const Var& w, const ConvOptions& options = {});
/// The format in which conv2d and linear read a weight of this shape (o, c/groups, kh, kw) or (o, i) without
/// a pass over it before.
WeightFormat conv2d_format(const Var& x, const Shape& weight, const ConvOptions& options);
WeightFormat linear_format(const Var& x);
/// y (rows, o) = x (rows, i) w (o, i)ᵀ
Var linear(const Var& x, const Var& w);
/// bias_add(linear(x, w), b), without keeping what is between
Var linear(const Var& x, const Var& w, const Var& b);
/// linear(x, w, b) of the type that parameters have, as a loss reads it
Var logits(const Var& x, const Var& w, const Var& b);

// ---- ops_nn.cpp
struct BatchNormOptions {
  double eps = 1e-5;
  double momentum = 0.1;  // running = (1 − momentum) running + momentum batch
  bool training = true;   // statistics of the batch, running ones updated; else the running ones
  Activation activation = Activation::none;  // behind it, fused
};
/// y[...,c] = (x − mean_c) / sqrt(var_c + eps) · gain_c + bias_c over all axes but the last; biased variance,
/// running_var unbiased
Var batch_norm(const Var& x, const Var& gain, const Var& bias, const Tensor& running_mean,
               const Tensor& running_var, const BatchNormOptions& options);
/// The same of several inputs put together along the last axis, which is not done first.
Var batch_norm(std::span<const Var> xs, const Var& gain, const Var& bias, const Tensor& running_mean,
               const Tensor& running_var, const BatchNormOptions& options);

struct PoolOptions {
  std::int64_t kernel[2] = {2, 2}, stride[2] = {2, 2}, padding[2] = {0, 0};
  bool count_padding = true;  // average: divide by the whole window
};
Var max_pool(const Var& x, const PoolOptions& options);
Var avg_pool(const Var& x, const PoolOptions& options);
/// y (n, out_h, out_w, c): x resized bilinearly, half-pixel centres, no antialias
Var resize_bilinear(const Var& x, std::int64_t out_h, std::int64_t out_w);
/// y (n, c) = mean over h and w, of the type that parameters have
Var global_avg_pool(const Var& x);
/// y[n,h,w,c] = x[n,h,w,c] · s[n,c]
Var scale_channels(const Var& x, const Var& s);

// ---- ops_dropout.cpp
struct DropoutOptions {
  double rate;                       // in [0, 1)
  Random random;                     // what is dropped: a function of it and of the unit's number alone
  std::int64_t first = 0, unit = 1;  // of x's samples (its first axis); elements that are dropped together
};
/// y = x · keep / (1 − rate). Element i belongs to unit (first · elements of a sample + i) / unit.
Var dropout(const Var& x, const DropoutOptions& options);

// ---- ops_sequence.cpp
/// y[...,c] = (x − mean) / sqrt(var + eps) · gain_c + bias_c, mean and biased variance of each row (the last
/// axis)
Var layer_norm(const Var& x, const Var& gain, const Var& bias, double eps);
/// layer_norm(add(x, r), ...) in one pass
Var add_layer_norm(const Var& x, const Var& r, const Var& gain, const Var& bias, double eps);
/// y (m, d) = the rows of the table (v, d), or of activations, that ids, i32 (m), say
Var embedding(const Var& table, const Tensor& ids);
/// i32 (n · length): 0, 1, ..., length − 1 for each of n samples
Tensor places(std::int64_t n, std::int64_t length, Device device);
struct AttentionOptions {
  std::int64_t heads = 1;
  double dropout = 0;      // of the probabilities
  Random random = {0, 0};  // what it draws, by place: sample, head, query and key
  std::int64_t first = 0;  // the place of the first sample
};
/// y (n · queries, d): softmax(q kᵀ / sqrt(d / heads)) v of n samples, head by head of d / heads columns
/// each; q (n · queries, d), k and v (n · keys, d). Keys from lengths, i32 (n), on are padding, which takes
/// no part.
Var attention(const Var& q, const Var& k, const Var& v, const Tensor& lengths,
              const AttentionOptions& options);

// ---- ops_loss.cpp
/// One element: scale · Σ_r −(1−s) log p[r,label_r] − s/classes Σ_c log p[r,c]; labels i32 (rows), negative
/// ones take no part
Var cross_entropy(const Var& logits, const Tensor& labels, double smoothing, double scale);

// ---- ops_weight.cpp
/// How a layer's weight is made of its group's parameters (kernels/generate.h has the formulas).
struct WeightRule {
  enum class Method { templates, exact, tiles };
  Method method = Method::exact;
  Shape shape;
  std::vector<std::int64_t> offsets;  // starts of the templates in theta; one for exact
  std::int64_t window = 9;            // of the masks
  std::int64_t tile = 0;              // tiles: the first elements of theta, which are repeated; 0: all
  double gain = 1;                    // a fixed factor of the whole weight
  bool softmax = false;               // templates: of the coefficients, before they are used
  /// Templates and exact: what is combined is not a weight but a (rows, cols) matrix, which is then resized
  /// bilinearly (half-pixel centres, no antialias) to (to_rows, to_cols), the weight's elements.
  struct Resize {
    std::int64_t rows, cols, to_rows, to_cols;
  };
  std::optional<Resize> resize = {};
};
/// A rule with what it reads: the group's theta (N), and the layer's coefficients: alpha (K_i), or phi (E)
/// with a projection, which gives alpha = W phi + b; none: the mean of the templates. Tiles: the mask (at
/// least tiles − 1, window); none: plain repetition. Exact: none.
struct WeightRecipe {
  WeightRule rule;
  Var theta;
  Var coefficients = {};
  /// W (at least K_i rows, of which the first are used; E) and b alike. Layers may share them.
  Var projection = {}, projection_bias = {};
  WeightFormat format = {};
};
/// The layers' weights in one call; all of one group, each in its format. A bf16 weight is what the f32 one
/// rounds to. An exact weight of theta's own format is a view of theta, without a copy.
std::vector<Tensor> generate(std::span<const WeightRecipe> recipes);
/// Adds what the weights' gradients, each in the order of its weight and of theta's type, give into the
/// gradients of theta and the coefficients, in the order of the list, in one call.
void generate_backward(std::span<const WeightRecipe> recipes, std::span<const Tensor> weight_grads);
/// One layer's weight on the tape, generated at each use and never kept.
Var generated_weight(const WeightRecipe& recipe);

}  // namespace ssn
