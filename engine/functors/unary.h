// Formulas of one operand, each once. Functor files include nothing and have no guard: whoever compiles kernels
// includes them inside the namespace of its target (cpu/*.cpp, cuda/*.cu). A SIMD target's functions must be defined
// under its compiler flags and carry GW_FN, its attribute: a shared definition is not inlined, and at -O0 takes its
// vectors from the wrong registers.
//
// V is float, double, Int<T> or a SIMD vector; math:: works on all of them. NaN goes in, NaN comes out.

struct neg {
  static constexpr const char* op = "neg";
  static constexpr Domain on = Domain::numbers;
  template <class V> GW_FN V operator()(V x) const { return -x; }
};

struct abs {
  static constexpr const char* op = "abs";
  static constexpr Domain on = Domain::numbers;
  template <class V> GW_FN V operator()(V x) const { return math::abs(x); }
};

/// 0 for NaN, as PyTorch has it.
struct sign {
  static constexpr const char* op = "sign";
  static constexpr Domain on = Domain::all;
  template <class V> GW_FN V operator()(V x) const {
    return math::select(x > V(0), V(1), math::select(x < V(0), V(-1), V(0)));
  }
};

struct square {
  static constexpr const char* op = "square";
  static constexpr Domain on = Domain::numbers;
  template <class V> GW_FN V operator()(V x) const { return x * x; }
};

struct cube {
  static constexpr const char* op = "cube";
  static constexpr Domain on = Domain::numbers;
  template <class V> GW_FN V operator()(V x) const { return x * x * x; }
};

struct reciprocal {
  static constexpr const char* op = "reciprocal";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V x) const { return V(1) / x; }
};

struct sqrt {
  static constexpr const char* op = "sqrt";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V x) const { return math::sqrt(x); }
};

struct rsqrt {
  static constexpr const char* op = "rsqrt";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V x) const { return V(1) / math::sqrt(x); }
};

struct floor {
  static constexpr const char* op = "floor";
  static constexpr Domain on = Domain::numbers;
  template <class V> GW_FN V operator()(V x) const { return math::floor(x); }
};

struct ceil {
  static constexpr const char* op = "ceil";
  static constexpr Domain on = Domain::numbers;
  template <class V> GW_FN V operator()(V x) const { return math::ceil(x); }
};

struct trunc {
  static constexpr const char* op = "trunc";
  static constexpr Domain on = Domain::numbers;
  template <class V> GW_FN V operator()(V x) const { return math::trunc(x); }
};

/// Halves to even.
struct round {
  static constexpr const char* op = "round";
  static constexpr Domain on = Domain::numbers;
  template <class V> GW_FN V operator()(V x) const { return math::round(x); }
};

/// round(x * scale) / scale
struct round_up_to {
  static constexpr const char* op = "round_up_to";
  static constexpr Domain on = Domain::floats;
  Scalar scale;
  template <class V> GW_FN V operator()(V x) const {
    return math::round(x * math::scalar<V>(scale)) / math::scalar<V>(scale);
  }
};

/// round(x / scale) * scale
struct round_down_to {
  static constexpr const char* op = "round_down_to";
  static constexpr Domain on = Domain::floats;
  Scalar scale;
  template <class V> GW_FN V operator()(V x) const {
    return math::round(x / math::scalar<V>(scale)) * math::scalar<V>(scale);
  }
};

struct frac {
  static constexpr const char* op = "frac";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V x) const { return x - math::trunc(x); }
};

struct relu {
  static constexpr const char* op = "relu";
  static constexpr Domain on = Domain::numbers;
  template <class V> GW_FN V operator()(V x) const { return math::select(x < V(0), V(0), x); }
};

using unary = list<neg, abs, sign, square, cube, reciprocal, sqrt, rsqrt, floor, ceil, trunc, round, round_up_to,
                   round_down_to, frac, relu>;
