#pragma once

#include <cstdint>

#include "schema/dtype.h"
#include "schema/op_call.h"

// Numbers of the naive interpreter: what a value is, how far the engine's may be from it, and how it moves with the
// leaves. Written without a look at the engine.

namespace gradwire::property {

/// One element. Floating ones use v, e and d; integers and bool use i.
struct Num {
  double v = 0;   // the value
  double e = 0;   // the engine's value lies within [v - e, v + e]; 0: it is v
  double d = 0;   // the derivative along the direction that the leaves move in
  int64_t i = 0;  // bool as 0 or 1
};

/// Thrown where the bounds do not decide what comes out, or values leave the range in which bounds make sense.
struct Redraw {
  const char* why;
};

/// v rounded to nearest, ties to even, as dtype t stores it; halves go through float32, in which they are computed.
double round_to(DType t, double v);
/// The relative error of one rounding to the type in which t computes: float32 for halves.
double unit(DType t);
/// That type.
inline DType computed(DType t) { return t == DType::float16 || t == DType::bfloat16 ? DType::float32 : t; }
/// x modulo 2^bits of an integer dtype, with its sign; for bool whether it is not 0.
int64_t wrap(DType t, uint64_t x);

/// A floating result of dtype t: v, computed in float64 from operands that let it be off by e. With e = 0 it is what
/// one correctly rounded operation of the engine gives.
Num real(DType t, double v, double e = 0, double d = 0);
/// An integer or bool result.
inline Num whole(DType t, int64_t i) {
  Num n;
  n.i = wrap(t, static_cast<uint64_t>(i));
  return n;
}
/// 0 times infinity is 0 here: a derivative or an error that is not there stays away.
inline double term(double small, double factor) { return small == 0 ? 0 : small * factor; }
/// x seen as another dtype. Throws Redraw where the bound of x does not decide it.
Num convert(const Num& x, DType from, DType to);
Num number(Scalar s, DType to);

/// PyTorch's promotion, from the table of its documentation.
DType promote(DType a, DType b);

/// -1, 0, 1 as a is less than, equal to or greater than b; 2 if either is NaN. Throws Redraw where bounds meet.
int order(const Num& a, const Num& b, DType t);
bool is_nan(const Num& a, DType t);

}  // namespace gradwire::property
