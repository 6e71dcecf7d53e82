#include "engine/cuda/device.h"

namespace gradwire::engine::cuda {
namespace {

template <class To, class From> __global__ void convert_each(const Nest n) {
  for (int64_t i = first_element(); i < n.total; i += all_threads()) {
    const Place p(n, i);
    *reinterpret_cast<To*>(p.at[0]) = converted<To>(*reinterpret_cast<const From*>(p.at[1]));
  }
}

template <class T> __global__ void fill_each(const Nest n, const Scalar s) {
  const T value = s.kind == Category::floating  ? converted<T>(s.f)
                  : s.kind == Category::integer ? converted<T>(s.i)
                                                : converted<T>(s.b);
  for (int64_t i = first_element(); i < n.total; i += all_threads()) *reinterpret_cast<T*>(Place(n, i).at[0]) = value;
}

}  // namespace

void convert(const Launch& l) {
  const View views[] = {l.out[0], l.in[0]};
  const Nest n = nest_of(views);
  with_type(views[0].dtype, [&](auto to) {
    with_type(views[1].dtype, [&](auto from) {
      start(convert_each<typename decltype(to)::type, typename decltype(from)::type>, n.total, l.stream, n);
    });
  });
}

void fill(const Launch& l) {
  const Nest n = nest_of({&l.out[0], 1});
  with_type(l.out[0].dtype, [&](auto t) {
    start(fill_each<typename decltype(t)::type>, n.total, l.stream, n, static_cast<const FillParams*>(l.params)->value);
  });
}

}  // namespace gradwire::engine::cuda
