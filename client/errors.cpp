#include "client/errors.h"

#include <array>
#include <utility>

namespace gradwire {
namespace {

using Thrower = void (*)(const Error&);

template <size_t... I> constexpr std::array<Thrower, sizeof...(I)> throwers(std::index_sequence<I...>) {
  return {[](const Error& e) { throw ErrorOf<static_cast<Code>(I)>(e); }...};
}
constexpr auto kThrowers = throwers(std::make_index_sequence<kCodes>());

}  // namespace

void raise(const Error& e) {
  const auto code = static_cast<size_t>(e.code());
  if (code < kThrowers.size()) kThrowers[code](e);
  throw e;
}

}  // namespace gradwire
