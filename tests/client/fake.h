#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "schema/error.h"
#include "schema/op_call.h"

/// A server without an engine, on a thread of its own: it keeps what it is sent, gives uploaded bytes back when they
/// are fetched, and fails where it is told to, with the epochs of the real one.
class Fake {
 public:
  struct Options {
    uint64_t catalogue_hash = 0;           // 0: the client's own
    std::vector<std::string> operators{};  // sent when asked
    std::string token{};                   // wanted at login
  };
  Fake() : Fake(Options()) {}
  explicit Fake(Options);
  ~Fake();
  const std::string& address() const { return address_; }

  /// Answers to batches and bulk writes wait until `let_go`; they still arrive.
  void hold();
  void let_go();
  /// Calls of this operator fail with this error.
  void fail(uint16_t op, gradwire::Error);
  /// Cuts the connection.
  void hang_up();

  /// All batches so far; waits until there are `at_least`.
  std::vector<gradwire::Batch> batches(size_t at_least = 0);
  /// The sizes of bulk writes (waits until there are `at_least`) and reads so far.
  std::vector<size_t> writes(size_t at_least = 0), reads();
  /// Sessions that were closed; waits until there are `at_least`.
  int closed(int at_least = 0);

  struct State;

 private:
  std::string address_;
  std::shared_ptr<State> state_;
  std::thread thread_;
};
