// Copies with elements moved around or repeated.
#include "engine/apply.h"
#include "engine/autograd.h"
#include "engine/pick.h"
#include "engine/registry.h"
#include "engine/shape.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

Tensor rolled(const Tensor& x, int64_t shift, int dim) {
  const int64_t n = x.size(dim);
  if (n == 0) return gradwire::clone(x);
  const int64_t start = (n - shift % n) % n;
  return cat({slice(x, dim, start, n), slice(x, dim, 0, start)}, dim);
}

std::optional<int64_t> output(const Call& c) { return c.has(3) ? std::optional(c.integer(3)) : std::nullopt; }

// For each place its number, as often as `repeats` (int32 or int64, one dim) says.
Tensor repeated_places(Context& cx, const Tensor& repeats, std::optional<int64_t> total) {
  if (repeats.dtype() != DType::int32 && repeats.dtype() != DType::int64) {
    throw Error(Code::dtype_mismatch,
                std::string("\"repeat_interleave\" not implemented for '") + row(repeats.dtype()).torch + "'");
  }
  if (repeats.ndim() != 1) throw Error(Code::shape_mismatch, "repeat_interleave only accept 1D vector as repeat");
  const HostInts times(cx, repeats);
  int64_t sum = 0;
  for (const int64_t n : times.values()) {
    if (n < 0) throw Error(Code::bad_argument, "repeats can not be negative");
    sum = checked_sum(sum, n);
  }
  if (total && *total != sum) throw Error(Code::bad_argument, "allocated size does not match required size");
  const Tensor places = cx.empty(Shape{sum}, DType::int64);
  std::vector<int64_t> line;  // of a device: on the CPU they are written where they stay
  int64_t* at = static_cast<int64_t*>(places.data());
  if (!cx.on_cpu) line.resize(static_cast<size_t>(sum)), at = line.data();
  for (size_t i = 0; i < times.values().size(); ++i) at = std::fill_n(at, times.values()[i], static_cast<int64_t>(i));
  if (!line.empty()) cx.backend.from_host(places.data(), line.data(), line.size() * sizeof(int64_t));
  return places;
}

