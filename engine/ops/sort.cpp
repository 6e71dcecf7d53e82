// Extremes and order: what is largest or smallest, and where it stands.
#include <algorithm>
#include <limits>

#include "engine/apply.h"
#include "engine/kernels.h"
#include "engine/registry.h"
#include "engine/rules.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr const char* kPlaces = "the result is a place";

Error not_for(const char* kernel, DType t) {
  return Error(Code::dtype_mismatch, std::string("\"") + kernel + "\" not implemented for '" + row(t).torch + "'");
}

// ---- extremes ----

// Refuses to reduce a dim of size 0, in PyTorch's words.
void check_sizes(const Call& c, const Bound& dims) {
  const Tensor& x = c.tensor(0);
  if (x.numel() > 0) return;
  const std::string op = c.row.name();
  const bool all = dims.kind == ArgKind::none || (dims.kind == ArgKind::ints && dims.count == 0);
  if (all) {
    const bool place = op.starts_with("arg");
    throw Error(place ? Code::index_out_of_range : Code::bad_argument,
                op + "(): Expected reduction dim to be specified for input.numel() == 0." +
                    (place ? "" : " Specify the reduction dim with the 'dim' argument."));
  }
  const rule::Reduced r = rule::reduced(x.shape(), dims, true);
  for (size_t d = 0; d < r.kept.size(); ++d) {
    if (r.kept[d] != x.shape()[d] && x.shape()[d] == 0) {
      throw Error(Code::index_out_of_range,
                  op + "(): Expected reduction dim " + std::to_string(d) + " to have non-zero size.");
    }
  }
}

Tensor squeezed(Context& cx, const Tensor& t, const rule::Reduced& r) {
  return t.ndim() == static_cast<int>(r.dropped.size())
             ? t
             : cx.alias(t, r.dropped, contiguous_strides(r.dropped), t->offset);
}

// Values alone, over any dims.
Tensor extreme_of(const Call& c, const Bound& dims, bool keepdim, bool largest) {
  check_sizes(c, dims);
  const Tensor& x = c.tensor(0);
  const rule::Reduced r = rule::reduced(x.shape(), dims, keepdim);
  const Tensor out = c.cx.empty(r.kept, x.dtype());
  const ExtremeParams params{largest};
  launch(c.cx, GW_KERNEL(extreme), {out.view()}, {x.view()}, &params);
  return squeezed(c.cx, out, r);
}

// Values and places along one dim.
Results extremes_of(const Call& c, const Tensor& x, const Bound& dim, bool keepdim, bool largest) {
  const rule::Reduced r = rule::reduced(x.shape(), dim, keepdim);
  const Tensor out = c.cx.empty(r.kept, x.dtype()), places = c.cx.empty(r.kept, DType::int64);
  const ExtremeParams params{largest};
  launch(c.cx, GW_KERNEL(extreme), {out.view(), places.view()}, {x.view()}, &params);
  return {squeezed(c.cx, out, r), squeezed(c.cx, places, r)};
}

Results extremes_along(const Call& c, bool largest) {
  const Bound& dim = c.args[1];
  wrap_dim(dim.i, c.tensor(0).ndim());
  check_sizes(c, dim);
  return extremes_of(c, c.tensor(0), dim, c.flag(2), largest);
}

Tensor place_of(const Call& c, const char* kernel, bool largest) {
  const Tensor& x = c.tensor(0);
  if (c.has(1)) wrap_dim(c.integer(1), x.ndim());
  check_sizes(c, c.args[1]);
  if (x.numel() > 0 && x.dtype() == DType::boolean) throw not_for(kernel, x.dtype());
  if (c.has(1)) return extremes_of(c, x, c.args[1], c.flag(2), largest).at[1];
  const Tensor flat = c.cx.contiguous(x);
  const Shape n{x.numel()}, step{1};
  const Tensor place = extremes_of(c, c.cx.alias(flat, n, step, flat->offset), Bound(Scalar(0)), false, largest).at[1];
  const rule::Reduced r = rule::reduced(x.shape(), Bound(), c.flag(2));
  return c.cx.alias(place, r.dropped, contiguous_strides(r.dropped), 0);
}

