#include "engine/backend.h"

#include <unordered_map>
#include <vector>

#include "engine/cpu/pointwise.h"
#include "engine/cuda/pointwise.h"

namespace gradwire::engine {

const Pointwise* find_pointwise(std::string_view functor) {
  // whole_rows lists every functor, those without integer kernels too
  static const std::vector<Pointwise> table = [] {
    std::vector<Pointwise> rows;
    for (const cpu::PointwiseRow& name : cpu::whole_rows()) {
      const cpu::PointwiseRow on_cpu = cpu::pointwise_row(name.op);
      const cuda::PointwiseRow on_cuda = cuda::pointwise_row(name.op);
      Pointwise& p = rows.emplace_back();
      p.name = name.op, p.inputs = on_cpu.inputs, p.masked = on_cpu.masked;
      for (int t = 0; t < kDTypes; ++t) p.cpu[t] = on_cpu.by_dtype[t], p.cuda[t] = on_cuda.by_dtype[t];
    }
    return rows;
  }();
  static const std::unordered_map<std::string_view, const Pointwise*> by_name = [] {
    std::unordered_map<std::string_view, const Pointwise*> all;
    for (const Pointwise& p : table) all.emplace(p.name, &p);
    return all;
  }();
  const auto at = by_name.find(functor);
  return at == by_name.end() ? nullptr : at->second;
}

}  // namespace gradwire::engine
