#pragma once
#include <algorithm>
#include <cmath>

#include "layers/layer.h"

namespace ssn {

/// How much of a published network is built. Its constructor asks for every inner count of channels, the
/// stem's included, and for the blocks of every stage.
struct NetworkSize {
  double width = 1;  // of the channels
  int removed = 0;   // blocks of each stage; one stays

  std::int64_t channels(std::int64_t published) const {
    return std::max<std::int64_t>(1, std::llround(static_cast<double>(published) * width));
  }
  int blocks(int published) const { return std::max(1, published - removed); }
};

/// What a network is made for: images of a size and of `classes`; or, where `length` is not 0, text in
/// sequences of at most that many tokens, each one of `vocabulary`.
struct NetworkTask {
  std::int64_t channels = 0, height = 0, width = 0;
  std::int64_t classes = 0;
  std::int64_t length = 0, vocabulary = 0;
};

/// Images of this many pixels a side and more are halved twice before the first stage of a network for
/// ImageNet (by a 7×7 convolution with stride 2 and a max pool of 3×3 with stride 2); smaller ones are not (a
/// 3×3 convolution), as in the networks for CIFAR.
constexpr std::int64_t kLargeImage = 64;
inline bool is_large(const NetworkTask& task) {
  return std::min(task.height, task.width) >= kLargeImage;
}

/// What networks read; each reads the fields of its kind.
struct NetworkInput {
  Tensor images = {};     // (n, h, w, c), of the parameters' type
  Tensor tokens = {};     // i32 (n, length)
  Tensor lengths = {};    // i32 (n): what lies behind in a row of tokens is padding, which nothing attends to
  Tensor predicted = {};  // i32 (m): the rows of (n · length), rising, whose token is to be predicted
  Tensor segments = {};   // i32 (n, length): the sentence that a token is of; none: all of sentence 0
};

/// A network: its constructor asks a Scope for weights and parameters, forward() uses each weight once.
class Network {
 public:
  virtual ~Network() = default;
  /// Logits: images (n, classes), text (m, vocabulary).
  virtual Var forward(const NetworkInput& input, const Pass& pass) const = 0;
};

}  // namespace ssn
