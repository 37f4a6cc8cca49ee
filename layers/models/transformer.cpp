#include "layers/models/transformer.h"

namespace ssn {
namespace {

constexpr double kDeviation = 0.02, kEps = 1e-12;
constexpr Linear::Options kLinear{.deviation = kDeviation, .decay_bias = false};

Transformer::Architecture architecture(int layers, std::int64_t width, std::int64_t embedding,
                                       double dropout) {
  constexpr std::int64_t kHead = 64;
  check_usage(width % kHead == 0, "network", "a transformer's width must be a multiple of {}, found {}",
              kHead, width);
  return {layers, width, width / kHead, embedding, dropout};
}

}  // namespace

Transformer::Architecture Transformer::Architecture::bert(int layers, std::int64_t width) {
  return architecture(layers, width, 0, 0.1);
}
Transformer::Architecture Transformer::Architecture::albert(int layers, std::int64_t width) {
  return architecture(layers, width, 128, 0);
}

Transformer::Widths::Widths(const Architecture& a, const NetworkSize& size)
    : layers(a.heads * size.channels(a.width / a.heads)),
      heads(a.heads),
      embedding(a.embedding > 0 ? size.channels(a.embedding) : layers) {}

Transformer::Layer::Layer(const Scope& scope, const Widths& w, double rate)
    : segment(scope),
      attention(scope.at("attention"), w.layers, w.heads, rate, kLinear),
      attention_dropout(scope.at("attention.dropout"), rate),
      attention_norm(scope.at("attention.norm"), w.layers, kEps),
      intermediate(scope.at("intermediate"), w.layers, 4 * w.layers, kLinear),
      output(scope.at("output"), 4 * w.layers, w.layers, kLinear),
      dropout(scope.at("dropout"), rate),
      norm(scope.at("norm"), w.layers, kEps) {}

Var Transformer::Layer::operator()(const Var& x, const Tensor& lengths, const Pass& samples,
                                   const Pass& rows) const {
  const Var h = attention_norm.of_sum(attention_dropout(attention(x, lengths, samples), rows), x);
  return norm.of_sum(dropout(output(intermediate.gelu(h)), rows), h);
}

Transformer::Transformer(const Scope& scope, const Architecture& a, const NetworkTask& task,
                         const NetworkSize& size)
    : Transformer(scope, a, Widths(a, size), task, size) {}

Transformer::Transformer(const Scope& scope, const Architecture& a, const Widths& w, const NetworkTask& task,
                         const NetworkSize& size)
    : word_(scope.at("embeddings.word"), task.vocabulary, w.embedding, kDeviation),
      position_(scope.at("embeddings.position"), task.length, w.embedding, kDeviation),
      segment_(scope.at("embeddings.segment"), 2, w.embedding, kDeviation),
      norm_(scope.at("embeddings.norm"), w.embedding, kEps),
      dropout_(scope.at("embeddings.dropout"), a.dropout),
      projection_([&]() -> std::optional<Linear> {
        if (a.embedding == 0) return {};
        return Linear(scope.at("embeddings.projection"), w.embedding, w.layers, kLinear);
      }()),
      layers_([&] {
        std::vector<Layer> layers;
        for (int i = 0; i < size.blocks(a.layers); ++i)
          layers.emplace_back(scope.at(fmt::format("encoder.layer.{}", i)), w, a.dropout);
        return layers;
      }()),
      head_(scope.at("head.dense"), w.layers, w.embedding, kLinear),
      head_norm_(scope.at("head.norm"), w.embedding, kEps),
      head_bias_(scope.parameters.add(scope.name("head.bias"), {task.vocabulary}, Section::ordinary, false,
                                      [](std::int64_t) { return 0.0; })) {}

Var Transformer::embed(const NetworkInput& input, const Pass& rows) const {
  const std::int64_t n = input.tokens.shape()[0], length = input.tokens.shape()[1];
  const Device device = input.tokens.device();
  const Var words = word_(input.tokens.view({n * length}));
  const auto first_segment = [&] {
    return reshape(segment_(Tensor::zeros({1}, DType::i32, device)), {words.shape()[1]});
  };
  const Var tokens = input.segments ? add(words, segment_(input.segments.view({n * length})))
                                    : bias_add(words, first_segment());
  const Var normalised = norm_.of_sum(tokens, position_(places(n, length, device)));
  const Var h = dropout_(rows.activations(normalised), rows);
  return projection_ ? (*projection_)(h) : h;
}

Var Transformer::encode(const NetworkInput& input, const Pass& pass) const {
  check(input.tokens && input.tokens.shape().rank() == 2 && input.lengths, "transformer",
        "needs tokens (n, length) and lengths (n)");
  Pass rows = pass;  // of which a sample has several
  rows.first = pass.first * input.tokens.shape()[1];
  Var h = embed(input, rows);
  for (const Layer& layer : layers_) {
    h = layer.segment(pass, {h}, [&layer, lengths = input.lengths, pass, rows](std::span<const Var> x) {
      return layer(x[0], lengths, pass, rows);
    });
  }
  return h;
}

Var Transformer::forward(const NetworkInput& input, const Pass& pass) const {
  check(static_cast<bool>(input.predicted), "transformer", "needs the rows that are to be predicted");
  const Var rows = embedding(encode(input, pass), input.predicted);
  return logits(head_norm_(head_.gelu(rows)), word_.table(), head_bias_);
}

}  // namespace ssn