// Those that equal the result share its gradient.
Tensor shared(const Vjp& g, const Bound& dims, bool nan_is_equal) {
  const Tensor& x = g.in(0);
  const Tensor y = rule::unreduced(g.out(), g.shape(0), dims), d = rule::unreduced(g.dout(), g.shape(0), dims);
  Tensor mask = eq(x, y);
  if (nan_is_equal) mask = mask + ne(x, x) * ne(y, y);
  mask = cast(mask, d.dtype());
  if (nan_is_equal) return mask * (d / sum(mask));
  return d * mask / (dims.kind == ArgKind::none ? sum(mask) : sum(mask, Ints(std::span(dims.ints, dims.count)), true));
}

Grads amax_vjp(const Vjp& g) { return {{shared(g, g.given(1) ? Bound(g.ints(1)) : Bound(), false)}}; }
Grads full_vjp(const Vjp& g) { return {{shared(g, Bound(), true)}}; }

// The result of one dim goes back to where it stood.
Tensor back_along(const Vjp& g, int64_t dim) {
  const Bound dims{Scalar(dim)};
  return spread_along(rule::unreduced(g.dout(), g.shape(0), dims), Ints(g.shape(0)), dim,
                      rule::unreduced(g.out(1), g.shape(0), dims));
}
Grads along_vjp(const Vjp& g) { return {{back_along(g, g.integer(1))}}; }

// ---- order ----

// Where a tensor of `shape` is read or written along dim: index's shape, and for each element an offset.
struct Along {
  Shape shape, steps;  // of index, 0-dim as 1-dim; the tensor's strides, 0 along dim
  Tensor offsets;
  Shape offset_steps;
  Along(const Call& c, std::span<const int64_t> of, std::span<const int64_t> strides, int64_t along,
        const Tensor& index) {
    const int n = static_cast<int>(of.size()), dim = wrap_dim(along, n);
    bool fits = index.ndim() == n;
    for (int d = 0; fits && d < n; ++d) fits = d == dim || index.size(d) == of[d];
    if (!fits) {
      throw Error(Code::shape_mismatch, c.row.name() + "(): an index of shape " + to_string(index.shape()) +
                                            " does not fit a tensor of shape " + to_string(of) + " along dim " +
                                            std::to_string(dim));
    }
    if (index.dtype() != DType::int64) throw Error(Code::dtype_mismatch, c.row.name() + "(): expected an int64 index");
    shape = Shape(index.shape()), steps = Shape(strides);
    Shape index_steps(index.strides());
    if (n == 0) shape.push_back(1), steps.push_back(1), index_steps.push_back(1);
    offsets = c.cx.empty(shape, DType::int64);
    offset_steps = contiguous_strides(shape);
    LinearIndexParams params{};
    params.size[0] = n == 0 ? 1 : of[static_cast<size_t>(dim)];
    params.stride[0] = std::exchange(steps[static_cast<size_t>(dim)], 0), params.dim[0] = dim;
    if (offsets.numel() > 0) launch(c.cx, GW_KERNEL(linear_index), {offsets.view()}, {at(index, index_steps)}, &params);
  }
  View at(const Tensor& t, const Shape& strides) const {
    return {t.data(), shape.data(), strides.data(), static_cast<int32_t>(shape.size()), t.dtype()};
  }
};

// The first k of x sorted along dim, and where they stood.
Results sorted(Context& cx, const Tensor& x, int dim, int64_t k, bool descending) {
  const int64_t n = x.ndim() == 0 ? 1 : x.size(dim);
  if (size_of(x.dtype()) <= 4 && n >= int64_t{1} << 32)
    throw Error(Code::bad_argument, "more than 4294967295 elements to sort");
  Shape shape(x.shape());
  if (!shape.empty()) shape[static_cast<size_t>(dim)] = k;
  const Tensor out = cx.empty(shape, x.dtype()), places = cx.empty(shape, DType::int64);
  if (out.numel() == 0) return {out, places};
  const int64_t ways = cx.on_cpu ? std::min<int64_t>(x.numel() / n, 8) : 0;
  const Tensor scratch = cx.empty(Shape{ways, n, words_of_sort(x.dtype())}, DType::int64);
  const Shape rows{ways, n * words_of_sort(x.dtype())}, steps{rows[1], 1};
  const rule::DimLast to(out, dim), at(places, dim), from(x, dim);
  const SortParams params{descending};
  launch(cx, GW_KERNEL(sort),
         {to.view(out), at.view(places), {scratch.data(), rows.data(), steps.data(), 2, DType::int64}}, {from.view(x)},
         &params);
  return {out, places};
}

