#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "datasets/sample_set.h"
#include "datasets/vocabulary.h"

namespace ssn {

/// Documents as tokens, one after another; document i ends before tokens[ends[i]].
struct TokenDocuments {
  std::vector<std::int32_t> tokens = {};
  std::vector<std::int64_t> ends = {};
};

/// Text for masked-language modelling (BERT, Devlin et al. 2019, section 3.1), held in memory. A sample is
/// [CLS], a stretch of one document, [SEP], and padding up to `length`; a document's last stretch may be
/// short. 15% of the stretch's tokens, one at least, are to be predicted: 80% of them are replaced by [MASK],
/// 10% by any piece of the vocabulary, 10% are left. Where not training, which ones and how is always the
/// same.
class TextSamples : public SampleSet {
 public:
  /// length >= 3.
  TextSamples(const TokenDocuments& documents, std::shared_ptr<const Vocabulary> vocabulary,
              std::int64_t length);

  std::int64_t size() const override { return std::ssize(begins_) - 1; }
  std::int64_t labels_of(std::int64_t sample) const override;
  Batch raw(std::span<const std::int32_t> samples, const Random& random, bool training) const override;

 private:
  std::int64_t stretch(std::int64_t sample) const { return begins_[sample + 1] - begins_[sample]; }
  std::vector<std::int64_t> masked_places(std::int64_t sample, const Random& random) const;

  Tensor tokens_;                     // i32
  std::vector<std::int64_t> begins_;  // of the samples' stretches in tokens_, and their end
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::int64_t length_;
};

}  // namespace ssn
