// Three operands of one kind; see unary.h for how this file is used.

/// x + value * a * b
struct addcmul {
  static constexpr const char* op = "addcmul";
  static constexpr Domain on = Domain::numbers;
  Scalar value;
  template <class V> GW_FN V operator()(V x, V a, V b) const { return x + math::scalar<V>(value) * a * b; }
};

/// x + value * a / b
struct addcdiv {
  static constexpr const char* op = "addcdiv";
  static constexpr Domain on = Domain::floats;
  Scalar value;
  template <class V> GW_FN V operator()(V x, V a, V b) const { return x + math::scalar<V>(value) * a / b; }
};

/// a + w * (b - a)
struct lerp {
  static constexpr const char* op = "lerp";
  static constexpr Domain on = Domain::floats;
  template <class V> GW_FN V operator()(V a, V b, V w) const {
    const V d = b - a;
    return math::select(math::abs(w) < V(0.5), a + w * d, b - d * (V(1) - w));  // exact at both ends
  }
};

/// min(max(x, low), high); NaN in any of them wins.
struct clamp {
  static constexpr const char* op = "clamp";
  static constexpr Domain on = Domain::numbers;
  template <class V> GW_FN V operator()(V x, V low, V high) const {
    const V y = math::select(x < low, low, x);
    const V z = math::select(y > high, high, y);
    return math::select(x != x, x, math::select(low != low, low, math::select(high != high, high, z)));
  }
};

/// The mask comes as 0 and 1.
struct masked_fill {
  static constexpr const char* op = "masked_fill";
  static constexpr Domain on = Domain::all;
  template <class V> GW_FN V operator()(V x, V mask, V value) const { return math::select(mask != V(0), value, x); }
};

using ternary = list<addcmul, addcdiv, lerp, clamp, masked_fill>;