constexpr OpDef kRows[] = {
    {
        .sig = "flip(Tensor self, int[] dims) -> Tensor",
        .doc = "A copy with these dims in reverse.",
        .compute = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          Shape strides(x.strides());
          int64_t offset = x->offset;
          bool seen[kMaxDims] = {};
          for (const int64_t given : c.ints(1)) {
            const int d = wrap_dim(given, x.ndim());
            if (std::exchange(seen[d], true)) {
              throw Error(Code::bad_argument,
                          "dim " + std::to_string(d) + " appears multiple times in the list of dims");
            }
            if (x.ndim() == 0 || x.numel() == 0) continue;
            int64_t& stride = strides[static_cast<size_t>(d)];
            offset += (x.size(d) - 1) * stride, stride = -stride;
          }
          return copy_of(c.cx, c.cx.alias(x, x.shape(), strides, offset));
        },
        .vjp = [](const Vjp& g) -> Grads { return {{flip(g.dout(), Ints(g.ints(1)))}}; },
        .examples = {{"[1., 2., 3.]; 0", "[3., 2., 1.]"}},
        .samples = {"f(2, 3); (0, 1)", "f(2, 3); -1", "f(); 0", "f(0, 2); 1"},
    },
    {
        .sig = "roll(Tensor self, int[] shifts, int[] dims=[]) -> Tensor",
        .doc = "A copy whose elements are moved along dims by shifts, around the end; without dims in row-major order.",
        .compose = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const std::span<const int64_t> shifts = c.ints(1), dims = c.ints(2);
          if (shifts.empty()) throw Error(Code::bad_argument, "`shifts` required");
          if (dims.empty() && shifts.size() == 1)
            return reshape(rolled(reshape(x, {x.numel()}), shifts[0], 0), Ints(x.shape()));
          if (shifts.size() != dims.size()) {
            throw Error(Code::bad_argument,
                        "shifts and dimensions must align. shifts: " + std::to_string(shifts.size()) +
                            ", dims:" + std::to_string(dims.size()));
          }
          if (x.ndim() == 0) {
            throw Error(Code::index_out_of_range,
                        "Dimension specified as " + std::to_string(dims[0]) + " but tensor has no dimensions");
          }
          for (const int64_t d : dims) wrap_dim(d, x.ndim());
          if (shifts.size() > 64) throw Error(Code::bad_argument, "roll() takes up to 64 shifts");
          Tensor y = x;
          for (size_t k = 0; k < dims.size(); ++k) y = rolled(y, shifts[k], wrap_dim(dims[k], x.ndim()));
          return y;
        },
        .examples = {{"[1., 2., 3.]; 1", "[3., 1., 2.]"}, {"[[1., 2.], [3., 4.]]; 1; 0", "[[3., 4.], [1., 2.]]"}},
        .samples = {"f(2, 3); 2", "f(2, 3); -1; 1", "f(2, 3); (1, 4); (0, 1)", "f(); 1", "f(0, 2); 1; 0"},
    },
    {
        .sig = "rot90(Tensor self, int k=1, int[] dims=[0, 1]) -> Tensor",
        .doc = "A copy turned k times by 90 degrees in the plane of two dims, from the first toward the second.",
        .compose = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const std::span<const int64_t> dims = c.ints(2);
          if (dims.size() != 2) {
            throw Error(Code::bad_argument,
                        "expected total rotation dims == 2, but got dims = " + std::to_string(dims.size()));
          }
          if (x.ndim() < 2) {
            throw Error(Code::shape_mismatch,
                        "expected total dims >= 2, but got total dims = " + std::to_string(x.ndim()));
          }
          const int a = wrap_dim(dims[0], x.ndim()), b = wrap_dim(dims[1], x.ndim());
          if (a == b) {
            throw Error(Code::bad_argument, "expected rotation dims to be different, but got dim0 = " +
                                                std::to_string(dims[0]) + " and dim1 = " + std::to_string(dims[1]));
          }
          switch ((c.integer(1) % 4 + 4) % 4) {
            case 1:
              return transpose(flip(x, b), a, b);
            case 2:
              return flip(x, {a, b});
            case 3:
              return transpose(flip(x, a), a, b);
            default:
              return gradwire::clone(x);
          }
        },
        .examples = {{"[[1., 2.], [3., 4.]]", "[[2., 4.], [1., 3.]]"}},
        .samples = {"f(2, 3)", "f(2, 3); 2", "f(2, 3); -1; (1, 0)", "f(2, 3); 0"},
    },
    {
        .sig = "repeat(Tensor self, int[] repeats) -> Tensor",
        .doc = "A copy of self so many times along each dim; more numbers than dims make new leading dims.",
        .compose = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const std::span<const int64_t> times = c.ints(1);
          if (times.size() < x.shape().size()) {
            throw Error(Code::bad_argument,
                        "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor");
          }
          const size_t more = times.size() - x.shape().size();
          Shape result, cut, wide;  // a dim that is repeated is two: which copy, and the place in it
          for (size_t d = 0; d < times.size(); ++d) {
            const int64_t size = d < more ? 1 : x.shape()[d - more];
            result.push_back(checked_product(size, times[d]));
            if (size != 1 && times[d] != 1) cut.push_back(1), wide.push_back(times[d]);
            cut.push_back(size), wide.push_back(size == 1 ? times[d] : size);
          }
          checked_numel(result);
          return reshape(gradwire::clone(expand(reshape(x, cut), wide)), result);
        },
        .examples = {{"[1., 2.]; (2)", "[1., 2., 1., 2.]"}, {"[1., 2.]; (2, 1)", "[[1., 2.], [1., 2.]]"}},
        .samples = {"f(2, 3); (2, 2)", "f(2); (2, 1, 3)", "f(); (2)", "f(2, 3); (0, 2)", "f(1, 2); (3, 1)"},
    },
    {
        .sig = "tile(Tensor self, int[] dims) -> Tensor",
        .doc = "repeat, with leading ones for the dims that `dims` leaves out.",
        .compose = [](const Call& c) -> Results {
          Shape times(c.ints(1));
          while (times.size() < c.tensor(0).shape().size()) times.insert(0, 1);
          return repeat(c.tensor(0), times);
        },
        .examples = {{"[[1.], [2.]]; (2)", "[[1., 1.], [2., 2.]]"}},
        .samples = {"f(2, 3); (2)", "f(2); (2, 2)", "f(2); ()"},
    },
    {
        .sig = "meshgrid(Tensor[] tensors, *, str? indexing=None) -> Tensor[]",
        .doc =
            "Each vector expanded to the grid that all span: along its own dim, or with 'xy' with the first two dims "
            "swapped. 'ij' if not given, with a warning.",
        .compose = [](const Call& c) -> Results {
          const std::span<const Tensor> all = c.tensors(0);
          if (all.empty()) throw Error(Code::bad_argument, "meshgrid expects a non-empty TensorList");
          const std::string_view indexing = c.has(1) ? c.text(1) : "ij";
          if (indexing != "ij" && indexing != "xy") {
            throw Error(Code::bad_argument, "torch.meshgrid: indexing must be one of \"xy\" or \"ij\", but received: " +
                                                std::string(indexing.substr(0, 64)));
          }
          Shape shape;
          for (const Tensor& t : all) {
            if (t.ndim() > 1) {
              throw Error(Code::shape_mismatch,
                          "torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: " +
                              std::to_string(t.ndim()) + "D");
            }
            if (t.dtype() != all[0].dtype())
              throw Error(Code::dtype_mismatch, "torch.meshgrid expects all tensors to have the same dtype");
            shape.push_back(t.numel());
          }
          checked_numel(shape);
          if (!c.has(1)) {
            c.cx.warn("meshgrid",
                      "torch.meshgrid: in an upcoming release, it will be required to pass the indexing "
                      "argument.");
          }
          std::vector<Tensor> grids;
          for (size_t k = 0; k < all.size(); ++k) {
            Shape own(shape.size(), 1);
            own[k] = shape[k];
            const Tensor grid = expand(view(gradwire::contiguous(all[k]), own), shape);
            grids.push_back(indexing == "xy" && all.size() > 1 ? transpose(grid, 0, 1) : grid);
          }
          return grids;
        },
        .examples = {{"[1., 2.]; [3., 4.]; indexing='ij'", "[[1., 1.], [2., 2.]]; [[3., 4.], [3., 4.]]"}},
        .samples = {"f(2); f(3); indexing='ij'", "f(2); f(3); f(2); indexing='xy'", "f(); f(2)"},
    },
    {
        .sig = "repeat_interleave(Tensor self, int repeats, int? dim=None, *, int? output_size=None) -> Tensor",
        .doc = "Each element so many times, one after the other, of a dim or of all in row-major order.",
        .compose = [](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const int64_t times = c.integer(1);
          if (times < 0) throw Error(Code::bad_argument, "repeats can not be negative");
          if (!c.has(2)) return repeat_interleave(reshape(x, {x.numel()}), times, 0, output(c));
          const int dim = wrap_dim(c.integer(2), x.ndim());
          if (x.ndim() == 0) return repeat_interleave(reshape(x, {1}), times, 0, output(c));
          Shape wide(x.shape()), result(x.shape());
          int64_t& size = result[static_cast<size_t>(dim)];
          size = checked_product(size, times);
          if (c.has(3) && c.integer(3) != size)
            throw Error(Code::bad_argument, "allocated size does not match required size");
          checked_numel(result);
          wide.insert(static_cast<size_t>(dim) + 1, times);
          return reshape(gradwire::clone(expand(unsqueeze(x, dim + 1), wide)), result);
        },
        .examples = {{"[1., 2.]; 2", "[1., 1., 2., 2.]"}},
        .samples = {"f(2, 3); 2", "f(2, 3); 2; 1", "f(2, 3); 0; 0", "f(); 3"},
    },
    {
        .sig = "repeat_interleave.Tensor(Tensor self, Tensor repeats, int? dim=None, *, int? output_size=None) -> "
               "Tensor",
        .doc =
            "Each element as often as its number in `repeats` (int32 or int64) says, of a dim or of all in row-major "
            "order.",
        .compose = [](const Call& c) -> Results {
          Tensor x = c.tensor(0);
          if (!c.has(2) || x.ndim() == 0) x = reshape(x, {x.numel()});
          const int dim = c.has(2) ? wrap_dim(c.integer(2), x.ndim()) : 0;
          Tensor times = c.tensor(1);
          if (times.ndim() > 1) throw Error(Code::shape_mismatch, "repeats must be 0-dim or 1-dim tensor");
          if (times.numel() == 1) times = expand(reshape(times, {1}), x.size(dim));
          if (times.numel() != x.size(dim))
            throw Error(Code::shape_mismatch, "repeats must have the same size as input along dim");
          return index_select(x, dim, repeated_places(c.cx, times, output(c)));
        },
        .examples = {{"[1., 2.]; [2, 1]", "[1., 1., 2.]"}},
        .samples = {"f(2, 3); i3(2); 0", "f(3); i3(3)", "f(2, 2); [2]; 1"},
    },
    {
        .sig = "repeat_interleave.places(Tensor repeats, *, int? output_size=None) -> Tensor",
        .doc = "The number of each place as often as `repeats` says there.",
        .compute = [](const Call& c) -> Results {
          return repeated_places(c.cx, c.tensor(0), c.has(1) ? std::optional(c.integer(1)) : std::nullopt);
        },
        .no_grad = "its input and its result are whole numbers",
        .examples = {{"[2, 1]", "[0, 0, 1]"}},
        .samples = {"i3(4)"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kTileOps = kRows;

}  // namespace gradwire::engine
