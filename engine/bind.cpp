#include <cmath>
#include <limits>

#include "engine/optimizer.h"
#include "engine/registry.h"

namespace gradwire::engine {
namespace {

bool holds_optimizer(const Bound& list) {
  for (const Tensor& t : std::span(list.tensors, list.count)) {
    if (t && optimizer_of(t)) return true;
  }
  return false;
}

const char* kind_name(const Bound& v) {
  switch (v.kind) {
    case ArgKind::none:
      return "NoneType";
    case ArgKind::boolean:
      return "bool";
    case ArgKind::integer:
      return "int";
    case ArgKind::real:
      return "float";
    case ArgKind::text:
      return "str";
    case ArgKind::dtype:
      return "torch.dtype";
    case ArgKind::tensor:
      return optimizer_of(*v.tensors) ? "Optimizer" : "Tensor";
    case ArgKind::tensors:
      return holds_optimizer(v) ? "tuple with an Optimizer" : "tuple of Tensors";
    case ArgKind::ints:
      return "tuple of ints";
    case ArgKind::floats:
      return "tuple of floats";
    case ArgKind::bools:
      return "tuple of bools";
    default:
      return "index";
  }
}

std::string type_name(const Param& p) {
  static constexpr const char* kNames[] = {"Tensor", "Tensor or Number", "Number", "int",       "float",     "bool",
                                           "str",    "torch.dtype",      "device", "Generator", "Optimizer", "index"};
  const char* one = kNames[static_cast<int>(p.type)];
  return p.list && p.type != Type::index ? "tuple of " + std::string(one) + "s" : one;
}

// "NaN" and "Infinity" stand for numbers where JSON has none.
bool number_of(const Bound& v, double& out) {
  const std::string_view text = v.kind == ArgKind::text ? std::string_view(v.text, v.count) : std::string_view();
  if (text == "NaN") return out = std::numeric_limits<double>::quiet_NaN(), true;
  if (text == "Infinity") return out = std::numeric_limits<double>::infinity(), true;
  if (text == "-Infinity") return out = -std::numeric_limits<double>::infinity(), true;
  return false;
}

bool is_empty_list(const Bound& v) {
  return v.count == 0 && (v.kind == ArgKind::ints || v.kind == ArgKind::tensors || v.kind == ArgKind::floats ||
                          v.kind == ArgKind::bools);
}

// Whether v may be the argument of p; changes v to what the row's functions expect.
bool coerce(const Param& p, Bound& v) {
  if (v.kind == ArgKind::none) return p.optional;
  double number;
  if (p.list && p.type != Type::index) {
    if (is_empty_list(v)) {
      v.kind = p.type == Type::tensor ? ArgKind::tensors : p.type == Type::real ? ArgKind::floats : ArgKind::ints;
      return true;
    }
    switch (p.type) {
      case Type::tensor:
        if (v.kind == ArgKind::tensor) {  // one tensor stands for a list of one
          if (optimizer_of(*v.tensors)) return false;
          v.kind = ArgKind::tensors, v.count = 1;
          return true;
        }
        if (v.kind != ArgKind::tensors || holds_optimizer(v)) return false;
        if (!p.element_optional) {
          for (const Tensor& t : std::span(v.tensors, v.count)) {
            if (!t) return false;
          }
        }
        return true;
      case Type::integer:
        return v.kind == ArgKind::integer || (v.kind == ArgKind::ints && (p.list_size == 0 || v.count == 1 ||
                                                                          static_cast<int>(v.count) == p.list_size));
      case Type::real:
        return v.kind == ArgKind::floats || v.kind == ArgKind::ints;
      case Type::boolean:
        return v.kind == ArgKind::bools;
      default:
        return false;
    }
  }
  switch (p.type) {
    case Type::tensor:
    case Type::generator:
      return v.kind == ArgKind::tensor && !optimizer_of(*v.tensors);
    case Type::operand:
      if (v.kind == ArgKind::tensor) return !optimizer_of(*v.tensors);
      [[fallthrough]];
    case Type::scalar:
      if (number_of(v, number)) v = Bound(Scalar(number));
      return v.is_scalar();
    case Type::integer:
      if (v.kind == ArgKind::boolean) v = Bound(Scalar(int64_t{v.b}));
      return v.kind == ArgKind::integer;
    case Type::real:
      if (number_of(v, number)) v = Bound(Scalar(number));
      if (v.kind == ArgKind::integer || v.kind == ArgKind::boolean) v = Bound(Scalar(v.scalar().real()));
      return v.kind == ArgKind::real;
    case Type::boolean:
      return v.kind == ArgKind::boolean;
    case Type::str:
    case Type::device:
      return v.kind == ArgKind::text;
    case Type::dtype:
      if (v.kind == ArgKind::text) {
        const auto t = dtype_from(std::string_view(v.text, v.count));
        if (!t) return false;
        v = Bound(*t);
      }
      return v.kind == ArgKind::dtype;
    case Type::index:
      return v.kind == ArgKind::index || is_empty_list(v);
    case Type::optimizer:
      return v.kind == ArgKind::tensor && optimizer_of(*v.tensors);
  }
  return false;
}

// What an in-place form writes into is a tensor, also where its first parameter may be a number.
bool coerce(const OpRow& row, int k, Bound& v) {
  return coerce(row.sig.params[k], v) && (k > 0 || !row.inplace || v.kind == ArgKind::tensor);
}

// position: counted from 1; 0 for an argument that came by its name.
Error wrong_kind(const std::string& op, const Param& p, const Bound& v, size_t position) {
  std::string text = op + "(): argument '" + p.name + "' ";
  if (position > 0) text += "(position " + std::to_string(position) + ") ";
  text += "must be " + type_name(p) + ", not " + kind_name(v);
  if (v.kind == ArgKind::text) text += " '" + std::string(v.text, std::min<size_t>(v.count, 64)) + "'";
  return Error(Code::bad_argument, text, op);
}

// zeros(2, 3), reshape(x, 2, 3): whether parameter p takes all that is left by position as one list.
bool takes_loose(const OpRow& row, int p) {
  const std::vector<Param>& params = row.sig.params;
  if (!params[p].list || params[p].type != Type::integer || params[p].list_size > 0) return false;
  if (p > 1 || (p == 1 && !row.is_tensor[0])) return false;
  return p + 1 == row.params || params[p + 1].keyword_only;
}

// Why the row does not take these arguments; nothing if it does, and then the call is bound.
std::optional<Error> try_row(const OpRow& row, std::span<const Bound> positional,
                             std::span<const std::pair<std::string_view, Bound>> named, BoundCall& call) {
  const std::string& op = row.name();
  call.id = row.id, call.count = row.params;
  call.gathered.clear(), call.loose.clear();
  bool set[kMaxParams] = {};
  size_t used = 0, at[kMaxParams] = {};
  int p = 0;
  auto is_named = [&](int k) {
    return std::any_of(named.begin(), named.end(), [&](const auto& n) { return n.first == row.sig.params[k].name; });
  };
  for (; used < positional.size(); ++used, ++p) {
    // An index and a text have no positional spelling of their own in JSON: given by name, they leave their place to
    // what follows.
    if (p < row.params && is_named(p) &&
        ((row.sig.params[p].type == Type::index && positional[used].kind != ArgKind::index) ||
         (row.sig.params[p].type == Type::str && positional[used].kind != ArgKind::text)))
      ++p;
    if (p == row.list_at && positional[used].kind == ArgKind::tensor) {
      for (; used < positional.size() && positional[used].kind == ArgKind::tensor; ++used)
        call.gathered.push_back(*positional[used].tensors);
      call.args[p] = Bound(std::span<const Tensor>(call.gathered)), set[p] = true, --used;
      continue;
    }
    if (p == row.params || row.sig.params[p].keyword_only) {
      const auto most =
          std::count_if(row.sig.params.begin(), row.sig.params.end(), [](const Param& q) { return !q.keyword_only; });
      return Error(Code::bad_argument,
                   op + "() takes " + std::to_string(most) + " positional argument" + (most == 1 ? "" : "s") + " but " +
                       std::to_string(positional.size()) + (positional.size() == 1 ? " was" : " were") + " given",
                   op);
    }
    set[p] = true, at[p] = used + 1;
    if (used + 1 < positional.size() && takes_loose(row, p) && positional[used].kind == ArgKind::integer) {
      for (; used < positional.size(); ++used) {
        if (positional[used].kind != ArgKind::integer) {
          return Error(Code::bad_argument,
                       op + "(): argument '" + row.sig.params[p].name +
                           "' must be tuple of ints, but found element of type " + kind_name(positional[used]) +
                           " at pos " + std::to_string(call.loose.size() + 1),
                       op);
        }
        call.loose.push_back(positional[used].i);
      }
      call.args[p] = Bound(std::span<const int64_t>(call.loose));
      break;
    }
    call.args[p] = positional[used];
  }
  for (const auto& [name, value] : named) {
    int k = 0;
    while (k < row.params && row.sig.params[k].name != name) ++k;
    if (k == row.params) {
      return Error(Code::bad_argument,
                   op + "() got an unexpected keyword argument '" + std::string(name.substr(0, 64)) + "'", op);
    }
    if (set[k]) {
      return Error(Code::bad_argument, op + "() got multiple values for argument '" + std::string(name) + "'", op);
    }
    call.args[k] = value, set[k] = true;
  }
  for (int k = 0; k < row.params; ++k) {
    const Param& param = row.sig.params[k];
    if (!set[k]) {
      if (!param.fallback) {
        return Error(Code::bad_argument, op + "() missing 1 required positional arguments: \"" + param.name + "\"", op);
      }
      call.args[k] = row.defaults[k];
    } else if (!coerce(row, k, call.args[k])) {
      return wrong_kind(op, param, call.args[k], at[k]);
    }
  }
  return std::nullopt;
}

}  // namespace

void bind(std::string_view name, std::span<const Bound> positional,
          std::span<const std::pair<std::string_view, Bound>> named, BoundCall& call) {
  std::optional<Error> first;
  for (const OpRow* row : overloads(name)) {
    std::optional<Error> why = try_row(*row, positional, named, call);
    if (!why) return;
    if (!first) first = std::move(why);
  }
  if (!first) {
    throw Error(Code::unknown_operator, "unknown operator '" + std::string(name.substr(0, 64)) + "'",
                std::string(name.substr(0, 64)));
  }
  throw *first;
}

void check(OpId id, std::span<Bound> args) {
  if (id >= catalogue().size()) {
    throw Error(Code::unknown_operator, "unknown operator number " + std::to_string(id));
  }
  const OpRow& row = catalogue()[id];
  if (static_cast<int>(args.size()) > row.params) {
    throw Error(Code::bad_argument,
                row.name() + "() takes " + std::to_string(row.params) + " arguments but " +
                    std::to_string(args.size()) + " were given",
                row.name());
  }
  for (int k = 0; k < row.params; ++k) {
    const Param& param = row.sig.params[k];
    if (k >= static_cast<int>(args.size())) {
      if (!param.fallback)
        throw Error(Code::bad_argument,
                    row.name() + "() missing 1 required positional arguments: \"" + param.name + "\"", row.name());
    } else if (!coerce(row, k, args[k])) {
      throw wrong_kind(row.name(), param, args[k], static_cast<size_t>(k) + 1);
    }
  }
}

}  // namespace gradwire::engine
