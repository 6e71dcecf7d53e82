#pragma once

#include "engine/backend.h"
#include "schema/error.h"

// Every kernel with a loop of its own, on both back ends. `out` and `in` name the views of the launch in order. All
// take any strides and empty views; results do not depend on the number of threads. Half types compute in float32.

namespace gradwire::engine {

/// sum: out = scale * sum of in over the dims where out has size 1 and in has not. Both have the same ndim. Floats keep
/// their dtype (halves add in float, floats pairwise or blocked, error growing no faster than log n per block); bool
/// and integer inputs give an int64 out. An empty sum is 0.
struct SumParams {
  double scale = 1;  // 1/n for mean; only 1 for integers
};

/// norm: out = (sum of |in|^p)^(1/p) over the dims where out has size 1 and in has not; floats, as sum adds them. p = 0
/// counts what is not 0. p is finite. An empty norm is 0.
struct NormParams {
  double p = 2;
};

/// extreme: out[0] = the largest (or smallest) of in over the dims where out has size 1 and in has not, none of them
/// empty; any dtype, which stays. NaN wins. out[1], where there is one, is the place of the first such along the one
/// reduced dim, int64.
struct ExtremeParams {
  bool largest = true;
};

/// scan: along the last dim, out in in[0]'s dtype, floats kept in double. linear takes in[0] = b, in[1] = a:
/// h[i] = b[i] + a[i] h[i - 1], or with `lag` a[i - 1], for the transpose of another scan. largest and smallest give
/// out[1], int64, the place of the last element equal to out; NaN stays.
enum class ScanOp : uint8_t { sum, product, log_sum_exp, linear, largest, smallest };
struct ScanParams {
  ScanOp op = ScanOp::sum;
  bool lag = false;
};

/// sort: along the last dim, out[0] values and out[1] their places (int64) have k <= n columns: the first k of a stable
/// sort; NaN is the largest. On the CPU out[2] is scratch, int64 [ways, n words_of_sort(dtype)]: as many rows are
/// sorted at a time.
struct SortParams {
  bool descending = false;
};
constexpr int64_t words_of_sort(DType t) { return size_of(t) > 4 ? 4 : 2; }

/// linear_index: out int64 [index shape], in = up to 8 index tensors (int64, broadcast to out's shape); for each the
/// size of the indexed dim and its stride. out = sum over k of wrap(in[k]) * stride[k]. Throws
/// Error{index_out_of_range} "index 5 is out of bounds for dimension 0 with size 5" for the first value outside [-size,
/// size); checks before it writes.
struct LinearIndexParams {
  int64_t size[8], stride[8];
  int dim[8];                                                       // for the message
  bool negative = true;                                             // counts from the end; else it is outside too
  Error (*refuse)(int64_t value, int dim, int64_t size) = nullptr;  // another message
};
Error index_error(const LinearIndexParams&, size_t k, int64_t value);

/// put: in = target (expanded to the result shape with stride 0 along the index dims), offsets, values (any stride).
struct PutParams {
  bool accumulate = false;
};

/// triangle: of the matrices in the last two dims of out, what lies outside of the triangle becomes 0.
struct TriangleParams {
  int64_t diagonal = 0;  // within +-kMaxDim
  bool lower = true;
};

/// sequence: out[i], contiguous, numbers but bool. `steps`: start + i * step, for whole types in whole numbers that
/// wrap. `between`: from start to end in equal steps, counted from the nearer end. `powers`: base to the power of that.
struct SequenceParams {
  enum Kind : uint8_t { steps, between, powers } kind = steps;
  double start = 0, step = 1, end = 0, base = 10;
  int64_t whole_start = 0, whole_step = 1;
};

/// nll_*: class c has weight in[...]; targets equal to ignore_index count 0. Throws Error{index_out_of_range}
/// "Target 2 is out of bounds." before it writes.
struct NllParams {
  int64_t ignore_index = -100;
};

/// fill takes the value in its category; the front end has checked that it fits.
struct FillParams {
  Scalar value;
};

/// Philox 4x32-10 as in Random123: key = seed, counter = {offset + element / 4, 0...}; element % 4 picks the word
/// (float64 takes two words: element / 2, element % 2). uniform: [0, 1), 24 bits (float64: 53; halves: drawn as float
/// with the bits that the type holds). normal: Box-Muller over pairs of words.
struct RandomParams {
  uint64_t seed = 0, offset = 0;
};
/// whole: [low, low + range), range 0 standing for 2^64; an element takes two words. permutation: 0 to n - 1 in the
/// order of their two words.
struct WholeParams {
  RandomParams random;
  int64_t low = 0;
  uint64_t range = 0;
};

/// conv_*: one sum of products T over x [N, C, i...], w [O, C / groups, k...] and g [N, O, o...], with up to three
/// spatial dims, T = sum of x[n, c, o * stride - padding + k * dilation] * w[o', c', k] * g[n, o', o]; each kernel
/// gives T's derivative by its result. All contiguous, float32 or float64. out[1] is scratch, uint8 of as many bytes as
/// conv_scratch says. float32 on the CPU may depend on the number of threads in its last bits.
struct ConvParams {
  int64_t stride[3] = {1, 1, 1}, padding[3] = {}, dilation[3] = {1, 1, 1}, groups = 1;
};
enum class ConvPass : uint8_t { forward, input, weight };

/// max_pool: windows over up to three spatial dims of [N, C, i...]; what lies outside is never the largest. Adaptive:
/// output o of n reads the elements from floor(o i / n) up to ceil((o + 1) i / n), and the sizes here are not looked
/// at.
struct PoolParams {
  int64_t kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, padding[3] = {}, dilation[3] = {1, 1, 1};
  bool adaptive = false;
};

/// resample: out [B, m, A], in [B, n, A], contiguous, float32 or float64; out[o] = the sum of weight * in[i] over
/// start[m + o] elements i from start[o] on. The weight of i is weight[o], weight[i], or the next one of o's own, which
/// begin at weight[start[2 m + o]]. Host memory.
struct ResampleParams {
  enum Kind : uint8_t { by_result, by_source, each } kind = each;
  int64_t m = 0, starts = 0, weights = 0;  // elements of start and weight: 3 m, and as many as are used
  const int64_t* start = nullptr;
  const double* weight = nullptr;
  int64_t at(int64_t o, int64_t first) const {
    return kind == by_result ? o : kind == by_source ? first : start[2 * m + o];
  }
};

/// optimize: one step of an optimiser, in place: p, and what it keeps beside it. engine/functors/optim.h has the
/// formulas, the names of torch.optim's documentation; numbers that change from step to step come computed.
enum class OptimKind : uint8_t { sgd, adam, adamax, nadam, radam, rmsprop, adagrad, adadelta, rprop, asgd };
struct OptimParams {
  OptimKind kind = OptimKind::sgd;
  bool maximize = false, nesterov = false, first = false;  // first: what is kept has no values yet
  bool amsgrad = false, centered = false, rectified = false;
  double step = 0, more = 0;  // what a direction is multiplied by; nadam has two
  double shrink = 1;          // p is multiplied by this first
  double weight_decay = 0, momentum = 0, dampening = 0, beta1 = 0, beta2 = 0, eps = 0, correction = 1;
  double eta_minus = 0, eta_plus = 0, least = 0, most = 0, mu = 0;
};

/// channel_*: tensors [N, C, ...], contiguous, float32 or float64, of one shape and dtype; numbers by channel are
/// float64 [C] or rows of [.., C], contiguous. N and what follows C are not empty.
struct ChannelParams {
  static constexpr int kPairs = 6;
  double eps = 0;
  int pairs[kPairs][2] = {}, count = 0;
};

#define GW_KERNELS(X)                                                                                                  \
  X(convert)       /* out = in, in out's dtype; same shape. Float to integer truncates toward 0; what does not fit     \
                      wraps modulo 2^bits, NaN and infinities give 0. Anything to bool: != 0. */                       \
  X(fill)          /* FillParams; out = value */                                                                       \
  X(sum)           /* SumParams */                                                                                     \
  X(norm)          /* NormParams */                                                                                    \
  X(prod)          /* out = the product of in over the dims where out has size 1 and in has not; out's dtype is in's,  \
                      or int64 for bool and integers; of nothing 1 */                                                  \
  X(extreme)       /* ExtremeParams */                                                                                 \
  X(scan)          /* ScanParams */                                                                                    \
  X(sort)          /* SortParams */                                                                                    \
  X(matmul)        /* out [B..., m, n] = in[0] [B..., m, k] x in[1] [B..., k, n], one dtype of all ten, bool as or     \
                      of ands; the B dims of inputs are broadcast (stride 0) to out's; k may be 0 (zeros) */           \
  X(linear_index)  /* LinearIndexParams */                                                                             \
  X(take)          /* out[i] = in[0].data[offset of i by in[0]'s strides + in[1][i]]; in[0] and in[1] (int64           \
                      offsets in elements) have out's shape by stride 0; any dtype */                                  \
  X(put)           /* PutParams; out[0] is the target seen as take sees in[0]; in[0] offsets, in[1] values (target's   \
                      dtype). Same place twice: the last in row-major order wins, or adds up; deterministic */         \
  X(triangle)      /* TriangleParams; out */                                                                           \
  X(sequence)      /* SequenceParams; out */                                                                           \
  X(count_nonzero) /* out int64 0-dim; in any dtype */                                                                 \
  X(nonzero)       /* out int64 [n, in.ndim]: the coordinates in row-major order; n is what count_nonzero says */      \
  X(log_softmax)   /* out, in [..., n]: along the last dim, x - max - log sum exp(x - max); floats */                  \
  X(softmax)       /* out, in [..., n]: along the last dim, exp(x - max) / sum exp(x - max); floats */                 \
  X(nll_pick)      /* NllParams; out [N, D], in = input [N, C, D], target int64 [N, D], weight [C] (stride 0 over a    \
                      single 1 where there is none); out = -weight[t] * input[n, t, d]; 0 where ignored */             \
  X(nll_spread)    /* NllParams; out [N, C, D] (all of it written), in = grad [N, D], target, weight: the transpose */ \
  X(conv_forward)  /* ConvParams; out = g; in = x, w */                                                                \
  X(conv_input)    /* ConvParams; out = x; in = g, w */                                                                \
  X(conv_weight)   /* ConvParams; out = w; in = g, x */                                                                \
  X(max_pool)      /* PoolParams; out = values, int64 places in the plane (of equals the first; NaN is largest), both  \
                      [N, C, o...]; in [N, C, i...]; all contiguous; floats */                                         \
  X(put_places)    /* out [..., n] = zeros with in[0] [..., m] added at the int64 places in[1] [..., m] of its row;    \
                      contiguous, float32 or float64; throws index_out_of_range */                                     \
  X(take_places)   /* out [..., m] = the elements of in[0] [..., n] at the int64 places in[1] of its row; contiguous,  \
                      any dtype; throws index_out_of_range */                                                          \
  X(resample)      /* ResampleParams */                                                                                \
  X(channel_moments) /* ChannelParams; out[0][t] = the means of up to three tensors, in[t]; out[1][p] = the mean of    \
                        (a - mean a) (b - mean b), for the tensors a and b of pair p */                                \
  X(channel_mix)     /* out = in[0][0] + in[0][1] * in[1] + ..., with up to three tensors and in[0] numbers */         \
  X(channel_norm)    /* ChannelParams; out = (x - mean) / sqrt(var + eps) * weight + bias, mean, var (biased);         \
                        in = x, weight, bias */                                                                        \
  X(channel_norm_backward) /* ChannelParams; out = the gradient of channel_norm's result for x, and [2, C] those for   \
                              weight and bias; in = grad, x, weight */                                                 \
  X(uniform)               /* RandomParams; out contiguous, floating */                                                \
  X(normal)                /* RandomParams; out contiguous, floating */                                                \
  X(whole)                 /* WholeParams; out contiguous, any dtype */                                                \
  X(permutation)           /* RandomParams; out[0] int64 [n], out[1] int64 [4n] to work in, contiguous */              \
  X(optimize) /* OptimParams; out = p, then up to three that are kept (no data where there is none); in = g; all       \
                 floats of one dtype and shape, contiguous, apart from each other */

#define GW_DECLARE(name) void name(const Launch&);
namespace cpu {
GW_KERNELS(GW_DECLARE)
}
namespace cuda {
GW_KERNELS(GW_DECLARE)
}
#undef GW_DECLARE

// What a convolution works in, beside the views of its launch; their data is not looked at.
namespace cpu {
int64_t conv_scratch(ConvPass, const Launch&);
}
namespace cuda {
int64_t conv_scratch(ConvPass, const Launch&);
}

}  // namespace gradwire::engine
