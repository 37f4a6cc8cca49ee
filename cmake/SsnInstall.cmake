# cmake --install, and find_package(Shapeshifter) in other projects: the target Shapeshifter::shapeshifter has everything.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

add_library(shapeshifter INTERFACE)
target_link_libraries(shapeshifter INTERFACE shapeshifter_ssn shapeshifter_datasets)
add_library(Shapeshifter::shapeshifter ALIAS shapeshifter)

set(folders runtime kernels autograd layers ssn datasets)
set(targets shapeshifter)
foreach(folder ${folders})
  list(APPEND targets shapeshifter_${folder})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/shapeshifter/${folder}
          FILES_MATCHING PATTERN "*.h" PATTERN "cpu" EXCLUDE PATTERN "cuda" EXCLUDE)
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/generated/runtime/config.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/shapeshifter/runtime)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/datasets/digits DESTINATION ${CMAKE_INSTALL_DATADIR}/shapeshifter)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/ssn/mappings DESTINATION ${CMAKE_INSTALL_DATADIR}/shapeshifter)
install(TARGETS ssn RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

if(NOT SSN_CUDA_ON_HOST)  # such a build is for tests
  install(TARGETS ${targets} EXPORT ShapeshifterTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Shapeshifter)
  install(EXPORT ShapeshifterTargets NAMESPACE Shapeshifter:: DESTINATION ${package})
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/ShapeshifterConfig.cmake.in ${PROJECT_BINARY_DIR}/ShapeshifterConfig.cmake
                                INSTALL_DESTINATION ${package})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/ShapeshifterConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/ShapeshifterConfig.cmake ${PROJECT_BINARY_DIR}/ShapeshifterConfigVersion.cmake
                ${PROJECT_SOURCE_DIR}/cmake/SsnDependencies.cmake DESTINATION ${package})
endif()