// The last of the first k along dim.
Results kth(const Call& c, const Tensor& x, int dim, int64_t k, bool keepdim) {
  Results all = sorted(c.cx, x, dim, k, false);
  const rule::Reduced r = rule::reduced(x.shape(), Bound(Scalar(int64_t{dim})), keepdim);
  for (Tensor& t : std::span(all.at).first(2)) {
    if (x.ndim() == 0) continue;
    Shape steps(t.strides());
    const int64_t offset = t.numel() > 0 ? (k - 1) * steps[static_cast<size_t>(dim)] : 0;
    if (!keepdim) steps.erase(static_cast<size_t>(dim));
    t = copy_of(c.cx, c.cx.alias(t, r.dropped, steps, offset));
  }
  return all;
}

// The lower of two in the middle; NaN if there is one, the first.
Results median_along(const Call& c, const Tensor& x, int dim, bool keepdim) {
  const int64_t n = x.ndim() == 0 ? 1 : x.size(dim);
  Results middle = kth(c, x, dim, (n + 1) / 2, keepdim);
  if (!is_floating(x.dtype())) return middle;
  // NaN is the largest of all
  const Results top = extremes_of(c, x, Bound(Scalar(int64_t{dim})), keepdim, true);
  const Tensor nan = ne(top.at[0], top.at[0]);
  return {where(nan, top.at[0], middle.at[0]), where(nan, top.at[1], middle.at[1])};
}

// The most frequent along dim: the end of the longest run of equal ones, in order, the smallest if there are several.
Results mode_along(const Call& c, const Tensor& x, int dim, bool keepdim) {
  const rule::Reduced r = rule::reduced(x.shape(), Bound(Scalar(int64_t{dim})), keepdim);
  if (x.ndim() == 0 || x.numel() == 0) {
    return {x.ndim() == 0 ? copy_of(c.cx, x) : c.cx.empty(r.dropped, x.dtype()), c.cx.full(r.dropped, 0, DType::int64)};
  }
  const Results s = sorted(c.cx, x, dim, x.size(dim), false);
  const Tensor follows = cast(eq(s.at[0], rule::shifted(s.at[0], dim, 0)), DType::float64);
  const Tensor run = linear_scan(follows, ones_like(follows), dim);
  const Results longest = extremes_of(c, run, Bound(Scalar(int64_t{dim})), true, true);
  const Results found(pick_along(s.at[0], dim, longest.at[1]), pick_along(s.at[1], dim, longest.at[1]));
  return {squeezed(c.cx, found.at[0], r), squeezed(c.cx, found.at[1], r)};
}

// What a median of nothing is.
Scalar lowest(DType t) {
  if (is_floating(t)) return kNaN;
  if (t == DType::boolean) return true;
  return size_of(t) < 4 ? int64_t{0} : std::numeric_limits<int64_t>::min() >> (64 - 8 * size_of(t));
}

void check_number(const Tensor& x, const char* kernel) {
  if (x.dtype() == DType::boolean) throw not_for(kernel, x.dtype());
}

