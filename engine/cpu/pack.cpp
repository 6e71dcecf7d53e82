#include "engine/cpu/pack.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace gradwire::engine::cpu {
namespace {

constexpr int64_t kVector = 16;  // bytes: every 64-bit machine has such registers
constexpr int64_t kLine = 64;    // of a cache

template <class T> struct Square {
  static constexpr int kSide = kVector / sizeof(T);
  typedef T V __attribute__((vector_size(kVector)));
  typedef T Loose __attribute__((vector_size(kVector), aligned(1), may_alias));
};

template <class V, size_t... I> V low(V a, V b, std::index_sequence<I...>) {
  constexpr int n = sizeof...(I);
  return __builtin_shufflevector(a, b, (I % 2 ? n + static_cast<int>(I) / 2 : static_cast<int>(I) / 2)...);
}
template <class V, size_t... I> V high(V a, V b, std::index_sequence<I...>) {
  constexpr int n = sizeof...(I);
  return __builtin_shufflevector(a, b, (n / 2 + (I % 2 ? n + static_cast<int>(I) / 2 : static_cast<int>(I) / 2))...);
}

/// A square of kSide lines of 16 bytes, transposed: each step interleaves line i with line i + kSide / 2.
template <class T> void transpose_square(char* to, int64_t to_line, const char* from, int64_t from_line) {
  using S = Square<T>;
  using V = typename S::V;
  constexpr int n = S::kSide;
  V v[n], w[n];
  for (int i = 0; i < n; ++i) v[i] = *reinterpret_cast<const typename S::Loose*>(from + i * from_line);
  for (int step = 1; step < n; step *= 2) {
    for (int i = 0; i < n / 2; ++i) {
      w[2 * i] = low(v[i], v[i + n / 2], std::make_index_sequence<n>());
      w[2 * i + 1] = high(v[i], v[i + n / 2], std::make_index_sequence<n>());
    }
    for (int i = 0; i < n; ++i) v[i] = w[i];
  }
  for (int i = 0; i < n; ++i) *reinterpret_cast<typename S::Loose*>(to + i * to_line) = v[i];
}

template <class T> void one_by_one(Plane to, Plane from, int64_t rows, int64_t columns) {
  if (std::abs(from.row) < std::abs(from.column) && (from.row != 0 || std::abs(to.row) < std::abs(to.column))) {
    std::swap(to.row, to.column), std::swap(from.row, from.column), std::swap(rows, columns);
  }
  for (int64_t r = 0; r < rows; ++r) {
    const char* in = from.at + r * from.row;
    char* out = to.at + r * to.row;
    for (int64_t c = 0; c < columns; ++c, in += from.column, out += to.column) std::memcpy(out, in, sizeof(T));
  }
}

/// A cache line to memory, past the caches where the machine can.
inline void put_line(char* to, const char* from, bool stream) {
#ifdef __SSE2__
  if (stream) {
    for (int i = 0; i < kLine; i += kVector) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_load_si128(reinterpret_cast<const __m128i*>(from + i)));
    }
    return;
  }
#endif
  (void)stream;
  std::memcpy(to, from, kLine);
}

