# Libraries outside the project, all from the distribution's packages (tools/install_packages names them).
find_package(fmt REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
if(SSN_MPI)
  find_package(MPI REQUIRED COMPONENTS C)
  # mpi.h would declare the C++ bindings, which need a library of their own.
  set_property(TARGET MPI::MPI_C APPEND PROPERTY INTERFACE_COMPILE_DEFINITIONS OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
endif()
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
elseif(HDF5_USE_STATIC_LIBRARIES)  # then its target does not say what it needs
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