constexpr OpDef kRows[] = {
    {
        .sig = "max(Tensor self) -> Tensor",
        .doc = "The largest element; NaN if there is one. Equal ones share the gradient.",
        .compute = [](const Call& c) -> Results { return extreme_of(c, Bound(), false, true); },
        .saves = {in(0), out(0)},
        .vjp = full_vjp,
        .examples = {{"[1., 3., 2.]", "3."}, {"[1., nan]", "nan"}},
        .samples = {"f(2, 3)", "f()"},
    },
    {
        .sig = "max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
        .doc = "The largest along dim, and where the first such stands, which gets the gradient. NaN wins.",
        .compute = [](const Call& c) -> Results { return extremes_along(c, true); },
        .saves = {out(1)},
        .vjp = along_vjp,
        .examples = {{"[[1., 3.], [4., 2.]]; 1", "[3., 4.]; [1, 0]"}},
        .samples = {"f(2, 3); 1", "f(2, 3); 0; True", "f(2, 3, 2); -2", "f(); 0", "f(0, 3); 1"},
    },
    {
        .sig = "max.other(Tensor self, Tensor other) -> Tensor",
        .doc = "The same as maximum.",
        .compose = [](const Call& c) -> Results { return maximum(c.tensor(0), c.tensor(1)); },
        .examples = {{"[1., 5.]; [4., -8.]", "[4., 5.]"}},
        .samples = {"f(2, 3); f(3)"},
    },
    {
        .sig = "min(Tensor self) -> Tensor",
        .doc = "The smallest element; NaN if there is one. Equal ones share the gradient.",
        .compute = [](const Call& c) -> Results { return extreme_of(c, Bound(), false, false); },
        .saves = {in(0), out(0)},
        .vjp = full_vjp,
        .examples = {{"[1., 3., 2.]", "1."}, {"[1., nan]", "nan"}},
        .samples = {"f(2, 3)", "f()"},
    },
    {
        .sig = "min.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
        .doc = "The smallest along dim, and where the first such stands, which gets the gradient. NaN wins.",
        .compute = [](const Call& c) -> Results { return extremes_along(c, false); },
        .saves = {out(1)},
        .vjp = along_vjp,
        .examples = {{"[[1., 3.], [4., 2.]]; 1", "[1., 2.]; [0, 1]"}},
        .samples = {"f(2, 3); 1", "f(2, 3); 0; True", "f(2, 3, 2); -2", "f(); 0", "f(0, 3); 1"},
    },
    {
        .sig = "min.other(Tensor self, Tensor other) -> Tensor",
        .doc = "The same as minimum.",
        .compose = [](const Call& c) -> Results { return minimum(c.tensor(0), c.tensor(1)); },
        .examples = {{"[1., 5.]; [4., -8.]", "[1., -8.]"}},
        .samples = {"f(2, 3); f(3)"},
    },
    {
        .sig = "amax(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor",
        .doc = "The largest over the dims given, or over all; NaN wins. Equal ones share the gradient.",
        .compute = [](const Call& c) -> Results { return extreme_of(c, c.args[1], c.flag(2), true); },
        .saves = {in(0), out(0)},
        .vjp = amax_vjp,
        .examples = {{"[[1., 3.], [4., 2.]]; 1", "[3., 4.]"}, {"[[1, 3], [4, 2]]", "4"}},
        .samples = {"f(2, 3)", "f(2, 3); (0)", "f(2, 3); -1; True", "f(2, 3, 2); (0, 2)", "f()", "f(0, 3); 1"},
    },
    {
        .sig = "amin(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor",
        .doc = "The smallest over the dims given, or over all; NaN wins. Equal ones share the gradient.",
        .compute = [](const Call& c) -> Results { return extreme_of(c, c.args[1], c.flag(2), false); },
        .saves = {in(0), out(0)},
        .vjp = amax_vjp,
        .examples = {{"[[1., 3.], [4., 2.]]; 1", "[1., 2.]"}, {"[[1, 3], [4, 2]]", "1"}},
        .samples = {"f(2, 3)", "f(2, 3); (0)", "f(2, 3); -1; True", "f(2, 3, 2); (0, 2)", "f()", "f(0, 3); 1"},
    },
    {
        .sig = "argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor",
        .doc = "Where the first largest element stands, along dim or in row-major order; NaN wins.",
        .compute = [](const Call& c) -> Results { return place_of(c, "argmax_cpu", true); },
        .no_grad = kPlaces,
        .examples = {{"[[1., 3.], [4., 2.]]", "2"}, {"[[1., 3.], [4., 2.]]; 1", "[1, 0]"}},
        .samples = {"f(2, 3)", "f(2, 3); 1", "f(2, 3); 0; True", "f()", "f(2, 3); None; True", "f(0, 3); 1"},
    },
    {
        .sig = "argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor",
        .doc = "Where the first smallest element stands, along dim or in row-major order; NaN wins.",
        .compute = [](const Call& c) -> Results { return place_of(c, "argmin_cpu", false); },
        .no_grad = kPlaces,
        .examples = {{"[[1., 3.], [4., 2.]]", "0"}, {"[[1., 3.], [4., 2.]]; 1", "[0, 1]"}},
        .samples = {"f(2, 3)", "f(2, 3); 1", "f(2, 3); 0; True", "f()", "f(2, 3); None; True", "f(0, 3); 1"},
    },
    {
        .sig = "sort(Tensor self, int dim=-1, bool descending=False, *, bool stable=False) -> (Tensor values, Tensor "
               "indices)",
        .doc = "The elements sorted along dim, and where they stood. NaN is the largest; equal ones keep their order, "
               "asked for or not.",
        .compute = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const int dim = wrap_dim(c.integer(1), x.ndim());
          return sorted(c.cx, x, dim, x.ndim() == 0 ? 1 : x.size(dim), c.flag(2));
        },
        .saves = {out(1)},
        .vjp = [](const Vjp& g) -> Grads {
          return {{spread_along(g.dout(), Ints(g.shape(0)), g.integer(1), g.out(1))}};
        },
        .examples = {{"[3., 1., 2.]", "[1., 2., 3.]; [1, 2, 0]"},
                     {"[[3, 1], [1, 2]]; 0; True", "[[3, 2], [1, 1]]; [[0, 1], [1, 0]]"}},
        .samples = {"f(2, 3)", "f(2, 3); 0; True", "f(2, 3, 2); 1; stable=True", "f()", "f(0, 3); 1"},
    },
    {
        .sig = "argsort(Tensor self, int dim=-1, bool descending=False, *, bool stable=False) -> Tensor",
        .doc = "Where the elements sorted along dim stood; equal ones keep their order, asked for or not.",
        .compute = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const int dim = wrap_dim(c.integer(1), x.ndim());
          return sorted(c.cx, x, dim, x.ndim() == 0 ? 1 : x.size(dim), c.flag(2)).at[1];
        },
        .no_grad = kPlaces,
        .examples = {{"[3., 1., 2.]", "[1, 2, 0]"}},
        .samples = {"f(2, 3)", "f(2, 3); 0; True", "f()", "f(0, 3); 1"},
    },
    {
        .sig = "topk(Tensor self, int k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor values, Tensor "
               "indices)",
        .doc = "The k largest (or smallest) along dim, and where they stood; in order, asked for or not. NaN is the "
               "largest.",
        .compute = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const int dim = wrap_dim(c.integer(2), x.ndim());
          const int64_t k = c.integer(1);
          if (k < 0 || k > (x.ndim() == 0 ? 1 : x.size(dim)))
            throw Error(Code::bad_argument, "selected index k out of range");
          check_number(x, "topk_cpu");
          return sorted(c.cx, x, dim, k, c.flag(3));
        },
        .saves = {out(1)},
        .vjp = [](const Vjp& g) -> Grads {
          return {{spread_along(g.dout(), Ints(g.shape(0)), g.integer(2), g.out(1))}};
        },
        .examples = {{"[3., 1., 2.]; 2", "[3., 2.]; [0, 2]"}, {"[3, 1, 2]; 1; largest=False", "[1]; [1]"}},
        .samples = {"f(2, 3); 2", "f(3, 2); 2; 0; False", "f(); 1", "f(2, 3); 0", "f(0, 3); 2"},
    },
    {
        .sig = "kthvalue(Tensor self, int k, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)",
        .doc = "The k-th smallest along dim (k counts from 1), and where it stands. NaN is the largest.",
        .compute = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const int dim = wrap_dim(c.integer(2), x.ndim());
          const int64_t k = c.integer(1), n = x.ndim() == 0 ? 1 : x.size(dim);
          check_sizes(c, c.args[2]);
          if (k < 1 || k > n) {
            throw Error(Code::bad_argument,
                        "kthvalue(): selected number k out of range for dimension " + std::to_string(dim));
          }
          check_number(x, "kthvalue_cpu");
          return kth(c, x, dim, k, c.flag(3));
        },
        .saves = {out(1)},
        .vjp = [](const Vjp& g) -> Grads { return {{back_along(g, g.integer(2))}}; },
        .examples = {{"[3., 1., 2.]; 2", "2.; 2"}},
        .samples = {"f(2, 3); 2", "f(2, 3); 1; 0; True", "f(); 1", "f(0, 3); 2"},
    },
    {
        .sig = "median(Tensor self) -> Tensor",
        .doc = "The middle of all elements, of two the lower; NaN if there is one, or for nothing.",
        .compute = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          if (x.numel() > 0) check_number(x, "median_cpu");
          if (x.numel() == 0) {
            return c.cx.full({}, lowest(x.dtype()), x.dtype());
          }
          const Tensor flat = c.cx.contiguous(x);
          const Shape n{x.numel()}, step{1};
          return median_along(c, c.cx.alias(flat, n, step, flat->offset), 0, false).at[0];
        },
        .saves = {in(0), out(0)},
        .vjp = full_vjp,
        .examples = {{"[3., 1., 2., 4.]", "2."}, {"[1., nan, 2.]", "nan"}},
        .samples = {"f(2, 3)", "f(5)", "f()"},
    },
    {
        .sig = "median.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
        .doc = "The middle along dim, of two the lower, and where it stands; the first NaN if there is one.",
        .compute = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const int dim = wrap_dim(c.integer(1), x.ndim());
          check_sizes(c, c.args[1]);
          check_number(x, "median_cpu");
          return median_along(c, x, dim, c.flag(2));
        },
        .saves = {out(1)},
        .vjp = along_vjp,
        .examples = {{"[[3., 1., 2.], [6., 5., 4.]]; 1", "[2., 5.]; [2, 1]"}},
        .samples = {"f(2, 3); 1", "f(4, 3); 0; True", "f(); 0", "f(0, 3); 1"},
    },
    {
        .sig = "mode(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)",
        .doc = "The most frequent along dim, of several the smallest, and where the last such stands.",
        .compute = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const int dim = wrap_dim(c.integer(1), x.ndim());
          check_sizes(c, c.args[1]);
          return mode_along(c, x, dim, c.flag(2));
        },
        .saves = {out(1)},
        .vjp = along_vjp,
        .examples = {{"[1., 2., 2., 3., 3.]", "2.; 2"}},
        .samples = {"f(2, 3); 1", "f(4, 3); 0; True", "f(); 0", "f(0, 3); 1"},
    },
    {
        .sig = "pick_along(Tensor self, int dim, Tensor index) -> Tensor",
        .doc = "self at index along dim, elementwise in the other dims, which have self's sizes.",
        .compute = [](const Call& c) -> Results {
          const Tensor &x = c.tensor(0), &index = c.tensor(2);
          const Along along(c, x.shape(), x.strides(), c.integer(1), index);
          const Tensor out = c.cx.empty(index.shape(), x.dtype());
          const Shape steps = contiguous_strides(along.shape);
          if (out.numel() > 0) {
            launch(c.cx, GW_KERNEL(take), {along.at(out, steps)}, {along.at(x, along.steps), along.offsets.view()});
          }
          return out;
        },
        .saves = {in(2)},
        .vjp = [](const Vjp& g) -> Grads {
          return {{spread_along(g.dout(), Ints(g.shape(0)), g.integer(1), g.in(2))}};
        },
        .examples = {{"[[1., 2.], [3., 4.]]; 1; [[1], [0]]", "[[2.], [3.]]"}},
        .samples = {"f(2, 3); 1; i3(2, 2)", "f(2, 3); 0; i2(4, 3)"},
    },
    {
        .sig = "spread_along(Tensor grad, int[] size, int dim, Tensor index) -> Tensor",
        .doc = "Zeros of that size, with grad added up where pick_along reads: its gradient.",
        .compute = [](const Call& c) -> Results {
          const Tensor &d = c.tensor(0), &index = c.tensor(3);
          if (!std::ranges::equal(d.shape(), index.shape())) {
            throw Error(Code::shape_mismatch, "spread_along(): grad of shape " + to_string(d.shape()) +
                                                  " and an index of shape " + to_string(index.shape()) + " differ");
          }
          const Tensor out = c.cx.full(c.ints(1), 0, d.dtype());
          const Along along(c, out.shape(), out.strides(), c.integer(2), index);
          Shape steps(d.strides());
          if (steps.empty()) steps.push_back(1);
          const PutParams add{true};
          if (d.numel() > 0) {
            launch(c.cx, GW_KERNEL(put), {along.at(out, along.steps)}, {along.offsets.view(), along.at(d, steps)},
                   &add);
          }
          return out;
        },
        .saves = {in(3)},
        .vjp = [](const Vjp& g) -> Grads { return {{pick_along(g.dout(), g.integer(2), g.in(3))}}; },
        .examples = {{"[[1., 2.]]; (1, 3); 1; [[0, 0]]", "[[3., 0., 0.]]"}},
        .samples = {"f(2, 2); (2, 3); 1; i3(2, 2)", "f(4, 3); (2, 3); 0; i2(4, 3)"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kSortOps = kRows;

}  // namespace gradwire::engine
