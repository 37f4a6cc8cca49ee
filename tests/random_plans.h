#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "runtime/random.h"
#include "ssn/plan.h"

namespace ssn::test {

/// Draws of small whole numbers, one after the other.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : draws_(seed, "dice") {}
  /// In [0, n).
  std::int64_t below(std::int64_t n) { return draws_.below(n, next_++); }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[below(static_cast<std::int64_t>(values.size()))];
  }

 private:
  Random draws_;
  std::uint64_t next_ = 0;
};

/// Any options, but for the budget; `most` is the largest number of groups.
inline PlanOptions random_options(Dice& dice, std::int64_t most) {
  PlanOptions o;
  const auto kind = dice.one_of(
      {MappingKind::single, MappingKind::random, MappingKind::random, MappingKind::shape, MappingKind::type});
  o.mapping.kind = kind;
  if (kind == MappingKind::random) o.mapping.groups = static_cast<int>(1 + dice.below(most));
  o.count = dice.one_of({Count::groups, Count::groups, Count::total});
  o.combine = dice.one_of({Combine::emb, Combine::wavg, Combine::avg, Combine::rr});
  o.upsample = dice.one_of({Upsample::mask, Upsample::inter, Upsample::repeat});
  o.templates = static_cast<int>(1 + dice.below(10));
  o.embedding = 1 + dice.below(30);
  o.softmax = (o.combine == Combine::emb || o.combine == Combine::wavg) && dice.below(4) == 0;
  o.inter = dice.one_of({Inter::aspect, Inter::line, Inter::ref});
  o.window = 1 + dice.below(12);
  o.masks = dice.one_of({MaskScope::group, MaskScope::layer});
  o.mask_init = dice.one_of({MaskInit::small, MaskInit::ones, MaskInit::random});
  o.gain = dice.one_of({Gain::automatic, Gain::on, Gain::off});
  o.allocation =
      dice.one_of({Allocation::cursor, Allocation::cursor, Allocation::ref_block, Allocation::resized});
  o.seed = static_cast<std::uint64_t>(dice.below(1000));
  return o;
}

}  // namespace ssn::test
