#include "layers/embedding.h"

namespace ssn {

Embedding::Embedding(const Scope& scope, std::int64_t count, std::int64_t width, double deviation)
    : table_(scope.parameters.add(
          scope.path, {count, width}, Section::ordinary, true,
          [deviation, draws = Random(scope.weights.seed(), "init/" + scope.path)](std::int64_t index) {
            return deviation * draws.normal(static_cast<std::uint64_t>(index));
          })) {}

}  // namespace ssn
