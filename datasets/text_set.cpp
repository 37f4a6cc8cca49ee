#include "datasets/text_set.h"

#include <algorithm>
#include <numeric>

namespace ssn {
namespace {

constexpr std::int64_t kSpecial = 2;  // [CLS] and [SEP]

/// Numbers of a sample: a draw does not depend on which others are made.
std::uint64_t draw(std::int64_t sample, std::int64_t length, std::int64_t which, std::int64_t purpose) {
  constexpr std::int64_t kPurposes = 4;
  return static_cast<std::uint64_t>((sample * length + which) * kPurposes + purpose);
}
enum Purpose : std::int64_t { kPlace, kFate, kPiece };

}  // namespace

TextSamples::TextSamples(const TokenDocuments& documents, std::shared_ptr<const Vocabulary> vocabulary,
                         std::int64_t length)
    : tokens_(Tensor::of<std::int32_t>({std::ssize(documents.tokens)}, documents.tokens)),
      begins_{0},
      vocabulary_(std::move(vocabulary)),
      length_(length) {
  check_usage(length > kSpecial, "text", "--length {} is too short; a sequence has [CLS], [SEP] and a token",
              length);
  for (const std::int64_t end : documents.ends)
    while (begins_.back() < end) begins_.push_back(std::min(begins_.back() + length - kSpecial, end));
}

std::int64_t TextSamples::labels_of(std::int64_t sample) const {
  constexpr std::int64_t kPercent = 15;
  return std::max<std::int64_t>(1, (stretch(sample) * kPercent + 50) / 100);
}

/// Places in the sample's stretch, rising: the beginning of a shuffle.
std::vector<std::int64_t> TextSamples::masked_places(std::int64_t sample, const Random& random) const {
  const std::int64_t n = stretch(sample), count = labels_of(sample);
  std::vector<std::int64_t> places(static_cast<std::size_t>(n));
  std::iota(places.begin(), places.end(), 0);
  for (std::int64_t i = 0; i < count; ++i)
    std::swap(places[i], places[i + random.below(n - i, draw(sample, length_, i, kPlace))]);
  places.resize(static_cast<std::size_t>(count));
  std::ranges::sort(places);
  return places;
}

Batch TextSamples::raw(std::span<const std::int32_t> samples, const Random& random, bool training) const {
  const std::int64_t n = std::ssize(samples);
  std::int64_t m = 0;
  for (const std::int32_t sample : samples) m += labels_of(sample);
  Batch batch{.tokens = Tensor::full({n, length_}, vocabulary_->pad(), DType::i32),
              .lengths = Tensor::empty({n}, DType::i32),
              .predicted = Tensor::empty({m}, DType::i32),
              .labels = Tensor::empty({m}, DType::i32)};
  const Random fixed(0, "text/fixed masks");
  const Random& draws = training ? random : fixed;
  auto* predicted = batch.predicted.data<std::int32_t>();
  auto* labels = batch.labels.data<std::int32_t>();
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t sample = samples[i], count = stretch(sample);
    std::int32_t* row = batch.tokens.data<std::int32_t>() + i * length_;
    row[0] = vocabulary_->first();
    std::copy_n(tokens_.data<std::int32_t>() + begins_[sample], count, row + 1);
    row[count + 1] = vocabulary_->separator();
    batch.lengths.data<std::int32_t>()[i] = static_cast<std::int32_t>(count + kSpecial);
    std::int64_t which = 0;
    for (const std::int64_t place : masked_places(sample, draws)) {
      std::int32_t& token = row[1 + place];
      *predicted++ = static_cast<std::int32_t>(i * length_ + 1 + place);
      *labels++ = token;
      const double fate = draws.uniform(draw(sample, length_, which, kFate));
      if (fate < 0.8)
        token = vocabulary_->mask();
      else if (fate < 0.9)
        token =
            static_cast<std::int32_t>(draws.below(vocabulary_->size(), draw(sample, length_, which, kPiece)));
      ++which;
    }
  }
  return batch;
}

}  // namespace ssn
