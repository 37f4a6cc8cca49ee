#pragma once
#include "kernels/generate.h"

namespace ssn::kernels {

/// Elements [begin, begin + n) of a layer's weight, at most 4096, in the calling thread.
template <class T>
void generate_part(const GeneratedLayer<T>& layer, std::int64_t group_size, const T* theta,
                   std::int64_t begin, std::int64_t n, T* w);

}  // namespace ssn::kernels
