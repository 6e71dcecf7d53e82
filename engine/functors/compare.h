// Comparisons, which return V's mask (stored as bool), and what a mask is for; see unary.h for how this file is used.

struct eq {
  static constexpr const char* op = "eq";
  static constexpr Domain on = Domain::all;
  template <class V> GW_FN auto operator()(V a, V b) const { return a == b; }
};

struct ne {
  static constexpr const char* op = "ne";
  static constexpr Domain on = Domain::all;
  template <class V> GW_FN auto operator()(V a, V b) const { return a != b; }
};

struct lt {
  static constexpr const char* op = "lt";
  static constexpr Domain on = Domain::all;
  template <class V> GW_FN auto operator()(V a, V b) const { return a < b; }
};

struct le {
  static constexpr const char* op = "le";
  static constexpr Domain on = Domain::all;
  template <class V> GW_FN auto operator()(V a, V b) const { return a <= b; }
};

struct gt {
  static constexpr const char* op = "gt";
  static constexpr Domain on = Domain::all;
  template <class V> GW_FN auto operator()(V a, V b) const { return a > b; }
};

struct ge {
  static constexpr const char* op = "ge";
  static constexpr Domain on = Domain::all;
  template <class V> GW_FN auto operator()(V a, V b) const { return a >= b; }
};

/// The first operand is the mask.
struct where {
  static constexpr const char* op = "where";
  static constexpr Domain on = Domain::all;
  template <class M, class V> GW_FN V operator()(M c, V a, V b) const { return math::select(c, a, b); }
};

using compare = list<eq, ne, lt, le, gt, ge, where>;
