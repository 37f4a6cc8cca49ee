#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/generate.h"
#include "runtime/bf16.h"

namespace ssn::kernels {

/// y = x wᵀ + bias for a generated weight w (out, in) that is never in memory: parts of it are made of theta
/// where the product reads them.
///   x (rows, in), y (rows, out), row-major without gaps; bias (out) or null
/// `layer` says how w is made, n = out · in; of its pointers only the coefficients are used. It has at most
/// kFusedTemplates templates, and fewer than 2³² elements. T is float, double or bf16. Each element of w has
/// the bits that generate_forward gives it, rounded to T; what is added up is so in Wider<T>, in an order
/// that depends on the sizes alone, and rounded once. y overlaps nothing else.
template <class T>
struct GeneratedLinear {
  std::int64_t rows, in, out;
  GeneratedLayer<Wider<T>> layer;
  std::int64_t group_size;
  const Wider<T>* theta;
  const T* x;
  const Wider<T>* bias;
  T* y;
};

constexpr int kFusedTemplates = 64;

/// `workspace` has the bytes that generated_linear_workspace says, aligned to 16. Meant for few rows: theta
/// is read anew for each 64 of them, or fewer.
template <class T>
void generated_linear(CpuQueue&, const GeneratedLinear<T>& p, void* workspace);
template <class T>
void generated_linear(CudaQueue&, const GeneratedLinear<T>& p, void* workspace);
template <class T>
std::size_t generated_linear_workspace(CpuQueue&, std::int64_t rows, std::int64_t in, std::int64_t out);
template <class T>
std::size_t generated_linear_workspace(CudaQueue&, std::int64_t rows, std::int64_t in, std::int64_t out);

}  // namespace ssn::kernels
