# Libraries outside the project, all from the distribution's packages (tools/install_packages names them).
find_package(fmt REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(MPI REQUIRED COMPONENTS C)
# mpi.h would declare the C++ bindings, which need a library of their own.
set_property(TARGET MPI::MPI_C APPEND PROPERTY INTERFACE_COMPILE_DEFINITIONS OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
find_package(ICU REQUIRED COMPONENTS uc)
find_package(JPEG REQUIRED)  # libjpeg-turbo: it decodes parts of an image
find_package(PNG REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(HDF5 REQUIRED COMPONENTS C)
find_package(tomlplusplus REQUIRED)

if(NOT TARGET hdf5::hdf5)
  add_library(hdf5::hdf5 INTERFACE IMPORTED)
  target_include_directories(hdf5::hdf5 INTERFACE ${HDF5_C_INCLUDE_DIRS})
  target_link_libraries(hdf5::hdf5 INTERFACE ${HDF5_C_LIBRARIES})
endif()

# Not every version of the package has a CMake file.
if(NOT TARGET deflate::deflate)
  find_library(DEFLATE_LIBRARY deflate REQUIRED)
  find_path(DEFLATE_INCLUDE_DIR libdeflate.h REQUIRED)
  add_library(deflate::deflate UNKNOWN IMPORTED)
  set_target_properties(deflate::deflate PROPERTIES IMPORTED_LOCATION ${DEFLATE_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${DEFLATE_INCLUDE_DIR})
endif()

# The package's own CMake file asks for programs of other packages.
if(NOT TARGET zip::zip)
  find_library(ZIP_LIBRARY zip REQUIRED)
  find_path(ZIP_INCLUDE_DIR zip.h REQUIRED)
  add_library(zip::zip UNKNOWN IMPORTED)
  set_target_properties(zip::zip PROPERTIES IMPORTED_LOCATION ${ZIP_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${ZIP_INCLUDE_DIR})
endif()

# The package's own CMake file asks for OpenCL headers that nothing here needs.
if(NOT TARGET dnnl::dnnl)
  find_library(DNNL_LIBRARY dnnl REQUIRED)
  find_path(DNNL_INCLUDE_DIR dnnl.hpp REQUIRED)
  add_library(dnnl::dnnl UNKNOWN IMPORTED)
  set_target_properties(dnnl::dnnl PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR})
endif()

# What kernels/cuda calls where there is a GPU; with SSN_CUDA=host, doubles in tests/cuda_on_host.
set(SSN_CUDA_LIBRARIES "")
if(SSN_HAS_CUDA AND NOT SSN_CUDA_ON_HOST)
  find_library(CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
  find_path(CUDNN_INCLUDE_DIR cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS})  # only cuDNN 9 has it
  if(TARGET CUDA::cublasLt AND CUDNN_LIBRARY AND CUDNN_INCLUDE_DIR)
    if(NOT TARGET CUDNN::cudnn)
      add_library(CUDNN::cudnn UNKNOWN IMPORTED)
      set_target_properties(CUDNN::cudnn PROPERTIES IMPORTED_LOCATION ${CUDNN_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${CUDNN_INCLUDE_DIR})
    endif()
    list(APPEND SSN_CUDA_LIBRARIES CUDA::cublasLt CUDNN::cudnn)
  elseif(SSN_CUDA STREQUAL "on")
    message(FATAL_ERROR "SSN_CUDA=on needs cuBLASLt and cuDNN 9 beside nvcc: install CUDA's development packages and cuDNN's, set CUDNN_LIBRARY and CUDNN_INCLUDE_DIR, or SSN_CUDA=off")
  else()
    set(SSN_HAS_CUDA false)
    message(STATUS "CUDA: false after all: cuBLASLt or cuDNN 9 was not found (CUDNN_LIBRARY, CUDNN_INCLUDE_DIR)")
  endif()
endif()

# Where there are GPUs, these sum over the ranks by NCCL; without it, through the processors' memory.
set(SSN_HAS_NCCL false)
set(SSN_NCCL "")
if(SSN_CUDA_ON_HOST)
  set(SSN_HAS_NCCL true)  # its double
elseif(SSN_HAS_CUDA)
  find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  if(NCCL_LIBRARY AND NCCL_INCLUDE_DIR)
    set(SSN_HAS_NCCL true)
    set(SSN_NCCL NCCL::nccl)
    if(NOT TARGET NCCL::nccl)
      add_library(NCCL::nccl UNKNOWN IMPORTED)
      set_target_properties(NCCL::nccl PROPERTIES IMPORTED_LOCATION ${NCCL_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
    endif()
  endif()
  message(STATUS "NCCL: ${SSN_HAS_NCCL}")
endif()
