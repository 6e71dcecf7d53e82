#include "engine/rules.h"

#include "engine/registry.h"
#include "engine/shape.h"

namespace gradwire::engine::rule {

Reduced reduced(std::span<const int64_t> shape, const Bound& dims, bool keepdim) {
  const std::span<const int64_t> list = dims.kind == ArgKind::none ? std::span<const int64_t>()
                                        : dims.kind == ArgKind::integer
                                            ? std::span<const int64_t>(&dims.i, 1)
                                            : std::span<const int64_t>(dims.ints, dims.count);
  const int n = static_cast<int>(shape.size());
  bool drop[kMaxDims] = {};
  for (const int64_t given : list) {
    const int d = wrap_dim(given, n);
    if (n == 0) continue;
    if (drop[d])
      throw Error(Code::bad_argument, "dim " + std::to_string(d) + " appears multiple times in the list of dims");
    drop[d] = true;
  }
  Reduced r;
  for (int d = 0; d < n; ++d) {
    const bool gone = list.empty() || drop[d];
    r.kept.push_back(gone ? 1 : shape[d]);
    if (!gone || keepdim) r.dropped.push_back(r.kept[d]);
  }
  return r;
}

void device(const Call& c, int i) {
  if (!c.has(i)) return;
  const std::string_view want = c.text(i), have = c.cx.backend.device();
  if (want == have || (want == "cuda" && have.starts_with("cuda:"))) return;
  const std::string_view type = want.substr(0, want.find(':'));
  if (type != "cpu" && type != "cuda") {
    throw Error(Code::bad_argument,
                "Expected one of cpu, cuda device type at start of device string: " + std::string(type.substr(0, 64)));
  }
  const std::string_view ordinal = type.size() < want.size() ? want.substr(type.size() + 1) : "0";
  if (ordinal.empty() || ordinal.size() > 3 || ordinal.find_first_not_of("0123456789") != std::string_view::npos) {
    throw Error(Code::bad_argument, "Invalid device string: '" + std::string(want.substr(0, 64)) + "'");
  }
  throw Error(Code::device_mismatch, "the session computes on " + std::string(have) + ", not on " + std::string(want));
}

}  // namespace gradwire::engine::rule
