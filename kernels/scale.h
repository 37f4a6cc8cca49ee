#pragma once
#include <cstdint>

#include "runtime/bf16.h"
#include "runtime/queue.h"

namespace ssn::kernels {

// Every channel of every image times a factor of its own (Hu et al., 2018: squeeze and excitation). x, y and
// gy are (n, pixels, channels), s is (n, channels). x, y and their gradients may be bf16; s and gs are f32
// then.

/// y[n,p,c] = x[n,p,c] · s[n,c]. Overwrites.
template <class T>
void scale_channels_forward(CpuQueue&, std::int64_t n, std::int64_t pixels, std::int64_t channels, const T* x,
                            const Wider<T>* s, T* y);
template <class T>
void scale_channels_forward(CudaQueue&, std::int64_t n, std::int64_t pixels, std::int64_t channels,
                            const T* x, const Wider<T>* s, T* y);

/// gx = gy · s, which may alias gy, and gs[n,c] = Σ over p of gy · x. Overwrites.
template <class T>
void scale_channels_backward(CpuQueue&, std::int64_t n, std::int64_t pixels, std::int64_t channels,
                             const T* x, const Wider<T>* s, const T* gy, T* gx, Wider<T>* gs);
template <class T>
void scale_channels_backward(CudaQueue&, std::int64_t n, std::int64_t pixels, std::int64_t channels,
                             const T* x, const Wider<T>* s, const T* gy, T* gx, Wider<T>* gs);

}  // namespace ssn::kernels
