#pragma once
#include "layers/layer.h"

namespace ssn {

/// A table of rows (count, width) that are looked up by their numbers. Not shared; starts normal.
class Embedding {
 public:
  Embedding(const Scope& scope, std::int64_t count, std::int64_t width, double deviation);
  /// (m, width) for ids i32 (m); an id that is not in the table is an Error.
  Var operator()(const Tensor& ids) const { return embedding(table_, ids); }
  /// What an output projection reads that shares it.
  const Var& table() const { return table_; }

 private:
  Var table_;
};

}  // namespace ssn
