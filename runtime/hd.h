#pragma once
// SSN_HD marks functions that run on the host and on the device. Including this needs no CUDA header.
#ifdef __CUDACC__
#define SSN_HD __host__ __device__
#else
#define SSN_HD
#endif
