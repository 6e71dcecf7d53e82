#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "schema/error.h"
#include "schema/op_call.h"

// What travels between the thread that waits for a value and the thread that receives it.

namespace gradwire::client {

class Core;

/// How long to wait; zero: for as long as it takes.
using Timeout = std::chrono::milliseconds;

/// A value on its way from the server. Its bytes are written, while it is wanted, by the network thread into what
/// `room` gives; any thread waits.
class Arrival {
 public:
  virtual ~Arrival() = default;

  /// Throws the error of the batch (which counts as seen), or Error{deadline_exceeded}. After a timeout nothing is
  /// written any more.
  void wait(Timeout);
  bool ready() const;
  /// False: there is no such tensor. Valid after wait().
  bool present() const { return present_; }
  const TensorInfo& info() const { return info_; }

  // Called by the network thread.
  /// Where the bytes go, or null if nobody wants them.
  void begin(bool present, TensorInfo, size_t bytes);
  /// False: nobody waits any more.
  bool write(size_t offset, const void* data, size_t size);
  void end();
  void fail(std::shared_ptr<const Error>, uint64_t epoch);

  std::shared_ptr<Core> core;  // whose error state a failure changes

 protected:
  /// Room for all the bytes; null: not wanted. Called once, with the lock held.
  virtual std::byte* room(const TensorInfo&, size_t) { return nullptr; }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false, gone_ = false, present_ = false;
  std::byte* room_ = nullptr;
  size_t bytes_ = 0;
  TensorInfo info_;
  std::shared_ptr<const Error> error_;
  uint64_t epoch_ = 0;
};

inline int64_t numel_of(const TensorInfo& i) {
  int64_t n = 1;
  for (const int64_t d : i.shape) n *= d;
  return n;
}

/// Only what is known of a tensor.
class InfoArrival final : public Arrival {};

/// The bytes as they come.
class BytesArrival final : public Arrival {
 public:
  std::vector<std::byte> bytes;

 private:
  std::byte* room(const TensorInfo&, size_t size) override { return bytes.resize(size), bytes.data(); }
};

}  // namespace gradwire::client
