# Headers of the libraries that kernels/cuda and runtime/cuda call where there is a GPU. No program is linked to these libraries:
# runtime/cuda/late loads them. With SSN_CUDA=host, doubles in tests/cuda_on_host stand in their place.
set(SSN_CUDA_HEADERS "")
if(SSN_HAS_CUDA AND NOT SSN_CUDA_ON_HOST)
  find_path(CUBLASLT_INCLUDE_DIR cublasLt.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_path(CUDNN_INCLUDE_DIR cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS})  # only cuDNN 9 has it
  if(CUBLASLT_INCLUDE_DIR AND CUDNN_INCLUDE_DIR)
    list(APPEND SSN_CUDA_HEADERS ${CUBLASLT_INCLUDE_DIR} ${CUDNN_INCLUDE_DIR})
  elseif(SSN_CUDA STREQUAL "on")
    message(FATAL_ERROR "SSN_CUDA=on needs the headers of cuBLASLt and cuDNN 9 beside nvcc: install CUDA's development packages and cuDNN's, set CUDNN_INCLUDE_DIR, or SSN_CUDA=off")
  else()
    set(SSN_HAS_CUDA false)
    message(STATUS "CUDA: false after all: the headers of cuBLASLt or cuDNN 9 were not found (CUDNN_INCLUDE_DIR)")
  endif()
endif()

# Where there are GPUs, these sum over the ranks by NCCL; in builds without its header, through the processors' memory.
set(SSN_HAS_NCCL false)
if(NOT SSN_MPI)
  # there is one rank
elseif(SSN_CUDA_ON_HOST)
  set(SSN_HAS_NCCL true)  # its double
elseif(SSN_HAS_CUDA)
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  if(NCCL_INCLUDE_DIR)
    set(SSN_HAS_NCCL true)
    list(APPEND SSN_CUDA_HEADERS ${NCCL_INCLUDE_DIR})
  endif()
  message(STATUS "NCCL: ${SSN_HAS_NCCL}")
endif()
