#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "engine/shape.h"

// The shape module against plain arithmetic in 128 bits, and against brute force on small sizes. CHECK costs more than
// what it checks here, so loops count what is wrong and tell of the first.

using namespace gradwire;
using namespace gradwire::engine;

namespace {

using Wide = __int128;
using Sizes = std::vector<int64_t>;
constexpr int64_t kEdges[] = {0,
                              1,
                              -1,
                              3,
                              (int64_t{1} << 31) - 1,
                              int64_t{1} << 31,
                              int64_t{1} << 40,
                              (int64_t{1} << 40) + 1,
                              int64_t{1} << 62,
                              std::numeric_limits<int64_t>::max(),
                              std::numeric_limits<int64_t>::min()};

struct Faults {
  int64_t count = 0;
  std::string first;
  void add(const std::string& what) {
    if (count++ == 0) first = what;
  }
  ~Faults() noexcept(false) {
    INFO(first);
    CHECK(count == 0);
  }
};

template <class F> bool throws(F f) {
  try {
    f();
    return false;
  } catch (const Error& e) {
    return e.code() == Code::bad_argument || e.code() == Code::shape_mismatch || e.code() == Code::index_out_of_range;
  }
}

// The number of elements, or -1 where there must be an error.
Wide oracle_numel(std::span<const int64_t> shape) {
  Wide n = 1, capped = 1;
  bool zero = false;
  for (const int64_t s : shape) {
    if (s < 0 || s > kMaxDim) return -1;
    zero = zero || s == 0;
    if (s > 0) capped = std::min<Wide>(capped * s, Wide{1} << 80);
    n = zero ? 0 : capped;
  }
  return capped > kMaxNumel ? -1 : n;
}

bool numel_right(std::span<const int64_t> shape) {
  const Wide want = oracle_numel(shape);
  try {
    return Wide{checked_numel(shape)} == want;
  } catch (const Error& e) {
    return want < 0 && e.code() == Code::bad_argument;
  }
}

bool extent_right(std::span<const int64_t> shape, std::span<const int64_t> strides, int64_t offset) {
  Wide first = offset, last = offset;
  bool empty = false, steps_fit = true;
  // Three terms of 2^126 would not fit: as doubles they tell of that.
  long double wide_first = static_cast<long double>(offset), wide_last = wide_first;
  for (size_t d = 0; d < shape.size(); ++d) {
    empty = empty || shape[d] == 0;
    const Wide way = Wide{shape[d] - 1} * strides[d];
    steps_fit = steps_fit && way == static_cast<int64_t>(way);
    (strides[d] < 0 ? first : last) += way;
    (strides[d] < 0 ? wide_first : wide_last) += static_cast<long double>(way);
  }
  const bool fits = wide_first > -9.3e18L && wide_last < 9.3e18L && first >= std::numeric_limits<int64_t>::min() &&
                    last <= std::numeric_limits<int64_t>::max();
  try {
    const auto e = extent_of(shape, strides, offset);
    if (!e) return empty;
    return !empty && fits && e->first == first && e->last == last;
  } catch (const Error&) {
    return empty || !fits || !steps_fit;  // an empty tensor may overflow before its 0 is seen
  }
}

// All elements' places, in row-major order.
Sizes places(std::span<const int64_t> shape, std::span<const int64_t> strides, int64_t offset) {
  Sizes at{offset};
  for (size_t d = 0; d < shape.size(); ++d) {
    Sizes next;
    next.reserve(at.size() * static_cast<size_t>(shape[d]));
    for (const int64_t a : at) {
      for (int64_t i = 0; i < shape[d]; ++i) next.push_back(a + i * strides[d]);
    }
    at = std::move(next);
  }
  return at;
}

std::mt19937_64 random_(11);
int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

// Of any magnitude, with a taste for what is special.
int64_t any_size() {
  const uint64_t r = random_();
  if (r % 4 == 0) return kEdges[(r >> 8) % std::size(kEdges)];
  const int64_t v = static_cast<int64_t>(random_() >> (r >> 8) % 64);
  return r % 8 == 1 ? -v : v;
}

std::string text(std::span<const int64_t> a, std::span<const int64_t> b = {}) {
  return to_string(a) + " " + to_string(b);
}

}  // namespace

