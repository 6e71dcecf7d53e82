#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "engine/cpu/dispatch.h"
#include "engine/cpu/loop.h"
#include "engine/kernels.h"
#include "engine/math.h"
#include "schema/error.h"

namespace gradwire::engine::cpu {
namespace {

constexpr int64_t kBlock = 8192;   // elements of a task
constexpr int64_t kChunk = 65536;  // elements whose nonzeros are counted together

/// The first value outside [-size, size), or [0, size), in row-major order is an error.
void check_index(View v, const LinearIndexParams& p, size_t k) {
  const int64_t size = p.size[k], least = p.negative ? -size : 0;
  int64_t shape[kMaxDims];  // each value once
  for (int d = 0; d < v.ndim; ++d) shape[d] = v.strides[d] ? v.shape[d] : std::min<int64_t>(v.shape[d], 1);
  v.shape = shape;
  const Nest n = nest_of({&v, 1}, true);
  if (n.total == 0) return;
  for (int64_t i = 0; i < n.total / n.size[0]; ++i) {
    char* at[kMaxOperands];
    n.outer(i, 1, at);
    const auto value = [&](int64_t c) { return *reinterpret_cast<const int64_t*>(at[0] + c * n.stride[0][0]); };
    bool bad = false;
    for (int64_t c = 0; c < n.size[0]; ++c) bad |= value(c) < least || value(c) >= size;
    for (int64_t c = 0; bad; ++c) {
      if (value(c) < least || value(c) >= size) throw index_error(p, k, value(c));
    }
  }
}

struct Dimension {
  int64_t size, stride;
};

/// out = wrap(index) * stride, plus the second input where there is one.
template <bool more> void index_row(const void* functor, const Row& row) {
  const Dimension d = *static_cast<const Dimension*>(functor);
  auto* out = static_cast<int64_t*>(row.out);
  const auto *in = static_cast<const int64_t*>(row.in[0]), *sum = static_cast<const int64_t*>(row.in[1]);
  for (int64_t i = 0; i < row.n; ++i) {
    const int64_t x = in[i * row.step[0]];
    out[i] = (x < 0 ? x + d.size : x) * d.stride + (more ? sum[i * row.step[1]] : 0);
  }
}

/// Rows are read at random: those to come are asked for in time.
constexpr int64_t kAhead = 4;
void ask_for(const char* p, int64_t bytes) {
  for (int64_t b = 0; b < std::min<int64_t>(bytes, 2048); b += 64) __builtin_prefetch(p + b);
}

/// f(place of each operand, elements) for the rows of a nest, long ones in parts; ahead(place) kAhead rows before.
template <class F, class A> void each_row(const Nest& n, F f, A ahead) {
  const int64_t width = n.size[0], rows = n.total / width;
  if (width > kBlock) {
    const int64_t across = (width + kBlock - 1) / kBlock;
#pragma omp parallel for schedule(static)
    for (int64_t t = 0; t < rows * across; ++t) {
      const int64_t c = t % across * kBlock;
      char* at[kMaxOperands] = {};
      n.outer(t / across, 1, at);
      for (int k = 0; k < n.operands; ++k) at[k] += c * n.stride[0][k];
      f(at, std::min(kBlock, width - c));
    }
    return;
  }
#pragma omp parallel if (n.total > kParallel)
  {
    const int64_t first = rows * team_rank() / team_size(), last = rows * (team_rank() + 1) / team_size();
    NestWalk here(n, first, 1), there(n, std::min(first + kAhead, rows - 1), 1);
    for (int64_t r = first; r < last; ++r, here.next()) {
      if (r + kAhead < last) ahead(there.at), there.next();
      f(here.at, width);
    }
  }
}

template <class T> void put_one(char* to, const char* value, bool accumulate) {
  T& x = *reinterpret_cast<T*>(to);
  const T& y = *reinterpret_cast<const T*>(value);
  if (!accumulate)
    x = y;
  else if constexpr (std::is_integral_v<T>)
    x = (Int<T>(x) + Int<T>(y)).v;
  else
    x = stored<T>(computed(x) + computed(y));
}

template <class T> void add_row(T* to, const T* values, int64_t n) {
#pragma omp simd
  for (int64_t c = 0; c < n; ++c) {
    if constexpr (std::is_integral_v<T>)
      to[c] = (Int<T>(to[c]) + Int<T>(values[c])).v;
    else
      to[c] = stored<T>(computed(to[c]) + computed(values[c]));
  }
}

/// Rows in row-major order. Where a row has one offset its columns are independent: threads share them.
template <class T> void put_as(const Nest& n, bool accumulate) {
  const int64_t width = n.size[0], rows = n.total / width, *s = n.stride[0];
  const bool split = s[1] == 0 && s[0] != 0 && width >= 32 && n.total > kParallel;
#pragma omp parallel if (split)
  {
    const int64_t rank = split ? team_rank() : 0, team = split ? team_size() : 1;
    const int64_t line = std::max<int64_t>(1, 64 / static_cast<int64_t>(sizeof(T)));  // no cache line has two writers
    const int64_t part = ((width + team - 1) / team + line - 1) / line * line;
    const int64_t first = std::min(rank * part, width), last = std::min(first + part, width);
    const auto offset = [](const char* p) {
      return *reinterpret_cast<const int64_t*>(p) * static_cast<int64_t>(sizeof(T));
    };
    NestWalk here(n, 0, 1), there(n, std::min(kAhead, rows - 1), 1);
    for (int64_t r = 0; r < rows && first < last; ++r, here.next()) {
      if (r + kAhead < rows && s[1] == 0 && s[0] == sizeof(T)) {
        ask_for(there.at[0] + first * s[0] + offset(there.at[1]), (last - first) * s[0]);
        there.next();
      }
      char* at[kMaxOperands] = {};
      for (int k = 0; k < 3; ++k) at[k] = here.at[k] + first * s[k];
      if (s[1] == 0 && s[0] == sizeof(T) && s[2] == sizeof(T)) {
        char* to = at[0] + offset(at[1]);
        const int64_t w = last - first;
        if (!accumulate) {
          std::memcpy(to, at[2], static_cast<size_t>(w) * sizeof(T));
        } else {
          add_row(reinterpret_cast<T*>(to), reinterpret_cast<const T*>(at[2]), w);
        }
      } else {
        for (int64_t c = first; c < last; ++c) {
          put_one<T>(at[0] + offset(at[1]), at[2], accumulate);
          for (int k = 0; k < 3; ++k) at[k] += s[k];
        }
      }
    }
  }
}

template <class T> bool nonzero_at(const char* p) {
  const T& x = *reinterpret_cast<const T*>(p);
  if constexpr (kHalf<T>)
    return (x.bits & 0x7FFF) != 0;
  else
    return x != T(0);
}

/// f(first element, its place, stride, count) for the runs of elements [from, to) of an in-order nest.
template <class F> void each_run(const Nest& n, int64_t from, int64_t to, F f) {
  while (from < to) {
    const int64_t c = from % n.size[0], w = std::min(n.size[0] - c, to - from);
    char* at[kMaxOperands];
    n.outer(from / n.size[0], 1, at);
    f(from, at[0] + c * n.stride[0][0], n.stride[0][0], w);
    from += w;
  }
}

/// How many nonzeros each chunk of kChunk elements has.
template <class T> std::vector<int64_t> counts(const Nest& n) {
  std::vector<int64_t> found((n.total + kChunk - 1) / kChunk);
#pragma omp parallel for schedule(static) if (n.total > kParallel)
  for (int64_t chunk = 0; chunk < static_cast<int64_t>(found.size()); ++chunk) {
    int64_t count = 0;
    each_run(n, chunk * kChunk, std::min((chunk + 1) * kChunk, n.total),
             [&](int64_t, const char* p, int64_t stride, int64_t w) {
               if (stride == sizeof(T)) {  // a loop for the compiler to vectorise
                 uint32_t some = 0;
                 for (int64_t i = 0; i < w; ++i) some += nonzero_at<T>(p + i * static_cast<int64_t>(sizeof(T)));
                 count += some;
               } else {
                 for (int64_t i = 0; i < w; ++i, p += stride) count += nonzero_at<T>(p);
               }
             });
    found[chunk] = count;
  }
  return found;
}

}  // namespace

void linear_index(const Launch& l) {
  const auto& p = *static_cast<const LinearIndexParams*>(l.params);
  for (size_t k = 0; k < l.in.size(); ++k) check_index(l.in[k], p, k);
  for (size_t k = 0; k < l.in.size(); ++k) {
    const Dimension d{p.size[k], p.stride[k]};
    const View views[] = {l.out[0], l.in[k], l.out[0]};
    if (k == 0)
      run(nest_of({views, 2}), index_row<false>, &d);
    else
      run(nest_of({views, 3}), index_row<true>, &d);
  }
}

void take(const Launch& l) {
  const View views[] = {l.out[0], l.in[0], l.in[1]};
  const Nest n = nest_of(views);
  if (n.total == 0) return;
  with_bytes(n.bytes[0], [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int64_t size = sizeof(T);
    const int64_t* s = n.stride[0];
    const auto offset = [](const char* p) { return *reinterpret_cast<const int64_t*>(p) * size; };
    const auto ahead = [&](char** at) {
      if (s[2] == 0 && s[1] == size) ask_for(at[1] + offset(at[2]), n.size[0] * size);
    };
    const auto copy_row = [&](char** at, int64_t w) {
      if (s[2] == 0 && s[0] == size && s[1] == size)
        std::memcpy(at[0], at[1] + offset(at[2]), static_cast<size_t>(w) * size);
      else if (s[2] == 0)
        copy_plane(size, {at[0], 0, s[0]}, {at[1] + offset(at[2]), 0, s[1]}, 1, w, false);
      else if (s[0] == size && s[1] == 0 && s[2] == 8)
        for (int64_t c = 0; c < w; ++c) std::memcpy(at[0] + c * size, at[1] + offset(at[2] + c * 8), size);
      else
        for (int64_t c = 0; c < w; ++c)
          std::memcpy(at[0] + c * s[0], at[1] + c * s[1] + offset(at[2] + c * s[2]), size);
    };
    each_row(n, copy_row, ahead);
  });
}

void put(const Launch& l) {
  const View views[] = {l.out[0], l.in[0], l.in[1]};
  const Nest n = nest_of(views, true);
  if (n.total == 0) return;
  if (static_cast<const PutParams*>(l.params)->accumulate)
    with_type(l.out[0].dtype, [&](auto type) { put_as<typename decltype(type)::type>(n, true); });
  else
    with_bytes(n.bytes[0], [&](auto type) { put_as<typename decltype(type)::type>(n, false); });
}

void count_nonzero(const Launch& l) {
  const Nest n = nest_of({&l.in[0], 1}, true);
  int64_t all = 0;
  if (n.total > 0) {
    with_type(l.in[0].dtype, [&](auto type) {
      for (int64_t c : counts<typename decltype(type)::type>(n)) all += c;
    });
  }
  *static_cast<int64_t*>(l.out[0].data) = all;
}

void nonzero(const Launch& l) {
  const View &out = l.out[0], &in = l.in[0];
  const Nest n = nest_of({&in, 1}, true);
  if (n.total == 0 || out.numel() == 0) return;
  with_type(in.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    std::vector<int64_t> start = counts<T>(n);
    int64_t all = 0;
    for (int64_t& c : start) all += c, c = all - c;
#pragma omp parallel for schedule(static) if (n.total > kParallel)
    for (int64_t chunk = 0; chunk < static_cast<int64_t>(start.size()); ++chunk) {
      auto* to = static_cast<int64_t*>(out.data) + start[chunk] * out.strides[0];
      int64_t index[kMaxDims], last = chunk * kChunk;  // the coordinates of element `last`
      for (int64_t d = in.ndim - 1, i = last; d >= 0; i /= in.shape[d--]) index[d] = i % in.shape[d];
      each_run(n, last, std::min(last + kChunk, n.total), [&](int64_t first, const char* p, int64_t stride, int64_t w) {
        for (int64_t i = first; i < first + w; ++i, p += stride) {
          if (!nonzero_at<T>(p)) continue;
          index[in.ndim - 1] += i - last, last = i;
          for (int d = in.ndim - 1; d > 0 && index[d] >= in.shape[d]; --d) {
            index[d - 1] += index[d] / in.shape[d], index[d] %= in.shape[d];
          }
          for (int d = 0; d < in.ndim; ++d) to[d * out.strides[1]] = index[d];
          to += out.strides[0];
        }
      });
    }
  });
}

}  // namespace gradwire::engine::cpu