/// Blocks of whole cache lines on both sides: lines whose addresses differ by powers of two push each other out of the
/// caches.
template <class T> void transpose(const Plane& to, const Plane& from, int64_t rows, int64_t columns, bool stream) {
  constexpr int64_t n = Square<T>::kSide, size = sizeof(T), line = kLine / size;
  stream = stream && reinterpret_cast<uintptr_t>(to.at) % kLine == 0 && to.row % kLine == 0;
  const int64_t whole_rows = rows / line * line, whole_columns = columns / line * line;
  for (int64_t r = 0; r < whole_rows; r += line) {
    for (int64_t c = 0; c < whole_columns; c += line) {
      alignas(kLine) char block[line][kLine];
      for (int64_t j = 0; j < line; j += n) {
        for (int64_t i = 0; i < line; i += n) {
          transpose_square<T>(block[i] + j * size, kLine, from.at + (r + i) * size + (c + j) * from.column,
                              from.column);
        }
      }
      for (int64_t i = 0; i < line; ++i) put_line(to.at + (r + i) * to.row + c * size, block[i], stream);
    }
  }
  // what is left over in squares, then one by one
  const auto single = [&](int64_t r, int64_t c, int64_t h, int64_t w) {
    if (h > 0 && w > 0) {
      one_by_one<T>({to.at + r * to.row + c * size, to.row, size},
                    {from.at + r * size + c * from.column, size, from.column}, h, w);
    }
  };
  const auto squares = [&](int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
    const int64_t r2 = r0 + (r1 - r0) / n * n, c2 = c0 + (c1 - c0) / n * n;
    for (int64_t c = c0; c < c2; c += n) {
      for (int64_t r = r0; r < r2; r += n) {
        transpose_square<T>(to.at + r * to.row + c * size, to.row, from.at + r * size + c * from.column, from.column);
      }
    }
    single(r0, c2, r1 - r0, c1 - c2);
    single(r2, c0, r1 - r2, c2 - c0);
  };
  squares(0, whole_rows, whole_columns, columns);
  squares(whole_rows, rows, 0, columns);
}

/// Whole vectors: what is too much is written over by the next row.
template <int vectors> void short_lines(int64_t line, const Plane& to, const Plane& from, int64_t rows) {
  const char* in = from.at;
  char* out = to.at;
  for (int64_t r = 0; r < rows; ++r, in += from.row, out += line) {
    for (int i = 0; i < vectors; ++i) std::memcpy(out + i * kVector, in + i * kVector, kVector);
  }
}

/// Row after row, each contiguous on both sides.
void lines(int64_t line, const Plane& to, const Plane& from, int64_t rows, bool loose) {
  if (from.row == 0 && to.row == line && rows > 1) {  // one line again and again: double what is there
    std::memcpy(to.at, from.at, line);
    for (int64_t done = line, all = line * rows; done < all;) {
      const int64_t n = std::min(done, all - done);
      std::memcpy(to.at + done, to.at, n);
      done += n;
    }
  } else if (loose && line <= 4 * kVector) {
    switch ((line + kVector - 1) / kVector) {
      case 1:
        return short_lines<1>(line, to, from, rows);
      case 2:
        return short_lines<2>(line, to, from, rows);
      case 3:
        return short_lines<3>(line, to, from, rows);
      default:
        return short_lines<4>(line, to, from, rows);
    }
  } else {
    for (int64_t r = 0; r < rows; ++r) std::memcpy(to.at + r * to.row, from.at + r * from.row, line);
  }
}

template <class T>
void copy(const Plane& to, const Plane& from, int64_t rows, int64_t columns, bool loose, bool stream) {
  constexpr int64_t size = sizeof(T);
  if (from.column == size && to.column == size)
    lines(columns * size, to, from, rows, loose);
  else if (from.row == size && to.row == size)
    lines(rows * size, {to.at, to.column, size}, {from.at, from.column, size}, columns, false);
  else if (from.row == size && to.column == size)
    transpose<T>(to, from, rows, columns, stream);
  else if (from.column == size && to.row == size)
    transpose<T>({to.at, to.column, size}, {from.at, size, from.row}, columns, rows, stream);
  else
    one_by_one<T>(to, from, rows, columns);
}

}  // namespace

void copy_plane(int64_t bytes, const Plane& to, const Plane& from, int64_t rows, int64_t columns, bool loose,
                bool stream) {
  switch (bytes) {
    case 1:
      return copy<uint8_t>(to, from, rows, columns, loose, stream);
    case 2:
      return copy<uint16_t>(to, from, rows, columns, loose, stream);
    case 4:
      return copy<uint32_t>(to, from, rows, columns, loose, stream);
    default:
      return copy<uint64_t>(to, from, rows, columns, loose, stream);
  }
}

}  // namespace gradwire::engine::cpu
