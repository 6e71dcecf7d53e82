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

/// 2 ULP.
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

struct atan2 {
  static constexpr const char* op = "atan2";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V a, V b) const { return math::atan2(a, b); }
};

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

using curves = list<exp, exp2, expm1, log, log2, log10, log1p, sin, cos, tanh, sigmoid, pow, atan2, hypot, logaddexp>;
