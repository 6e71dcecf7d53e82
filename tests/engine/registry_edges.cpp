#include "tests/engine/registry_edges.h"

#include <algorithm>
#include <limits>

#include "engine/apply.h"
#include "engine/autograd.h"
#include "schema/ops.h"
#include "tests/engine/registry_checks.h"

namespace gradwire::engine {

namespace {
using Items = std::vector<IndexItem<Tensor>>;
constexpr double kInf = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max(), kMin = std::numeric_limits<int64_t>::min();
}  // namespace

Bound cook(Context& cx, int recipe, bool grad, const Tensor& own, Store& s) {
  auto one = [&](Tensor t) {
    s.tensors[0] = std::move(t);
    if (grad && is_floating(s.tensors[0].dtype())) {
      require_grad(s.tensors[0]);
      if (s.tensors[0].numel() < 1 << 20) s.tensors[0] = s.tensors[0] * 1;
    }
    return Bound(s.tensors[0]);
  };
  auto filled = [&](Shape shape, double v, DType t) { return one(cx.full(shape, v, t)); };
  auto whole = [&](Shape shape, int64_t v) { return one(cx.full(shape, v, DType::int64)); };
  auto list = [&](size_t n) { return Bound(std::span<const Tensor>(s.tensors).first(n)); };
  auto index = [&](Items items) {
    s.items = std::move(items);
    return Bound(std::span<const IndexItem<Tensor>>(s.items));
  };
  auto array = [](ArgKind kind, Shape sizes, std::vector<int64_t> v) {
    IndexItem<Tensor> item;
    item.kind = kind, item.sizes = std::move(sizes), item.values = std::move(v);
    return item;
  };
  if (recipe < kDTypes) return filled({2, 3}, 1, static_cast<DType>(recipe));
  switch (recipe) {
    case 10:
      return filled({}, 2, DType::float64);
    case 11:
      return filled({0}, 2, DType::float64);
    case 12:
      return filled({0, 3}, 2, DType::float32);
    case 13:
      return filled({3, 0, 2}, 2, DType::float64);
    case 14:
      return filled({1}, 2, DType::float64);
    case 15:
      return filled(Shape(32, 1), 2, DType::float64);
    case 16:
      return filled({2, 3}, kNaN, DType::float64);
    case 17:
      return filled({2, 3}, -kInf, DType::float64);
    case 18:
      return filled({2, 3}, 1e308, DType::float64);
    case 19:
      return one(cx.alias(cx.full(Shape{1}, 1, DType::float64), Shape{300, 300}, Shape{0, 0}, 0));
    case 20:
      return one(cx.alias(cx.full(Shape{8}, 1, DType::float64), Shape{4, 4}, Shape{1, 1}, 0));
    case 21:
      return whole({4}, -1);
    case 22:
      return whole({4}, kMax);
    case 23:
      return whole({2, 3}, kMin);
    case 24:
      return whole({}, 5);
    case 25:
      return whole({0}, 0);
    case 26:
      return one(cx.full(Shape{5}, true, DType::boolean));
    case 27:
      return one(cx.full(Shape{}, true, DType::boolean));
    case 28:
      return one(cx.full(Shape{4, 5}, false, DType::boolean));
    case 29:
      return filled({4, 5}, 0.5, DType::float32);
    case 30:
      return filled({5}, -0.0, DType::float64);
    case 31:
      return list(0);
    case 32:
      return list(1);  // an empty tensor
    case 33:
      s.tensors[0] = cx.full(Shape{2}, 1, DType::float64), s.tensors[1] = cx.full(Shape{3}, 1, DType::int64);
      return list(2);
    case 34:
      s.tensors[0] = s.tensors[1] = s.tensors[2] = leaf_like(cx.full(Shape{}, 1, DType::float64));
      return list(3);
    case 35:
      return index({});
    case 36:
      return index({kMax});
    case 37:
      return index({kMin});
    case 38:
      return index({Slice{kMin, kMax, kMax}});
    case 39:
      return index({Slice{kMax, kMin, 1}});
    case 40:
      return index({Slice{0, 3, 0}});
    case 41:
      return index({Slice{3, 0, kMin}});
    case 42:
      return index(Items(100, newaxis));
    case 43:
      return index(Items(31, newaxis));
    case 44:
      return index({ellipsis, ellipsis});
    case 45:
      return index({whole({2}, kMax).tensors[0]});
    case 46:
      return index({filled({2}, 1, DType::float32).tensors[0]});
    case 47:
      return index({array(ArgKind::int_array, {kMax / 8}, {0})});
    case 48:
      return index({array(ArgKind::int_array, {2, 2}, {0, -1, 0, kMin})});
    case 49:
      return index({array(ArgKind::bool_array, {7}, {1, 0, 1, 0, 1, 0, 5})});
    case 50:
      return index({true, false, true, ellipsis, false});
    case 51:
      return index(
          {array(ArgKind::int_array, {1000}, std::vector<int64_t>(1000, 0)), newaxis, whole({1000, 1}, 0).tensors[0]});
    case 52:
      return index(Items(40, array(ArgKind::int_array, {1}, {0})));
    case 53:
      return index({array(ArgKind::ellipsis, {-1}, {}), array(ArgKind::real, {}, {})});
    case 54:
      return filled({2, 1, 3, 1, 2, 1}, 1, DType::float64);
    case 55:
      return one(
          cx.alias(cx.full(Shape{1}, 1, DType::float32), Shape{2048, 1024}, Shape{0, 0}, 0));  // 8 MiB written out
    case 56: {
      s.tensors.assign(10'000, cx.full({}, 1, DType::float64));
      return list(10'000);
    }
    case 57:
      return index(Items(10'000, 0));
    case 58:
      return Bound(s.tensors[0] = sample_optimizer(cx, Shape{2}));
    case 59:
      s.tensors[0] = own;
      return Bound(s.tensors[0]);
    case 60:
      s.tensors[0] = s.tensors[1] = own;
      return list(2);
    case 61: {  // its own bytes in another order
      Shape shape(own.shape()), strides(own.strides());
      std::reverse(shape.begin(), shape.end()), std::reverse(strides.begin(), strides.end());
      s.tensors[0] = cx.alias(own, shape, strides, own->offset);
      return Bound(s.tensors[0]);
    }
    case 62:  // one of its elements everywhere
      s.tensors[0] = own.numel() > 0 ? cx.alias(own, own.shape(), Shape(own.shape().size(), 0), own->offset) : own;
      return Bound(s.tensors[0]);
    default: {  // all but its first element, where it has such a row
      if (own.ndim() != 1 || own.numel() < 2) return Bound(s.tensors[0] = own);
      s.tensors[0] = cx.alias(own, Shape{own.size(0) - 1}, Shape{own.strides()[0]}, own->offset + own.strides()[0]);
      return Bound(s.tensors[0]);
    }
  }
}

Edges::Edges() {
  ints = {{},
          {-1},
          {0},
          {1},
          {kMax},
          {kMin},
          {int64_t{1} << 40},
          {-1, -1},
          {-1, 0},
          {0, 0},
          {2, 3},
          {kMax, kMax},
          {1 << 20, 1 << 20, 1 << 20},
          {1, 0, -1},
          {3, -2, 1},
          {0, kMax, -1},
          {1000, 10000},
          std::vector<int64_t>(33, 1),
          std::vector<int64_t>(32, 1),
          std::vector<int64_t>(10'000, 0),
          std::vector<int64_t>(10'000, 1),
          {int64_t{1} << 31},
          {int64_t{1} << 62, 2},
          {-2},
          {2, 1, 0, 3}};
  floats = {0, -1, kNaN, kInf}, more = std::vector<double>(10'000, 0.5);
  auto add = [this](Bound v) { all.push_back({v}); };
  add(Bound());
  for (const bool b : {false, true}) add(Bound(Scalar(b)));
  for (const int64_t i : {int64_t{0}, int64_t{1}, int64_t{-1}, int64_t{-3}, int64_t{300}, int64_t{1} << 31,
                          int64_t{1} << 40, int64_t{1} << 62, kMax, kMin, kMin + 1})
    add(Bound(Scalar(i)));
  for (const double f : {0.0, -0.5, 1e308, 5e-324, 3e9, -1e19, kNaN, kInf, -kInf}) add(Bound(Scalar(f)));
  static const std::string long_text(100'000, 'x');
  for (const std::string_view t :
       {std::string_view(""), std::string_view("mean"), std::string_view("NaN"), std::string_view("-Infinity"),
        std::string_view("cpu"), std::string_view("cuda:99999999999"), std::string_view("cuda:"),
        std::string_view("float32"), std::string_view("\0\xff\xfe", 3), std::string_view(long_text)})
    add(Bound(t));
  for (int t = 0; t < kDTypes; ++t) add(Bound(static_cast<DType>(t)));
  for (const auto& v : ints) add(Bound(std::span<const int64_t>(v)));
  add(Bound(std::span<const double>(floats)));
  add(Bound(std::span<const double>(more)));
  for (int r = 0; r < kRecipes; ++r) all.push_back({Bound(), r});
  Bound odd;
  odd.kind = ArgKind::slice, odd.count = 7;
  add(odd);
}

}  // namespace gradwire::engine
