#include "layers/attention.h"

namespace ssn {

SelfAttention::SelfAttention(const Scope& scope, std::int64_t width, std::int64_t heads, double dropout,
                             const Linear::Options& projections)
    : name_(scope.path),
      heads_(heads),
      dropout_(dropout),
      query_(scope.at("query"), width, width, projections),
      key_(scope.at("key"), width, width, projections),
      value_(scope.at("value"), width, width, projections),
      output_(scope.at("output"), width, width, projections) {}

Var SelfAttention::operator()(const Var& x, const Tensor& lengths, const Pass& pass) const {
  return output_(attention(query_(x), key_(x), value_(x), lengths,
                           {.heads = heads_,
                            .dropout = pass.training ? dropout_ : 0,
                            .random = pass.random(name_),
                            .first = pass.first}));
}

}  // namespace ssn
