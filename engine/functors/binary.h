// Arithmetic of two operands; see unary.h for how this file is used.

struct add {
  static constexpr const char* op = "add";
  static constexpr Domain on = Domain::all;
  template <class V> GW_FN V operator()(V a, V b) const { return a + b; }
};

/// a + alpha * b, rounded twice.
struct add_scaled {
  static constexpr const char* op = "add_scaled";
  static constexpr Domain on = Domain::all;
  Scalar alpha;
  template <class V> GW_FN V operator()(V a, V b) const { return a + math::scalar<V>(alpha) * b; }
};

struct sub {
  static constexpr const char* op = "sub";
  static constexpr Domain on = Domain::numbers;
  template <class V> GW_FN V operator()(V a, V b) const { return a - b; }
};

struct mul {
  static constexpr const char* op = "mul";
  static constexpr Domain on = Domain::all;
  template <class V> GW_FN V operator()(V a, V b) const { return a * b; }
};

struct div {
  static constexpr const char* op = "div";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V a, V b) const { return a / b; }
};

struct div_floor {
  static constexpr const char* op = "div_floor";
  static constexpr Domain on = Domain::numbers;
  template <class V> GW_FN V operator()(V a, V b) const { return math::div_floor(a, b); }
};

struct div_trunc {
  static constexpr const char* op = "div_trunc";
  static constexpr Domain on = Domain::numbers;
  template <class V> GW_FN V operator()(V a, V b) const { return math::div_trunc(a, b); }
};

/// NaN in either operand wins.
struct maximum {
  static constexpr const char* op = "maximum";
  static constexpr Domain on = Domain::all;
  template <class V> GW_FN V operator()(V a, V b) const { return math::select(a != a, a, math::select(a > b, a, b)); }
};

struct minimum {
  static constexpr const char* op = "minimum";
  static constexpr Domain on = Domain::all;
  template <class V> GW_FN V operator()(V a, V b) const { return math::select(a != a, a, math::select(a < b, a, b)); }
};

/// The gradient of relu, told by its result.
struct threshold_backward {
  static constexpr const char* op = "threshold_backward";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V grad, V result) const {
    return math::select(result > V(0), grad, math::select(result != result, grad, V(0)));
  }
};

/// What div_trunc leaves: it has the sign of a.
struct fmod {
  static constexpr const char* op = "fmod";
  static constexpr Domain on = Domain::numbers;
  template <class V> GW_FN V operator()(V a, V b) const { return math::fmod(a, b); }
};

/// What div_floor leaves: it has the sign of b.
struct remainder {
  static constexpr const char* op = "remainder";
  static constexpr Domain on = Domain::numbers;
  template <class V> GW_FN V operator()(V a, V b) const { return math::remainder(a, b); }
};

/// A number wins over NaN.
struct fmax {
  static constexpr const char* op = "fmax";
  static constexpr Domain on = Domain::all;
  template <class V> GW_FN V operator()(V a, V b) const { return math::select(b != b, a, math::select(a > b, a, b)); }
};

/// A number wins over NaN.
struct fmin {
  static constexpr const char* op = "fmin";
  static constexpr Domain on = Domain::all;
  template <class V> GW_FN V operator()(V a, V b) const { return math::select(b != b, a, math::select(a < b, a, b)); }
};

using binary = list<add, add_scaled, sub, mul, div, div_floor, div_trunc, maximum, minimum, threshold_backward, fmod,
                    remainder, fmax, fmin>;
