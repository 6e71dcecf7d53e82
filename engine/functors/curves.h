// Transcendental functions; see unary.h for how this file is used.

/// 2 ULP.
struct exp {
  static constexpr const char* op = "exp";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V x) const { return math::exp(x); }
};

/// 2 ULP; whole numbers exactly.
struct exp2 {
  static constexpr const char* op = "exp2";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V x) const { return math::exp2(x); }
};

/// 3 ULP.
struct expm1 {
  static constexpr const char* op = "expm1";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V x) const { return math::expm1(x); }
};

/// 2 ULP.
struct log {
  static constexpr const char* op = "log";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V x) const { return math::log(x); }
};

/// 3 ULP; powers of two exactly.
struct log2 {
  static constexpr const char* op = "log2";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V x) const { return math::log2(x); }
};

/// 3 ULP; powers of ten exactly.
struct log10 {
  static constexpr const char* op = "log10";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V x) const { return math::log10(x); }
};

/// 3 ULP.
struct log1p {
  static constexpr const char* op = "log1p";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V x) const { return math::log1p(x); }
};

/// 3 ULP.
struct sin {
  static constexpr const char* op = "sin";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V x) const { return math::sin(x); }
};

/// 3 ULP.
struct cos {
  static constexpr const char* op = "cos";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V x) const { return math::cos(x); }
};

/// 4 ULP.
struct tanh {
  static constexpr const char* op = "tanh";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V x) const { return math::tanh(x); }
};

/// 1 / (1 + exp(-x)); 4 ULP.
struct sigmoid {
  static constexpr const char* op = "sigmoid";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V x) const {
    const V e = math::exp(-math::abs(x));  // never overflows
    return math::select(x < V(0), e, V(1)) / (V(1) + e);
  }
};

struct pow {
  static constexpr const char* op = "pow";
  static constexpr Domain on = Domain::numbers;
  template <class V> GW_FN V operator()(V a, V b) const { return math::pow(a, b); }
};

/// 5 ULP.
struct atan2 {
  static constexpr const char* op = "atan2";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V a, V b) const { return math::atan2(a, b); }
};

/// 2 ULP.
struct hypot {
  static constexpr const char* op = "hypot";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V a, V b) const { return math::hypot(a, b); }
};

/// log(exp(a) + exp(b))
struct logaddexp {
  static constexpr const char* op = "logaddexp";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V a, V b) const {
    const V sum = math::select(a < b, b, a) + math::log1p(math::exp(-math::abs(a - b)));
    return math::select(a == b, a + V(0.69314718055994530942), sum);  // infinities of one sign too
  }
};

/// 7 ULP.
struct tan {
  static constexpr const char* op = "tan";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V x) const { return math::tan(x); }
};

struct asin {
  static constexpr const char* op = "asin";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V x) const { return math::asin(x); }
};

struct acos {
  static constexpr const char* op = "acos";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V x) const { return math::acos(x); }
};

/// 4 ULP.
struct atan {
  static constexpr const char* op = "atan";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V x) const { return math::atan(x); }
};

struct sinh {
  static constexpr const char* op = "sinh";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V x) const { return math::sinh(x); }
};

struct cosh {
  static constexpr const char* op = "cosh";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V x) const { return math::cosh(x); }
};

struct asinh {
  static constexpr const char* op = "asinh";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V x) const { return math::asinh(x); }
};

struct atanh {
  static constexpr const char* op = "atanh";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V x) const { return math::atanh(x); }
};

struct erf {
  static constexpr const char* op = "erf";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V x) const { return math::erf(x); }
};

struct erfc {
  static constexpr const char* op = "erfc";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V x) const { return math::erfc(x); }
};

struct copysign {
  static constexpr const char* op = "copysign";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V a, V b) const { return math::copysign(a, b); }
};

/// a log(b), which is 0 for a = 0 unless b is NaN.
struct xlogy {
  static constexpr const char* op = "xlogy";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V a, V b) const {
    return math::select(b != b, b, math::select(a == V(0), V(0), a * math::log(b)));
  }
};

using curves = list<exp, exp2, expm1, log, log2, log10, log1p, sin, cos, tanh, sigmoid, pow, atan2, hypot, logaddexp,
                    tan, asin, acos, atan, sinh, cosh, asinh, atanh, erf, erfc, copysign, xlogy>;
