// Convolutions as products of matrices: the windows of x side by side are the columns of one.
#include <algorithm>
#include <cstring>

#include "engine/cpu/dispatch.h"
#include "engine/cpu/gemm.h"
#include "engine/cpu/onednn.h"
#include "engine/kernels.h"

namespace gradwire::engine::cpu {
namespace {

constexpr int64_t kColumns = int64_t{1} << 19;  // elements of a block of windows: it stays in the last cache
constexpr int64_t kThreaded = int64_t{1} << 15;

/// Sizes, with spatial dims that are not there as 1 in front.
struct Sizes {
  int64_t images, channels, results, groups;
  int64_t in[3], kernel[3], out[3], stride[3], padding[3], dilation[3];
  int64_t group_in, group_out;  // channels of a group, of x and of g
  int64_t window;               // elements of x in one element of g: rows of the columns' matrix
  int64_t places, plane;        // of one channel of g, and of x

  Sizes(const View& x, const View& w, const View& g, const ConvParams& p)
      : images(x.shape[0]), channels(x.shape[1]), results(w.shape[0]), groups(p.groups) {
    const int spatial = x.ndim - 2, missing = 3 - spatial;
    window = group_in = w.shape[1];
    group_out = results / groups, places = plane = 1;
    for (int d = 0; d < 3; ++d) {
      const int s = d - missing;
      const bool there = s >= 0;
      in[d] = there ? x.shape[2 + s] : 1, kernel[d] = there ? w.shape[2 + s] : 1, out[d] = there ? g.shape[2 + s] : 1;
      stride[d] = there ? p.stride[s] : 1, padding[d] = there ? p.padding[s] : 0;
      dilation[d] = there ? p.dilation[s] : 1;
      window *= kernel[d], places *= out[d], plane *= in[d];
    }
  }
  /// Whether the windows are x itself.
  bool plain() const {
    bool yes = true;
    for (int d = 0; d < 3; ++d) yes = yes && kernel[d] == 1 && stride[d] == 1 && padding[d] == 0;
    return yes;
  }
};

/// Some columns: whole images, or a part of one.
struct Block {
  int64_t image, first, count;  // the first column's image and place in it
};

/// f(block) for all columns, in order.
template <class F> void each_block(const Sizes& s, F&& f) {
  const int64_t most = std::max<int64_t>(kColumns / std::max(s.window, s.group_out), 1);
  if (s.places < most) {
    const int64_t some = std::max<int64_t>(most / s.places, 1);
    for (int64_t i = 0; i < s.images; i += some) f(Block{i, 0, std::min(some, s.images - i) * s.places});
  } else {
    for (int64_t i = 0; i < s.images; ++i) {
      for (int64_t p = 0; p < s.places; p += most) f(Block{i, p, std::min(most, s.places - p)});
    }
  }
}

/// What one row of the windows' matrix reads along a row of outputs: x[at + o * stride] for o in [from, to).
struct Run {
  int64_t at, from, to;
};

/// Walks one row of the windows' matrix: f(column, length, run) for each row of outputs.
template <class F> void each_run(const Sizes& s, const Block& b, int64_t group, int64_t row, F&& f) {
  const int64_t k2 = row % s.kernel[2], k1 = row / s.kernel[2] % s.kernel[1],
                k0 = row / s.kernel[2] / s.kernel[1] % s.kernel[0],
                channel = group * s.group_in + row / (s.kernel[0] * s.kernel[1] * s.kernel[2]);
  const int64_t shift = k2 * s.dilation[2] - s.padding[2];  // along the last dim
  const int64_t step = s.stride[2];
  const int64_t low = shift >= 0 ? 0 : (-shift + step - 1) / step;
  const int64_t high = shift >= s.in[2] ? 0 : (s.in[2] - 1 - shift) / step + 1;
  for (int64_t c = 0; c < b.count;) {
    const int64_t q = b.first + c, image = b.image + q / s.places, place = q % s.places;
    const int64_t o2 = place % s.out[2], o1 = place / s.out[2] % s.out[1], o0 = place / s.out[2] / s.out[1];
    const int64_t length = std::min(s.out[2] - o2, b.count - c);
    const int64_t i0 = o0 * s.stride[0] - s.padding[0] + k0 * s.dilation[0];
    const int64_t i1 = o1 * s.stride[1] - s.padding[1] + k1 * s.dilation[1];
    const bool inside = i0 >= 0 && i0 < s.in[0] && i1 >= 0 && i1 < s.in[1];
    const int64_t from = std::clamp(low - o2, int64_t{0}, length), to = std::clamp(high - o2, from, length);
    const int64_t line = (((image * s.channels + channel) * s.in[0] + i0) * s.in[1] + i1) * s.in[2];
    f(c, length, inside ? Run{line + o2 * step + shift, from, to} : Run{0, 0, 0});
    c += length;
  }
}

template <class T> void gather(const Sizes& s, const Block& b, int64_t group, const T* x, T* columns) {
#pragma omp parallel for schedule(static) if (s.window * b.count > kThreaded)
  for (int64_t row = 0; row < s.window; ++row) {
    T* line = columns + row * b.count;
    each_run(s, b, group, row, [&](int64_t c, int64_t length, const Run& r) {
      T* to = line + c;
      std::fill_n(to, r.from, T(0));
      const int64_t step = s.stride[2];
      if (step == 1) {
        if (r.to > r.from) std::memcpy(to + r.from, x + r.at + r.from, static_cast<size_t>(r.to - r.from) * sizeof(T));
      } else {
        for (int64_t i = r.from; i < r.to; ++i) to[i] = x[r.at + i * step];
      }
      std::fill_n(to + r.to, length - r.to, T(0));
    });
  }
}

/// Adds the columns to where they came from. A thread has whole channels, so that no two write to one place.
template <class T> void scatter(const Sizes& s, const Block& b, int64_t group, const T* columns, T* x) {
  const int64_t each = s.group_in > 0 ? s.window / s.group_in : 0;
#pragma omp parallel for schedule(static) if (s.window * b.count > kThreaded)
  for (int64_t channel = 0; channel < s.group_in; ++channel) {
    for (int64_t row = channel * each; row < (channel + 1) * each; ++row) {
      const T* line = columns + row * b.count;
      each_run(s, b, group, row, [&](int64_t c, int64_t, const Run& r) {
        for (int64_t i = r.from; i < r.to; ++i) x[r.at + i * s.stride[2]] += line[c + i];
      });
    }
  }
}

/// Columns of a tensor of [N, C, places]: where they are, or side by side in a buffer.
template <class T> struct Part {
  T* at;
  int64_t ld;
  Part(const Sizes& s, const Block& b, T* whole, int64_t channels, int64_t channel, int64_t places, T* buffer)
      : at(buffer), ld(b.count) {
    if (b.first + b.count <= s.places)  // of one image
      at = whole + (b.image * channels + channel) * places + b.first, ld = places;
  }
};

/// Copies between [N, C, places] and a buffer of some channels' columns.
template <class T, class F> void side_by_side(const Sizes& s, const Block& b, int64_t channel, T* buffer, F&& copy) {
  const int64_t images = b.count / s.places;
#pragma omp parallel for schedule(static) if (s.group_out * b.count > kThreaded)
  for (int64_t c = 0; c < s.group_out; ++c) {
    for (int64_t i = 0; i < images; ++i)
      copy(((b.image + i) * s.results + channel + c) * s.places, buffer + c * b.count + i * s.places);
  }
}

/// Columns of the largest block.
int64_t widest(const Sizes& s) {
  int64_t most = 0;
  each_block(s, [&](const Block& b) { most = std::max(most, b.count); });
  return most;
}

template <class T> struct Conv {
  const Sizes s;
  T *columns, *buffer;  // widest(s) of windows, and of g's columns
  Conv(const Sizes& sizes, void* scratch)
      : s(sizes), columns(static_cast<T*>(scratch)), buffer(columns + widest(s) * s.window) {}

  /// The windows of a block, ready for a product.
  Part<const T> windows(const Block& b, int64_t group, const T* x) {
    Part<const T> part(s, b, x, s.channels, group * s.group_in, s.places, columns);
    if (s.plain() && part.at != columns) return part;
    gather(s, b, group, x, columns);
    part.at = columns, part.ld = b.count;
    return part;
  }
  /// g's columns of a block.
  Part<const T> results(const Block& b, int64_t group, const T* g) {
    const Part<const T> part(s, b, g, s.results, group * s.group_out, s.places, buffer);
    if (part.at == buffer) {
      side_by_side(s, b, group * s.group_out, buffer,
                   [&](int64_t from, T* to) { std::copy_n(g + from, s.places, to); });
    }
    return part;
  }

  void forward(const T* x, const T* w, T* g) {
    each_block(s, [&](const Block& b) {
      for (int64_t group = 0; group < s.groups; ++group) {
        const Part<const T> from = windows(b, group, x);
        const Part<T> to(s, b, g, s.results, group * s.group_out, s.places, buffer);
        gemm(false, false, s.group_out, b.count, s.window, w + group * s.group_out * s.window, s.window, from.at,
             from.ld, T(0), to.at, to.ld);
        if (to.at == buffer) {
          side_by_side(s, b, group * s.group_out, buffer,
                       [&](int64_t at, const T* from_buffer) { std::copy_n(from_buffer, s.places, g + at); });
        }
      }
    });
  }

  void input(const T* g, const T* w, T* x) {
    std::fill_n(x, s.images * s.channels * s.plane, T(0));
    each_block(s, [&](const Block& b) {
      for (int64_t group = 0; group < s.groups; ++group) {
        const Part<const T> from = results(b, group, g);
        gemm(true, false, s.window, b.count, s.group_out, w + group * s.group_out * s.window, s.window, from.at,
             from.ld, T(0), columns, b.count);
        scatter(s, b, group, columns, x);
      }
    });
  }

  void weight(const T* g, const T* x, T* w) {
    bool first = true;
    each_block(s, [&](const Block& b) {
      for (int64_t group = 0; group < s.groups; ++group) {
        const Part<const T> from = results(b, group, g), windows_of_x = windows(b, group, x);
        gemm(false, true, s.group_out, s.window, b.count, from.at, from.ld, windows_of_x.at, windows_of_x.ld,
             first ? T(0) : T(1), w + group * s.group_out * s.window, s.window);
      }
      first = false;
    });
  }
};

Sizes sizes_of(ConvPass pass, const Launch& l) {
  const auto& p = *static_cast<const ConvParams*>(l.params);
  if (pass == ConvPass::forward) return {l.in[0], l.in[1], l.out[0], p};
  if (pass == ConvPass::input) return {l.out[0], l.in[1], l.in[0], p};
  return {l.in[1], l.out[0], l.in[0], p};
}

/// No element of one of the tensors. Of an empty plane windows see padding only, and oneDNN cannot be asked.
bool empty(const Sizes& s) {
  return s.images == 0 || s.places == 0 || s.window == 0 || s.group_out == 0 || s.plane == 0;
}

template <class T> void compute(ConvPass pass, const Sizes& s, const Launch& l) {
  Conv<T> c(s, l.out[1].data);
  const auto *a = static_cast<const T*>(l.in[0].data), *b = static_cast<const T*>(l.in[1].data);
  auto* out = static_cast<T*>(l.out[0].data);
  if (pass == ConvPass::forward) c.forward(a, b, out);
  if (pass == ConvPass::input) c.input(a, b, out);
  if (pass == ConvPass::weight) c.weight(a, b, out);
}

void run(ConvPass pass, const Launch& l) {
  const Sizes s = sizes_of(pass, l);
  if (empty(s)) {  // nothing to sum
    std::memset(l.out[0].data, 0, static_cast<size_t>(l.out[0].numel() * size_of(l.out[0].dtype)));
  } else if (!run_onednn(pass, l)) {
    l.out[0].dtype == DType::float64 ? compute<double>(pass, s, l) : compute<float>(pass, s, l);
  }
}

}  // namespace

int64_t conv_scratch(ConvPass pass, const Launch& l) {
  const Sizes s = sizes_of(pass, l);
  if (empty(s)) return 0;
  if (const int64_t bytes = onednn_scratch(pass, l); bytes >= 0) return bytes;
  return widest(s) * (s.window + s.group_out) * size_of(l.out[0].dtype);
}

void conv_forward(const Launch& l) { run(ConvPass::forward, l); }
void conv_input(const Launch& l) { run(ConvPass::input, l); }
void conv_weight(const Launch& l) { run(ConvPass::weight, l); }

}  // namespace gradwire::engine::cpu
