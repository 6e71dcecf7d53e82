#pragma once

#include <memory>

#include "server/cluster/data_plane.h"

namespace gradwire::server::cluster {

/// Only where it is built with CUDA and NCCL (GRADWIRE_NCCL). NCCL between the current devices of the ranks, in this
/// process, on a thread of its own; areas are pinned memory of the host, staged through the device. The identity that
/// lets ranks find each other is rank 0's blob, and travels on the authenticated link only; NCCL has no use for the
/// key. Calls run one after the other, send and recv too. NCCL has no int16 and no bitwise reductions of whole numbers:
/// those fail with not_implemented, and end nothing.
std::unique_ptr<DataPlane> make_nccl_plane(DataPlaneOptions);

}  // namespace gradwire::server::cluster
