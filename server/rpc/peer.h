#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "server/metrics.h"
#include "server/rpc/convert.h"
#include "server/rpc/guarded_stream.h"
#include "server/rpc/loop_queue.h"
#include "server/service.h"

namespace gradwire::server {

/// What all connections of an RPC server share; on its loop.
struct RpcShared {
  Service& service;
  const RpcLimits& limits;
  std::shared_ptr<LoopQueue> queue;
  std::function<void(std::string_view method)> before_call;  // for tests: may throw
};

/// What the capabilities of one connection know of it.
struct Peer {
  RpcShared& shared;
  GuardedStream* stream;           // null once the connection is gone
  std::vector<Session*> sessions;  // that it holds capabilities of
};
using PeerPtr = std::shared_ptr<Peer>;

/// Runs the body of a method. Whatever it throws, at once or later, becomes `failed` and `error` of the results: no
/// exception reaches the loop or the RPC system.
template <class Context, class F> kj::Promise<void> answer(Peer& peer, Context context, const char* method, F body) {
  auto fail = [context](Error e) mutable {
    auto results = context.initResults();
    results.setFailed(true);
    write(results.initError(), e);
  };
  try {
    peer.shared.service.metrics().add(Metric::rpc_requests, method);
    if (peer.shared.before_call) peer.shared.before_call(method);
    kj::Promise<void> promise = body();
    return promise.catch_([fail](kj::Exception&& e) mutable {
      try {
        throw kj::mv(e);
      } catch (...) {
        fail(caught_error(Code::bad_request));
      }
    });
  } catch (...) {
    fail(caught_error(Code::bad_request));
    return kj::READY_NOW;
  }
}

/// Puts an error into results that have a place for it.
template <class Results> void fail(Results results, const Error& e) {
  results.setFailed(true);
  write(results.initError(), e);
}

}  // namespace gradwire::server
