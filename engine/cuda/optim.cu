#include "engine/cuda/device.h"

namespace gradwire::engine::cuda {
namespace {

template <class... F> struct list {};

#include "engine/functors/optim.h"

template <class T> struct Line {
  T* at[5];  // p, g, and three that are kept, of which null ones are not there
};

template <class F, class T> __global__ void line(const F f, const Line<T> l, const int64_t n) {
  using V = Computed<T>;
  for (int64_t i = first_element(); i < n; i += all_threads()) {
    V v[5] = {};
    for (int k = 0; k < 5; ++k) {
      if (l.at[k]) v[k] = computed(l.at[k][i]);
    }
    f(v[0], v[1], v[2], v[3], v[4]);
    for (int k = 0; k < 5; ++k) {
      if (l.at[k] && k != 1) l.at[k][i] = stored<T>(v[k]);
    }
  }
}

template <class T, class... F> void find(list<F...>, const OptimParams& o, const Line<T>& l, int64_t n, void* stream) {
  ((F::kind == o.kind ? start(line<F, T>, n, stream, F{o}, l, n) : void()), ...);
}

}  // namespace

void optimize(const Launch& l) {
  with_floating(l.out[0].dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    Line<T> at{{static_cast<T*>(l.out[0].data), static_cast<T*>(l.in[0].data)}};
    for (int k = 1; k < 4; ++k) at.at[k + 1] = static_cast<T*>(l.out[k].data);
    find(optimisers(), *static_cast<const OptimParams*>(l.params), at, l.out[0].numel(), l.stream);
  });
}

}  // namespace gradwire::engine::cuda
