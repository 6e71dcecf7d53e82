#pragma once

#include <functional>
#include <string>

#include "engine/exchange.h"

// What the rows that work with other ranks share. A row checks its arguments, hands the bytes over and comes back:
// whoever runs the session's calls finishes it when the other ranks have taken part (see engine/exchange.h).

namespace gradwire::engine {

inline constexpr const char* kRemote = "it works on values, as PyTorch's does: history does not cross ranks";

/// Throws no_object, as without a default group.
Exchange& exchange_of(Context&);

/// The group that a call names, in its parameter `at`.
struct Party {
  Exchange& exchange;
  std::string_view name;
  Exchange::Group group;

  Party(const Call& c, int at) : exchange(exchange_of(c.cx)), name(c.text(at)), group(exchange.group(name)) {}
  bool member() const { return group.rank >= 0; }
  /// Its rank here of what is a rank of the default group. Throws bad_argument.
  int rank_of(int64_t rank) const;
};

/// Throws bad_argument.
[[noreturn]] void refuse(std::string why);
/// A 0-dim int64 tensor.
Tensor number(Context&, int64_t);
size_t bytes_of(const Tensor&);
/// Refuses a tensor that cannot be written to.
void check_target(const Tensor&);
/// Room for `parts` times so many bytes.
TransferPtr room(const Party&, size_t bytes, int parts);
/// The call ends now where it can, else when it is done.
Results end_with(Context&, std::unique_ptr<Pending>);
/// Sets off what is prepared.
Results go(const Call&, const Party&, TransferPtr, const Terms&, std::function<Results(Transfer&)> finish);

}  // namespace gradwire::engine
