#pragma once

#include <bit>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schema/error.h"
#include "server/engine.h"

namespace gradwire::server {

/// Where arguments come from: the columns of a batch or of a program. Everything in them comes from outside, so every
/// reach is checked here.
struct Columns {
  std::span<const Arg> args;
  std::span<const int64_t> ints;
  std::span<const std::string> texts;
};

/// Turns flat Args into what the engine takes. Resolve is `const engine::Tensor*(const Arg&)` for the value of an
/// entry; it throws no_tensor. Bound values borrow from the entries, the columns, and this object until clear().
template <class Resolve> class ArgReader {
 public:
  ArgReader(Columns columns, Resolve resolve) : columns_(columns), resolve_(std::move(resolve)) {}

  size_t arg = 0, integer = 0;  // where the next argument starts

  void clear() {
    if (grads_.size()) grads_.clear();
    if (lists_.size()) lists_.clear();
    if (floats_.size()) floats_.clear();
    if (indexes_.size()) indexes_.clear();
  }

  engine::Bound read() {
    const Arg& a = next();
    engine::Bound v;
    v.kind = a.kind;
    switch (a.kind) {
      case ArgKind::none:
        break;
      case ArgKind::boolean:
        v.b = a.i != 0;
        break;
      case ArgKind::integer:
        v.i = a.i;
        break;
      case ArgKind::real:
        v.f = a.f;
        break;
      case ArgKind::text: {
        const std::string_view t = text(a.i);
        v.text = t.data(), v.count = static_cast<uint32_t>(t.size());
        break;
      }
      case ArgKind::dtype:
        if (a.i < 0 || a.i >= kDTypes) bad("there is no dtype " + std::to_string(a.i));
        v.dtype = static_cast<DType>(a.i);
        break;
      case ArgKind::tensor: {
        v.tensors = tensor(a);
        if (!v.tensors) v.kind = ArgKind::none;
        break;
      }
      case ArgKind::tensors: {
        need_args(a.count);
        auto& list = lists_.emplace_back();
        list.reserve(a.count);
        for (uint32_t i = 0; i < a.count; ++i) {
          const Arg& e = next();
          if (e.kind == ArgKind::none) {
            list.emplace_back();
          } else if (e.kind == ArgKind::tensor) {
            const engine::Tensor* t = tensor(e);
            list.push_back(t ? *t : engine::Tensor());
          } else {
            bad("a tensor list holds tensors only");
          }
        }
        v.tensors = list.data(), v.count = a.count;
        break;
      }
      case ArgKind::ints:
      case ArgKind::bools:
        v.ints = ints(a.count).data(), v.count = a.count;
        break;
      case ArgKind::floats: {
        const auto bits = ints(a.count);
        auto& list = floats_.emplace_back();
        list.reserve(a.count);
        for (const int64_t b : bits) list.push_back(std::bit_cast<double>(b));
        v.floats = list.data(), v.count = a.count;
        break;
      }
      case ArgKind::index: {
        need_args(a.count);
        auto& items = indexes_.emplace_back();
        items.reserve(a.count);
        for (uint32_t i = 0; i < a.count; ++i) items.push_back(item(next()));
        v.index = items.data(), v.count = a.count;
        break;
      }
      default:
        bad("an argument of kind " + std::to_string(static_cast<int>(a.kind)) + " stands outside of an index");
    }
    return v;
  }

  /// Passes over an argument without looking at entries; its value if it is an integer.
  std::optional<int64_t> skip() {
    const Arg& a = next();
    switch (a.kind) {
      case ArgKind::integer:
        return a.i;
      case ArgKind::tensors:
        need_args(a.count);
        arg += a.count;
        break;
      case ArgKind::ints:
      case ArgKind::bools:
      case ArgKind::floats:
        ints(a.count);
        break;
      case ArgKind::index:
        need_args(a.count);
        for (uint32_t i = 0; i < a.count; ++i) {
          const Arg& item = next();
          if (item.kind == ArgKind::slice) ints(3);
          if (item.kind == ArgKind::int_array || item.kind == ArgKind::bool_array) array(item);
        }
        break;
      default:
        break;
    }
    return std::nullopt;
  }

 private:
  [[noreturn]] static void bad(std::string what) { throw Error(Code::bad_program, std::move(what)); }

  const Arg& next() {
    if (arg >= columns_.args.size()) bad("the arguments end in the middle of a call");
    return columns_.args[arg++];
  }
  /// Before anything is reserved for a count from outside.
  void need_args(uint64_t n) const {
    if (n > columns_.args.size() - arg) bad("a list is longer than the arguments that are left");
  }
  std::span<const int64_t> ints(uint64_t n) {
    if (n > columns_.ints.size() - integer) bad("a list is longer than the integers that are left");
    const auto s = columns_.ints.subspan(integer, n);
    integer += n;
    return s;
  }
  std::string_view text(int64_t i) const {
    if (i < 0 || static_cast<uint64_t>(i) >= columns_.texts.size()) bad("there is no text " + std::to_string(i));
    return columns_.texts[static_cast<size_t>(i)];
  }
  /// Null for a gradient that is not there.
  const engine::Tensor* tensor(const Arg& a) {
    const engine::Tensor* t = resolve_(a);
    if (a.part == Part::value) return t;
    if (a.part != Part::grad) bad("an entry has no part " + std::to_string(static_cast<int>(a.part)));
    engine::Tensor g = engine::grad_of(*t);
    return g ? &grads_.emplace_back(std::move(g)) : nullptr;
  }

  std::pair<std::span<const int64_t>, std::span<const int64_t>> array(const Arg& a) {
    if (a.count > kMaxDims) bad("an index array has too many dimensions");
    const auto sizes = ints(a.count);
    uint64_t n = 1;
    for (const int64_t s : sizes) {
      if (s < 0 || __builtin_mul_overflow(n, static_cast<uint64_t>(s), &n))
        bad("an index array has an impossible size");
    }
    return {sizes, ints(n)};
  }

  using Item = IndexItem<engine::Tensor>;
  Item item(const Arg& a) {
    Item x;
    x.kind = a.kind;
    switch (a.kind) {
      case ArgKind::none:
      case ArgKind::ellipsis:
        break;
      case ArgKind::integer:
        x.integer = a.i;
        break;
      case ArgKind::boolean:
        x.integer = a.i != 0;
        break;
      case ArgKind::slice: {
        const auto v = ints(3);
        if (a.count & 1) x.slice.start = v[0];
        if (a.count & 2) x.slice.stop = v[1];
        if (a.count & 4) x.slice.step = v[2];
        break;
      }
      case ArgKind::int_array:
      case ArgKind::bool_array: {
        const auto [sizes, values] = array(a);
        x.sizes = Shape(sizes);
        x.values.assign(values.begin(), values.end());
        break;
      }
      case ArgKind::tensor: {
        const engine::Tensor* t = tensor(a);
        if (!t) bad("an index is a gradient that does not exist");
        x.tensor = *t;
        break;
      }
      default:
        bad("an index cannot hold an argument of kind " + std::to_string(static_cast<int>(a.kind)));
    }
    return x;
  }

  Columns columns_;
  Resolve resolve_;
  std::deque<engine::Tensor> grads_;
  std::deque<std::vector<engine::Tensor>> lists_;
  std::deque<std::vector<double>> floats_;
  std::deque<std::vector<IndexItem<engine::Tensor>>> indexes_;
};

}  // namespace gradwire::server
