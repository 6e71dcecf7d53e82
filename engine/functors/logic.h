// Truth, which is what is not 0 (NaN is not), and bits; see unary.h for how this file is used.

struct logical_and {
  static constexpr const char* op = "logical_and";
  static constexpr Domain on = Domain::all;
  template <class V> GW_FN auto operator()(V a, V b) const -> decltype(a == b) {
    return math::both(a != V(0), b != V(0));
  }
};

struct logical_or {
  static constexpr const char* op = "logical_or";
  static constexpr Domain on = Domain::all;
  template <class V> GW_FN auto operator()(V a, V b) const -> decltype(a == b) {
    return math::either(a != V(0), b != V(0));
  }
};

struct logical_xor {
  static constexpr const char* op = "logical_xor";
  static constexpr Domain on = Domain::all;
  template <class V> GW_FN auto operator()(V a, V b) const -> decltype(a == b) {
    return math::differ(a != V(0), b != V(0));
  }
};

struct logical_not {
  static constexpr const char* op = "logical_not";
  static constexpr Domain on = Domain::all;
  template <class V> GW_FN auto operator()(V x) const -> decltype(x == x) { return x == V(0); }
};

struct isnan {
  static constexpr const char* op = "isnan";
  static constexpr Domain on = Domain::all;
  template <class V> GW_FN auto operator()(V x) const -> decltype(x == x) { return x != x; }
};

struct isinf {
  static constexpr const char* op = "isinf";
  static constexpr Domain on = Domain::all;
  template <class V> GW_FN auto operator()(V x) const -> decltype(x == x) { return math::both(x == x, x - x != V(0)); }
};

struct isfinite {
  static constexpr const char* op = "isfinite";
  static constexpr Domain on = Domain::all;
  template <class V> GW_FN auto operator()(V x) const -> decltype(x == x) { return x - x == V(0); }
};

struct bitwise_and {
  static constexpr const char* op = "bitwise_and";
  static constexpr Domain on = Domain::whole;
  template <class V> GW_FN V operator()(V a, V b) const { return math::bit_and(a, b); }
};

struct bitwise_or {
  static constexpr const char* op = "bitwise_or";
  static constexpr Domain on = Domain::whole;
  template <class V> GW_FN V operator()(V a, V b) const { return math::bit_or(a, b); }
};

struct bitwise_xor {
  static constexpr const char* op = "bitwise_xor";
  static constexpr Domain on = Domain::whole;
  template <class V> GW_FN V operator()(V a, V b) const { return math::bit_xor(a, b); }
};

struct bitwise_not {
  static constexpr const char* op = "bitwise_not";
  static constexpr Domain on = Domain::whole;
  template <class V> GW_FN V operator()(V x) const { return math::bit_not(x); }
};

using logic = list<logical_and, logical_or, logical_xor, logical_not, isnan, isinf, isfinite, bitwise_and, bitwise_or,
                   bitwise_xor, bitwise_not>;
