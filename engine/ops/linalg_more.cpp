#include <algorithm>

#include "engine/apply.h"
#include "engine/einsum.h"
#include "engine/ops/linalg.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine::linalg {
namespace {

std::string number(int64_t n) { return std::to_string(n); }

using Dims = std::span<const int64_t>;

// The dims of one side of tensordot, each once.
Shape checked_dims(const Tensor& t, Dims dims) {
  Shape out;
  bool seen[kMaxDims + 1] = {};
  for (const int64_t given : dims) {
    if (t.ndim() == 0) {
      throw Error(Code::index_out_of_range,
                  "Dimension specified as " + number(given) + " but tensor has no dimensions");
    }
    const int d = wrap_dim(given, t.ndim());
    if (std::exchange(seen[d], true)) {
      throw Error(Code::bad_argument, "dim " + number(d) + " appears multiple times in the list of dims");
    }
    out.push_back(d);
  }
  return out;
}

// t as a matrix: its dims `dims`, in their order, on one side, the others on the other.
Tensor as_matrix(const Tensor& t, const Shape& dims, bool dims_first, Shape& others) {
  Shape order, sizes, left;
  for (int d = 0; d < t.ndim(); ++d) {
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) left.push_back(d), others.push_back(t.size(d));
  }
  for (const int64_t d : dims) sizes.push_back(t.size(static_cast<int>(d)));
  order = dims_first ? dims : left;
  for (const int64_t d : dims_first ? left : dims) order.push_back(d);
  const int64_t mine = checked_numel(sizes), rest = checked_numel(Shape(Dims(others).last(left.size())));
  return reshape(permute(t, order), dims_first ? Shape{mine, rest} : Shape{rest, mine});
}

}  // namespace

Tensor tensordot(Context&, const Tensor& a, const Tensor& b, Dims da, Dims db) {
  if (da.size() != db.size()) throw Error(Code::bad_argument, "both dimension lists should have same length");
  Tensor x = a, y = b;
  // Sizes before repetitions, as PyTorch asks; no more than that many can be all different.
  for (size_t i = 0; i < std::min<size_t>(da.size(), kMaxDims + 1); ++i) {
    const int p = static_cast<int>(checked_dims(a, da.subspan(i, 1))[0]),
              q = static_cast<int>(checked_dims(b, db.subspan(i, 1))[0]);
    if (x.size(p) == y.size(q)) continue;
    if (y.size(q) == 1) {
      x = sum(x, p, true, x.dtype());
    } else if (x.size(p) == 1) {
      y = sum(y, q, true, y.dtype());
    } else {
      throw Error(Code::shape_mismatch, "contracted dimensions need to match, but first has size " + number(x.size(p)) +
                                            " in dim " + number(da[i]) + " and second has size " + number(y.size(q)) +
                                            " in dim " + number(db[i]));
    }
  }
  const Shape ca = checked_dims(a, da), cb = checked_dims(b, db);
  check_same_dtype(a, b);
  Shape out;
  const Tensor left = as_matrix(x, ca, false, out), right = as_matrix(y, cb, true, out);
  return reshape(matmul(left, right), out);
}

Tensor tensordot(const Call& c) {
  const Tensor &a = c.tensor(0), &b = c.tensor(1);
  const int64_t n = c.integer(2);
  if (n < 0) throw Error(Code::bad_argument, "tensordot expects dims >= 0, but got dims=" + number(n));
  if (n > 0) checked_dims(a, Shape{-n}), checked_dims(b, Shape{n - 1});  // no list of more dims than there are
  Shape da, db;
  for (int64_t i = 0; i < n; ++i) da.push_back(i - n), db.push_back(i);
  return tensordot(c.cx, a, b, da, db);
}

Tensor tensordot_lists(const Call& c) { return tensordot(c.cx, c.tensor(0), c.tensor(1), c.ints(2), c.ints(3)); }

Tensor tensordot_pair(const Call& c) {
  const auto lists = c.index(2);
  const auto is_list = [](const IndexItem<Tensor>& i) { return i.kind == ArgKind::int_array && i.sizes.size() == 1; };
  if (lists.size() != 2 || !is_list(lists[0]) || !is_list(lists[1])) {
    throw Error(Code::bad_argument, "tensordot(): argument 'dims' must be an int or two lists of ints");
  }
  return tensordot(c.cx, c.tensor(0), c.tensor(1), lists[0].values, lists[1].values);
}

Tensor inner(const Call& c) {
  const Tensor &a = c.tensor(0), &b = c.tensor(1);
  if (a.ndim() == 0 || b.ndim() == 0) return mul(a, b);
  if (a.shape().back() != b.shape().back()) {
    throw Error(Code::shape_mismatch, "inner() the last dimension must match on both input tensors but got shapes " +
                                          to_string(a.shape()) + " and " + to_string(b.shape()));
  }
  return tensordot(c.cx, a, b, Shape{-1}, Shape{-1});
}

