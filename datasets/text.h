#pragma once
#include "datasets/dataset.h"

namespace ssn {

/// The text in `path` (see read_corpus) as sequences for masked-language modelling.
Dataset load_text(const std::string& path, const DatasetOptions& options);
/// `documents` generated documents (see synthetic_text), and a fifth as many for testing.
Dataset load_synthetic_text(std::int64_t documents, const DatasetOptions& options);
/// What the options alone say of text: its shape, where they give a vocabulary or its size.
std::optional<KnownSet> known_text(const DatasetOptions& options);

}  // namespace ssn
