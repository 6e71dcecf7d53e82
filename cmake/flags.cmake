# Compiler flags that all of Gradwire shares. Sanitizers and hardening are global: they must agree in every object.

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()

set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g1")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1 -fno-omit-frame-pointer")  # what the sanitizers want

# Position-independent everything, and programs that are linked so; calls inside a library may still be inlined.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fno-semantic-interposition>")
include(CheckPIESupported)
check_pie_supported(LANGUAGES CXX)

# A mistake in memory should stop the process, not become someone's way in.
function(gradwire_cxx)
  foreach(flag ${ARGN})
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${flag}>")
  endforeach()
endfunction()
add_link_options(-Wl,-z,relro,-z,now -Wl,-z,noexecstack)
gradwire_cxx(-fstack-protector-strong -fstack-clash-protection)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  gradwire_cxx(-fcf-protection)
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  gradwire_cxx(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
endif()
add_compile_definitions("$<$<COMPILE_LANGUAGE:CXX>:_GLIBCXX_ASSERTIONS>")

if(GRADWIRE_SANITIZE STREQUAL "address")
  # KJ's own objects are not instrumented, so its headers' casts have no type to look at.
  gradwire_cxx(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-sanitize=vptr)
  add_link_options(-fsanitize=address,undefined)
  add_compile_definitions(GRADWIRE_ASAN=1)
elseif(GRADWIRE_SANITIZE STREQUAL "thread")
  # GCC warns that TSan does not model atomic_thread_fence, which Boost and KJ headers use.
  gradwire_cxx(-fsanitize=thread -Wno-tsan)
  add_link_options(-fsanitize=thread)
  add_compile_definitions(GRADWIRE_TSAN=1)
elseif(GRADWIRE_SANITIZE)
  message(FATAL_ERROR "GRADWIRE_SANITIZE is '${GRADWIRE_SANITIZE}'; it can be address, thread or empty")
endif()
if(GRADWIRE_COVERAGE)
  gradwire_cxx(--coverage -fprofile-update=atomic)
  add_link_options(--coverage)
endif()
if(GRADWIRE_BASELINE)
  add_compile_definitions(HWY_COMPILE_ONLY_STATIC=1)
endif()

# For our own sources only; what is generated or installed is not ours to mend.
add_library(gradwire_flags INTERFACE)
target_include_directories(gradwire_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(gradwire_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Werror>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND GRADWIRE_SANITIZE)
  # With checks between them GCC no longer sees that kj::Maybe and std::optional are read only when set.
  target_compile_options(gradwire_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>")
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlaps in std::string's operator+ that are not there (its bug 105651).
  target_compile_options(gradwire_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>")
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  # GCC 14 sees accesses past the six elements inside a Shape where its size has been compared before.
  target_compile_options(gradwire_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overflow;-Wno-array-bounds>")
endif()