Tensor kron(const Call& c) {
  const Tensor &a = c.tensor(0), &b = c.tensor(1);
  // Blocks: each size of a beside that of b, a missing one 1.
  const int n = std::max(a.ndim(), b.ndim());
  Shape wide_a, wide_b, out;
  for (int d = 0; d < n; ++d) {
    const int i = d - (n - a.ndim()), j = d - (n - b.ndim());
    const int64_t p = i < 0 ? 1 : a.size(i), q = j < 0 ? 1 : b.size(j);
    wide_a.push_back(p), wide_a.push_back(1);
    wide_b.push_back(1), wide_b.push_back(q);
    out.push_back(checked_numel(Shape{p, q}));
  }
  return reshape(mul(reshape(a, wide_a), reshape(b, wide_b)), out);
}

Tensor matrix_power(const Call& c) {
  const Tensor& x = c.tensor(0);
  const int64_t n = c.integer(1);
  if (x.ndim() < 2) {
    throw Error(Code::shape_mismatch, "linalg.matrix_power: The input tensor A must have at least 2 dimensions.");
  }
  const int64_t rows = x.size(x.ndim() - 2), columns = x.size(x.ndim() - 1);
  if (rows != columns) {
    throw Error(Code::shape_mismatch, "linalg.matrix_power: A must be batches of square matrices, but they are " +
                                          number(rows) + " by " + number(columns) + " matrices");
  }
  if (n < 0)
    throw Error(Code::bad_argument, "linalg.matrix_power: the exponent must not be negative, got " + number(n));
  if (n == 0) {
    const Tensor out = c.cx.full(x.shape(), 0, x.dtype());
    Shape shape(out.shape().first(out.shape().size() - 1)), strides(out.strides().first(out.shape().size() - 1));
    if (out.numel() > 0) {
      ++strides[strides.size() - 1];
      c.cx.copy(c.cx.alias(out, shape, strides, 0), c.cx.full(shape, 1, x.dtype()));
    }
    return c.cx.grad_mode && x.requires_grad() ? add(fill(x, 0), out) : out;  // its gradient is there, and zero
  }
  if (n == 1) return gradwire::clone(x);
  Tensor power = x, out;
  for (int64_t left = n;; power = matmul(power, power)) {
    if (left & 1) out = out ? matmul(out, power) : power;
    if (left >>= 1; left == 0) return out;
  }
}

Tensor cross(const Call& c) {
  const Tensor &a = c.tensor(0), &b = c.tensor(1);
  if (a.ndim() != b.ndim())
    throw Error(Code::shape_mismatch, "linalg.cross: inputs must have the same number of dimensions.");
  int dim = 0;
  if (c.has(2)) {
    dim = wrap_dim(c.integer(2), a.ndim());
  } else {
    while (dim < a.ndim() && a.size(dim) != 3) ++dim;
    if (dim == a.ndim()) throw Error(Code::shape_mismatch, "no dimension of size 3 in input");
  }
  const int64_t p = a.ndim() ? a.size(dim) : 1, q = a.ndim() ? b.size(dim) : 1;
  if (p != 3 || q != 3) {
    throw Error(Code::shape_mismatch, "linalg.cross: inputs dimension " + number(c.has(2) ? c.integer(2) : dim) +
                                          " must have length 3. Got " + number(p) + " and " + number(q));
  }
  check_same_dtype(a, b);
  if (a.dtype() == DType::boolean) throw Error(Code::dtype_mismatch, "\"cross\" not implemented for 'Bool'");
  broadcast_shapes(a.shape(), b.shape());
  const auto turned = [dim](const Tensor& t, std::vector<int64_t> order) {
    std::vector<IndexItem<Tensor>> at(static_cast<size_t>(dim), Slice{});
    at.emplace_back(std::move(order));
    return index(t, Indices<Tensor>(at));
  };
  return turned(a, {1, 2, 0}) * turned(b, {2, 0, 1}) - turned(a, {2, 0, 1}) * turned(b, {1, 2, 0});
}

Tensor trace(const Call& c) {
  const Tensor& x = c.tensor(0);
  if (x.ndim() != 2)
    throw Error(Code::shape_mismatch, "trace: expected a matrix, but got tensor with dim " + number(x.ndim()));
  return x.numel() > 0 ? sum(contraction::diagonal(x, 0, 1)) : sum(x);  // of nothing 0, in the same dtype
}

}  // namespace gradwire::engine::linalg
