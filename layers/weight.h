#pragma once
#include <cstdint>
#include <string>

#include "autograd/ops.h"

namespace ssn {

enum class WeightKind : std::uint8_t { convolution, linear, gru, embedding };
constexpr std::string_view name_of(WeightKind kind) {
  constexpr std::string_view names[] = {"convolution", "linear", "gru", "embedding"};
  return names[static_cast<int>(kind)];
}

/// What a layer asks for. Convolutions (O, I/groups, kh, kw), linear layers (O, I).
struct WeightRequest {
  std::string name;  // path, unique: "block2.layer.3.conv1"
  WeightKind kind;
  Shape shape;
  std::int64_t fan_in;
  bool norm_follows = false;  // the scale of the weight does not matter
  double deviation = 0;       // of the start values, without sharing; 0: sqrt(2 / fan_in)
};

/// Answers requests for weights: the only thing a layer knows about parameter sharing.
class WeightFactory {
 public:
  virtual ~WeightFactory() = default;
  /// The number of the request; use(number) is valid after the factory has been built.
  virtual int request(WeightRequest request) = 0;
  /// The weight for one use, in the format that this wants: once a forward pass (a recurrent layer: once a
  /// sequence).
  virtual Var use(int number, const WeightFormat& format) = 0;
  /// linear(x, use(number, ...), bias), to rounding; the bias may be none.
  virtual Var linear(int number, const Var& x, const Var& bias);
  /// Of the start values: for those that a layer draws itself.
  virtual std::uint64_t seed() const = 0;
};

/// A layer's handle to its weight.
class Weight {
 public:
  Weight(WeightFactory& factory, WeightRequest request)
      : factory_(&factory), shape_(request.shape), number_(factory.request(std::move(request))) {}
  /// (O, I/groups, kh, kw) or (O, I)
  const Shape& shape() const { return shape_; }
  Var use(const WeightFormat& format) const { return factory_->use(number_, format); }
  Var linear(const Var& x, const Var& bias) const { return factory_->linear(number_, x, bias); }

 private:
  WeightFactory* factory_;
  Shape shape_;
  int number_;
};

}  // namespace ssn