TEST_CASE("The number of elements of every edge tuple of up to five sizes is exact, or refused", "[shape][T18][A36]") {
  Faults faults;
  for (size_t rank = 0; rank <= 5; ++rank) {
    Sizes at(rank, 0), shape(rank, kEdges[0]);
    for (;;) {
      if (!numel_right(shape)) faults.add(text(shape));
      size_t d = 0;
      while (d < rank && ++at[d] == std::ssize(kEdges)) at[d] = 0, shape[d] = kEdges[0], ++d;
      if (d == rank) break;
      shape[d] = kEdges[at[d]];
    }
  }
  CHECK(throws([] { checked_numel(Sizes(33, 1)); }));
  CHECK(throws([] { checked_numel(Sizes(10'000, 0)); }));
  CHECK(checked_numel(Sizes(32, 1)) == 1);
  CHECK_THROWS_AS(checked_numel(Sizes{-1}), Error);
  try {
    checked_numel(Sizes{-1});
  } catch (const Error& e) {
    CHECK(e.message() == "Trying to create tensor with negative dimension -1: [-1]");
  }
}

TEST_CASE("Five million random shapes count their elements exactly, or are refused", "[shape][T18]") {
  Faults faults;
  for (int round = 0; round < 5'000'000; ++round) {
    int64_t shape[6];
    const auto rank = static_cast<size_t>(below(7));
    for (size_t d = 0; d < rank; ++d) shape[d] = round % 2 ? any_size() : int64_t{1} << below(12);
    if (!numel_right({shape, rank})) faults.add(text({shape, rank}));
  }
  for (const int64_t n : {int64_t{0}, int64_t{1}, kMaxNumel}) {
    for (int t = 0; t < kDTypes; ++t)
      CHECK(Wide{bytes_of(n, static_cast<DType>(t))} == Wide{n} * size_of(static_cast<DType>(t)));
  }
}

TEST_CASE("The extent of any tensor is exact, or refused", "[shape][T18]") {
  Faults faults;
  for (const int64_t a : kEdges) {
    for (const int64_t b : kEdges) {
      for (const int64_t s : kEdges) {
        for (const int64_t t : kEdges) {
          for (const int64_t offset : kEdges) {
            const int64_t shape[] = {a, b}, strides[] = {s, t};
            if (a < 0 || b < 0) continue;  // shapes are checked before
            if (!extent_right(shape, strides, offset)) faults.add(text(shape, strides) + " " + std::to_string(offset));
          }
        }
      }
    }
  }
  for (int round = 0; round < 3'000'000; ++round) {
    int64_t shape[3], strides[3];
    const auto rank = static_cast<size_t>(below(4));
    for (size_t d = 0; d < rank; ++d) {
      shape[d] = any_size(), strides[d] = any_size();
      if (shape[d] < 0) shape[d] = shape[d] == std::numeric_limits<int64_t>::min() ? 0 : -shape[d];
    }
    if (!extent_right({shape, rank}, {strides, rank}, any_size())) faults.add(text({shape, rank}, {strides, rank}));
  }
}

TEST_CASE("Contiguous strides count the elements behind, and are recognised", "[shape][A16]") {
  Faults faults;
  for (int round = 0; round < 300'000; ++round) {
    Sizes shape, strides;
    for (int64_t rank = below(5); rank > 0; --rank) shape.push_back(below(5)), strides.push_back(below(8));
    const Shape made = contiguous_strides(shape);
    int64_t n = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      if (made[d] != n) faults.add(text(shape));
      n *= std::max<int64_t>(shape[d], 1);
    }
    if (!is_contiguous(shape, made)) faults.add(text(shape, made));
    // Any strides: contiguous means that the elements stand one behind the other.
    if (round % 2) strides = Sizes(made.begin(), made.end());
    if (round % 4 == 1 && !strides.empty()) strides[static_cast<size_t>(below(std::ssize(strides)))] += 1;
    const Sizes at = places(shape, strides, 0);
    bool in_order = true;
    for (size_t k = 0; k < at.size(); ++k) in_order = in_order && at[k] == static_cast<int64_t>(k);
    if (is_contiguous(shape, strides) != in_order) faults.add(text(shape, strides));
  }
}

TEST_CASE("A dim wraps once around the number of dims", "[shape][A57]") {
  for (int n = 0; n <= 32; ++n) {
    const int64_t most = std::max(n, 1);
    for (const int64_t d : {-most - 1, -most, int64_t{-1}, int64_t{0}, most - 1, most, kEdges[9], kEdges[10]}) {
      INFO(n << " " << d);
      if (d < -most || d >= most)
        CHECK(throws([&] { wrap_dim(d, n); }));
      else
        CHECK(wrap_dim(d, n) == (d < 0 ? d + most : d));
    }
  }
  try {
    wrap_dim(2, 2);
  } catch (const Error& e) {
    CHECK(e.message() == "Dimension out of range (expected to be in range of [-2, 1], but got 2)");
  }
}

TEST_CASE("Shapes broadcast by the rule, and name the right-most clash",
          "[shape][B3][B4][B5][B6][B7][B8][B9][B10][B11]") {
  Faults faults;
  constexpr int64_t kSizes[] = {0, 1, 2, 3, int64_t{1} << 40};
  for (int round = 0; round < 1'000'000; ++round) {
    Sizes a, b;
    for (int64_t n = below(5); n > 0; --n) a.push_back(kSizes[below(5)]);
    for (int64_t n = below(5); n > 0; --n) b.push_back(kSizes[below(5)]);
    const size_t n = std::max(a.size(), b.size());
    Sizes x(n - a.size(), 1), y(n - b.size(), 1), want;
    x.insert(x.end(), a.begin(), a.end()), y.insert(y.end(), b.begin(), b.end());
    int clash = -1;
    for (size_t d = 0; d < n; ++d) {
      if (x[d] != y[d] && x[d] != 1 && y[d] != 1) clash = static_cast<int>(d);
      want.push_back(x[d] == 1 ? y[d] : x[d]);
    }
    try {
      const Shape got = broadcast_shapes(a, b);
      if (clash >= 0 || !std::ranges::equal(got, want)) faults.add(text(a, b));
    } catch (const Error& e) {
      const std::string message = "The size of tensor a (" + std::to_string(x[static_cast<size_t>(clash)]) +
                                  ") must match the size of tensor b (" +
                                  std::to_string(y[static_cast<size_t>(clash)]) + ") at non-singleton dimension " +
                                  std::to_string(clash);
      if (clash < 0 || e.message() != message) faults.add(text(a, b));
    }
    const bool reaches = clash < 0 && b == want && a.size() <= b.size();
    if (broadcasts_to(a, b) != reaches) faults.add(text(a, b) + " to");
    if (reaches) {
      // Index by index: where a has size 1 or nothing, all come from one place.
      Shape strides(n, 0);
      const Shape own = contiguous_strides(a);
      expand_strides(a, own, b, strides.data());
      for (size_t d = 0; d < n; ++d) {
        const size_t more = n - a.size();
        const bool repeated = d < more || (a[d - more] == 1 && b[d] != 1);
        if (strides[d] != (repeated ? 0 : own[d - more])) faults.add(text(a, b) + " strides");
      }
    }
  }
}

TEST_CASE("One unknown size is inferred, and every other mismatch refused", "[shape][A18][T18]") {
  Faults faults;
  for (int round = 0; round < 1'000'000; ++round) {
    Sizes to;
    for (int64_t n = below(5); n > 0; --n) to.push_back(round % 3 == 0 ? any_size() : below(6) - 1);
    const int64_t numel = round % 5 == 0 ? any_size() & kMaxNumel : below(100);
    if (numel < 0) continue;
    int unknown = 0;
    bool bad = false;
    Wide known = 1;
    for (const int64_t s : to) {
      unknown += s == -1;
      bad = bad || s < -1;
      if (s >= 0) known = std::min<Wide>(known * s, Wide{1} << 62);  // past any numel
      if (s == 0) known = 0;
    }
    bad = bad || unknown > 1 || (unknown == 0 ? known != numel : known == 0 || numel % known != 0);
    Sizes want = to;
    if (!bad) {
      for (int64_t& s : want) s = s == -1 ? static_cast<int64_t>(numel / known) : s;
      bad = oracle_numel(want) < 0;
    }
    try {
      const Shape got = infer_shape(to, numel);
      if (bad || !std::ranges::equal(got, want)) faults.add(text(to) + std::to_string(numel));
    } catch (const Error& e) {
      if (!bad) faults.add(text(to) + std::to_string(numel) + e.message());
    }
  }
  CHECK(throws([] { infer_shape(Sizes{-1, 0}, 0); }));
  try {
    infer_shape(Sizes{3, 3}, 10);
  } catch (const Error& e) {
    CHECK(e.message() == "shape '[3, 3]' is invalid for input of size 10");
  }
}

TEST_CASE("A view exists exactly where one set of strides reads the same elements in the same order",
          "[shape][A16][A17][A18]") {
  Faults faults;
  int64_t views = 0, copies = 0;
  for (int round = 0; round < 400'000; ++round) {
    // A tensor as slicing, transposing and expanding make them.
    Sizes shape, strides;
    int64_t step = 1;
    for (int64_t n = below(4); n > 0; --n) {
      const int64_t size = 1 + below(4), gap = below(4) ? 1 : 2;
      shape.push_back(size), strides.push_back(below(8) ? step * gap : 0);
      step *= size * gap;
    }
    std::reverse(shape.begin(), shape.end()), std::reverse(strides.begin(), strides.end());
    if (shape.size() > 1 && below(3) == 0) {
      const auto d = static_cast<size_t>(below(std::ssize(shape) - 1));
      std::swap(shape[d], shape[d + 1]), std::swap(strides[d], strides[d + 1]);
    }
    int64_t numel = 1;
    for (const int64_t s : shape) numel *= s;
    // Another shape of as many elements.
    Sizes to;
    int64_t left = numel;
    while (left > 1 && to.size() < 4) {
      Sizes divisors;
      for (int64_t k = 1; k <= left; ++k) {
        if (left % k == 0) divisors.push_back(k);
      }
      const int64_t k = divisors[static_cast<size_t>(below(std::ssize(divisors)))];
      to.push_back(k), left /= k;
      if (below(6) == 0) to.push_back(1);
    }
    if (left > 1) to.push_back(left);
    const Sizes at = places(shape, strides, 0);
    const auto got = view_strides(shape, strides, to);
    if (got) {
      ++views;
      if (places(to, *got, 0) != at) faults.add(text(shape, strides) + " to " + text(to, *got));
      continue;
    }
    ++copies;
    // Then no strides do: those that fit the second element along each dim are the only candidates.
    const Shape flat = contiguous_strides(to);
    Sizes only;
    for (size_t d = 0; d < to.size(); ++d) only.push_back(to[d] > 1 ? at[static_cast<size_t>(flat[d])] - at[0] : 0);
    if (places(to, only, 0) == at) faults.add(text(shape, strides) + " could be " + text(to, only));
  }
  CHECK(views > 1000);
  CHECK(copies > 1000);
  CHECK(view_strides(Sizes{0, 3}, Sizes{3, 1}, Sizes{3, 0}).has_value());
}

TEST_CASE("Slices are clamped as Python clamps them", "[shape][C24]") {
  Faults faults;
  auto right = [](std::optional<int64_t> start, std::optional<int64_t> stop, int64_t step, int64_t size) {
    auto clamp = [size](int64_t i) { return i < 0 ? std::max<Wide>(0, Wide{i} + size) : std::min<Wide>(i, size); };
    const Wide from = start ? clamp(*start) : 0, to = stop ? clamp(*stop) : size;
    const Wide length = to <= from ? 0 : (to - from + step - 1) / step;
    const Range r = slice_range(start, stop, step, size);
    return r.start == from && r.length == length;
  };
  Sizes ends(std::begin(kEdges), std::end(kEdges));
  for (int64_t i = -7; i <= 7; ++i) ends.push_back(i);
  for (const int64_t size : {int64_t{0}, int64_t{1}, int64_t{5}, int64_t{1} << 40}) {
    for (size_t a = 0; a <= ends.size(); ++a) {
      for (size_t b = 0; b <= ends.size(); ++b) {
        for (const int64_t step : ends) {
          if (step <= 0) continue;
          const std::optional<int64_t> start = a ? std::optional(ends[a - 1]) : std::nullopt,
                                       stop = b ? std::optional(ends[b - 1]) : std::nullopt;
          if (!right(start, stop, step, size)) faults.add(std::to_string(size) + " " + std::to_string(step));
        }
      }
    }
  }
  CHECK(throws([] { slice_range({}, {}, 0, 3); }));
  CHECK(throws([] { slice_range({}, {}, -1, 3); }));
  CHECK(throws([] { slice_range({}, {}, kEdges[10], 3); }));
}

TEST_CASE("A tensor overlaps itself where two indexes name one element", "[shape][A19][T18]") {
  Faults faults;
  int64_t yes = 0, unsure = 0;
  for (int round = 0; round < 500'000; ++round) {
    Sizes shape, strides;
    for (int64_t n = below(4); n > 0; --n) shape.push_back(below(4)), strides.push_back(below(13) - 4);
    Sizes at = places(shape, strides, 0);
    std::sort(at.begin(), at.end());
    const bool truth = std::adjacent_find(at.begin(), at.end()) != at.end();
    const bool said = overlaps_itself(shape, strides);
    yes += truth;
    if (truth && !said) faults.add(text(shape, strides));
    unsure += said && !truth;
    // Exact where one dim's step goes past all that the smaller steps span, as in all views of contiguous memory.
    if (said && !truth) {
      std::vector<std::pair<int64_t, int64_t>> dims;
      for (size_t d = 0; d < shape.size(); ++d) {
        if (shape[d] > 1) dims.emplace_back(std::abs(strides[d]), shape[d]);
      }
      std::sort(dims.begin(), dims.end());
      int64_t reach = 0;
      bool nested = true;
      for (const auto& [step, size] : dims) nested = nested && step > reach, reach += step * (size - 1);
      if (nested) faults.add(text(shape, strides) + " does not overlap");
    }
  }
  CHECK(yes > 1000);
  CHECK(unsure < 500'000 / 4);
  CHECK(overlaps_itself(Sizes{int64_t{1} << 40, 3}, Sizes{int64_t{1} << 40, kEdges[9]}));
}

TEST_CASE("A view within its base stands where it would if the base were contiguous", "[shape][D33][T18]") {
  Faults faults;
  int64_t inside = 0, outside = 0, missed = 0;
  for (int round = 0; round < 500'000; ++round) {
    // A base as slicing and transposing make them, no element twice.
    Sizes shape, strides;
    int64_t step = 1;
    for (int64_t n = 1 + below(3); n > 0; --n) {
      shape.push_back(1 + below(4)), strides.push_back(step);
      step *= shape.back() * (1 + below(2));
    }
    for (size_t d = shape.size(); d-- > 1;) {
      const auto k = static_cast<size_t>(below(static_cast<int64_t>(d) + 1));
      std::swap(shape[d], shape[k]), std::swap(strides[d], strides[k]);
    }
    const int64_t offset = below(3);
    const Sizes base = places(shape, strides, offset);
    std::map<int64_t, int64_t> place_of;  // memory -> row-major number in the base
    for (size_t k = 0; k < base.size(); ++k) place_of[base[k]] = static_cast<int64_t>(k);
    // A view of it, by a slice of each dim, in some order; or something else.
    Sizes vshape, vstrides;
    int64_t voffset = offset;
    const bool wild = below(4) == 0;
    if (wild) {
      for (int64_t n = below(3); n > 0; --n) vshape.push_back(1 + below(3)), vstrides.push_back(below(step + 2));
      voffset += below(step + 2) - 1;
    } else {
      for (size_t d = 0; d < shape.size(); ++d) {
        const int64_t from = below(shape[d]), every = 1 + below(2), count = (shape[d] - from + every - 1) / every;
        vshape.push_back(1 + below(count)), vstrides.push_back(strides[d] * every), voffset += from * strides[d];
      }
      if (below(2)) std::reverse(vshape.begin(), vshape.end()), std::reverse(vstrides.begin(), vstrides.end());
    }
    Sizes want;
    bool within_base = true;
    for (const int64_t at : places(vshape, vstrides, voffset)) {
      within_base = within_base && place_of.contains(at);
      if (within_base) want.push_back(place_of[at]);
    }
    const auto g = within(shape, strides, offset, vshape, vstrides, voffset);
    if (g) {
      ++inside;
      if (!within_base || places(vshape, g->strides, g->offset) != want)
        faults.add(text(shape, strides) + std::to_string(offset) + " view " + text(vshape, vstrides) +
                   std::to_string(voffset));
    } else {
      within_base ? ++missed : ++outside;
      if (within_base && !wild) faults.add(text(shape, strides) + " lacks " + text(vshape, vstrides));
    }
  }
  CHECK(inside > 1000);
  CHECK(outside > 1000);
}
