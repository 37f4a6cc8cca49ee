#pragma once
#include <optional>
#include <vector>

#include "layers/attention.h"
#include "layers/dropout.h"
#include "layers/embedding.h"
#include "layers/models/network.h"
#include "layers/norm.h"

namespace ssn {

/// Transformer encoders that predict masked tokens: BERT (Devlin et al., 2019) and ALBERT (Lan et al., 2020).
/// Embeddings of token, position and sentence are added and normed; each layer is self-attention and a
/// network of one inner layer (4 widths, exact GELU), with a norm behind each sum; the head (dense, GELU,
/// norm, on the predicted rows only) has the token embeddings for its output's matrix, and a bias. There is
/// no pooler, which masked tokens do not train. ALBERT's embeddings are narrower than its layers, and
/// projected; that its layers share their weights is a mapping (`--mapping albert`).
/// In bf16 the embeddings are summed and normed in f32 all the same, and the logits are f32.
///
/// The heads stay as a NetworkSize narrows the layers; the layers' width is a multiple of them.
class Transformer : public Network {
 public:
  struct Architecture {
    int layers = 12;
    std::int64_t width = 768, heads = 12;
    std::int64_t embedding = 0;  // width of the embeddings; 0: that of the layers, without a projection
    double dropout = 0.1;        // also of the attention's probabilities

    static Architecture bert(int layers, std::int64_t width);
    static Architecture albert(int layers, std::int64_t width);
  };
  /// Positions are as many as the task's length.
  Transformer(const Scope& scope, const Architecture& architecture, const NetworkTask& task,
              const NetworkSize& size = {});
  /// (m, vocabulary)
  Var forward(const NetworkInput& input, const Pass& pass) const override;
  /// (n · length, width): what the last layer gives for each token. A sequence may be shorter than the
  /// task's.
  Var encode(const NetworkInput& input, const Pass& pass) const;

 private:
  struct Widths {
    std::int64_t layers, heads, embedding;
    Widths(const Architecture& architecture, const NetworkSize& size);
  };
  struct Layer {
    Layer(const Scope& scope, const Widths& widths, double dropout);
    Var operator()(const Var& x, const Tensor& lengths, const Pass& samples, const Pass& rows) const;

    Segment segment;
    SelfAttention attention;
    Dropout attention_dropout;
    LayerNorm attention_norm;
    Linear intermediate, output;
    Dropout dropout;
    LayerNorm norm;
  };
  Transformer(const Scope& scope, const Architecture& architecture, const Widths& widths,
              const NetworkTask& task, const NetworkSize& size);
  Var embed(const NetworkInput& input, const Pass& rows) const;

  Embedding word_, position_, segment_;
  LayerNorm norm_;
  Dropout dropout_;
  std::optional<Linear> projection_;
  std::vector<Layer> layers_;
  Linear head_;
  LayerNorm head_norm_;
  Var head_bias_;
};

}  // namespace ssn
