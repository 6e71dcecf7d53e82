#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "schema/collective.h"
#include "server/result.h"

// What the parts of the cluster say to each other: the operators of a session, the group that its rank belongs to, and
// the data plane that moves the bytes.

namespace gradwire::server::cluster {

using gradwire::Collective;
using gradwire::ReduceOp;
using gradwire::Terms;

/// Memory that the data plane can reach, shared with its helper process: contiguous, row-major elements. Lives as long
/// as somebody holds it, the group's end included.
class Area {
 public:
  virtual ~Area() = default;
  std::span<std::byte> bytes;
};
using AreaPtr = std::shared_ptr<Area>;

/// One collective of this rank. `area` holds what goes in and, once done, what came out: size parts of `count` elements
/// for all_gather (own part at its place), gather (at the root), scatter (at the root; else and as result the first
/// part) and reduce_scatter (result in the first part), one part for the others. Its contents mean nothing after a
/// failure, and on reduce's other ranks.
struct Work {
  Terms terms;
  AreaPtr area;
  std::chrono::steady_clock::time_point deadline;
  Done<Result<int>> done;  // the rank a recv came from, else -1. Called once, on a thread of the cluster
};

}  // namespace gradwire::server::cluster
