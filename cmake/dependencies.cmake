# Everything that is not ours, found once. Debian 12's and Debian 13's versions are both accepted.

# deploy/install-deps.sh unpacks Boost here where the system's own, older Boost must stay.
list(PREPEND CMAKE_PREFIX_PATH ${PROJECT_SOURCE_DIR}/build/deps/usr)

find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(spdlog REQUIRED)
find_package(CapnProto REQUIRED)
find_package(Boost 1.81 REQUIRED COMPONENTS json url)
find_package(CLI11 REQUIRED)
find_package(prometheus-cpp REQUIRED)

# gloo: the collectives of a group's data plane. Its CMake package names what it was built with, not what it needs.
find_library(GLOO gloo REQUIRED)
find_path(GLOO_INCLUDE gloo/allreduce.h REQUIRED)
add_library(gloo INTERFACE)
target_include_directories(gloo SYSTEM INTERFACE ${GLOO_INCLUDE})
target_link_libraries(gloo INTERFACE ${GLOO})

# teams: several threads in one kernel
add_library(teams INTERFACE)
if(GRADWIRE_OPENMP)
  find_package(OpenMP REQUIRED)
  target_link_libraries(teams INTERFACE OpenMP::OpenMP_CXX)
else()
  target_compile_options(teams INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-fopenmp-simd;-Wno-unknown-pragmas;-Wno-unused>")
endif()

# numbers: what the engine computes with
add_library(numbers INTERFACE)
find_library(HWY hwy REQUIRED)
target_link_libraries(numbers INTERFACE teams ${HWY})
if(GRADWIRE_BLAS)
  # OpenBLAS comes in an OpenMP and a pthread build with one soname. The pthread build collapses beside our own OpenMP
  # teams, and other packages bring it, so neither the linker nor the loader may choose: the library is named by path,
  # and the programs carry an RPATH (not a RUNPATH: that one gives way to LD_LIBRARY_PATH) that finds it first.
  find_library(OPENBLAS openblas REQUIRED NO_DEFAULT_PATH
    PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp /usr/lib/openblas-openmp)
  find_path(CBLAS_INCLUDE cblas.h REQUIRED HINTS
    /usr/include/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp /usr/include/${CMAKE_LIBRARY_ARCHITECTURE})
  add_library(openblas SHARED IMPORTED)
  set_target_properties(openblas PROPERTIES IMPORTED_LOCATION ${OPENBLAS} INTERFACE_INCLUDE_DIRECTORIES ${CBLAS_INCLUDE})
  find_library(DNNL dnnl REQUIRED)  # its CMake package asks for OpenCL's headers
  target_link_libraries(numbers INTERFACE openblas ${DNNL})
  target_compile_definitions(numbers INTERFACE GRADWIRE_BLAS=1)
  add_link_options(-Wl,--disable-new-dtags)
  set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
endif()

# CUDA: one architecture is enough, a newer GPU translates the PTX.
set(gradwire_cuda OFF)
set(gradwire_nccl OFF)  # groups on GPUs: where NCCL is found too
if(NOT GRADWIRE_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 90)
    endif()
    enable_language(CUDA)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # CMake 3.25 does not know that nvcc 13 has it
    set(CMAKE_CUDA_STANDARD 20)
    find_package(CUDAToolkit)
    if(TARGET CUDA::cublas AND TARGET CUDA::cudart_static)
      set(gradwire_cuda ON)
    endif()
    # cuDNN is optional: without it convolutions are loops of our own.
    find_path(CUDNN_INCLUDE cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    find_library(CUDNN cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
    if(CUDNN_INCLUDE AND CUDNN)
      set(gradwire_cudnn ON)
    endif()
  endif()
  if(gradwire_cuda)
    find_path(NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    find_library(NCCL nccl HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_TARGET_DIR}/lib)
    if(NCCL_INCLUDE AND NCCL)
      set(gradwire_nccl ON)
      add_library(nccl INTERFACE)
      target_include_directories(nccl SYSTEM INTERFACE ${NCCL_INCLUDE})
      target_link_libraries(nccl INTERFACE ${NCCL})
    endif()
    message(STATUS "CUDA back end: yes, for architecture ${CMAKE_CUDA_ARCHITECTURES}; NCCL: ${gradwire_nccl}")
  elseif(GRADWIRE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "GRADWIRE_CUDA is ON, and nvcc with cuBLAS was not found")
  else()
    message(STATUS "CUDA back end: no (nvcc with cuBLAS was not found)")
  endif()
endif()
