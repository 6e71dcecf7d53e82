// Formulas of one operand, each once. Functor files include nothing and have no guard: whoever compiles kernels includes
// them inside the namespace of its target (cpu/*.cpp, cuda/*.cu). A SIMD target's functions must be defined under its
// compiler flags and carry GW_FN, its attribute: a shared definition is not inlined, and at -O0 takes its vectors from
// the wrong registers.
//
// V is float, double, Int<T> or a SIMD vector; math:: works on all of them. NaN goes in, NaN comes out.

struct neg {
  static constexpr const char* op = "neg";
  static constexpr Domain on = Domain::numbers;
  template <class V>
  GW_FN V operator()(V x) const {
    return -x;
  }
};

/// 2 ULP.
struct exp {
  static constexpr const char* op = "exp";
  static constexpr Domain on = Domain::floats;
  template <class V>
  GW_FN V operator()(V x) const {
    return math::exp(x);
  }
};

/// 2 ULP.
struct log {
  static constexpr const char* op = "log";
  static constexpr Domain on = Domain::floats;
  template <class V>
  GW_FN V operator()(V x) const {
    return math::log(x);
  }
};

struct relu {
  static constexpr const char* op = "relu";
  static constexpr Domain on = Domain::numbers;
  template <class V>
  GW_FN V operator()(V x) const {
    return math::select(x < V(0), V(0), x);
  }
};

using unary = list<neg, exp, log, relu>;
