#if GRADWIRE_BLAS
#include <catch2/catch_test_macros.hpp>
#include <cblas.h>

// The pthread build has the same soname, and its threads fight with the OpenMP teams of the engine.
TEST_CASE("the OpenBLAS that is loaded is the OpenMP build") { CHECK(openblas_get_parallel() == OPENBLAS_OPENMP); }
#endif
