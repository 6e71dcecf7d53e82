#include "server/engine.h"

#include <charconv>

#include "schema/error.h"
#if __has_include("schema/ops.h")
#include "schema/ops.h"
#endif

namespace gradwire::server::engine {

std::unique_ptr<Backend> make_backend(const std::string& device) {
  if (device == "cpu") return make_cpu_backend();
  constexpr std::string_view kCuda = "cuda:";
  int ordinal = device == "cuda" ? 0 : -1;
  if (device.starts_with(kCuda)) std::from_chars(device.data() + kCuda.size(), device.data() + device.size(), ordinal);
  if (ordinal < 0 || (device != "cuda" && device != "cuda:" + std::to_string(ordinal)))
    throw Error(Code::bad_argument, "the device '" + device.substr(0, 64) + "' is neither cpu nor cuda:N");
  return make_cuda_backend(ordinal);
}

uint64_t catalogue_hash() { return kCatalogueHash; }

std::vector<std::string> operator_names() {
  std::vector<std::string> names;
  for (const OpRow& row : catalogue()) names.push_back(row.sig.full_name());
  return names;
}

std::string op_name(OpId id) { return id < catalogue().size() ? catalogue()[id].name() : std::string(); }

}  // namespace gradwire::server::engine
