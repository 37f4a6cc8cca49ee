#pragma once
// SSN_HD marks functions that run on the host and on the device. Including this needs no CUDA header.
#ifdef __CUDACC__
#define SSN_HD __host__ __device__
#else
#define SSN_HD
#endif

// SSN_CLONES marks hot functions that are compiled a second time for AVX-512; the program chooses as it
// starts.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#define SSN_CLONES __attribute__((target_clones("arch=x86-64-v4", "default")))
#else
#define SSN_CLONES
#endif
