#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "schema/op_call.h"
#include "schema/value.h"

namespace gradwire {

class Tensor;
class Literal;
struct TensorOptions;
namespace client {
class Core;
}

/// How to open a session.
struct SessionOptions {
  std::string device{}, name{};       // empty: the server's device; no name
  DType dtype = DType::float32;       // the default dtype of creation functions
  std::optional<uint64_t> seed{};     // of the session's generator
  int64_t memory_limit = 0;           // bytes; 0: the server's default
  std::chrono::seconds ttl{0};        // how long it outlives its connection; 0: the server's default
  std::vector<std::string> compat{};  // names of design.md section 7
};

/// One client's tensors and graphs on a server. A copy is a second handle on the same session; it ends with its last
/// handle and tensor. May be used from any thread: all calls form one order and share their errors.
///
/// Calls do not wait. They are gathered, sent as batches and run in order; an error is thrown by a later call, `sync()`
/// or a fetch, and names the line that caused it (`Error::where`). After it the session is as if a local program had
/// thrown at that line: tensors made later hold nothing and throw the same error when used.
class Session {
 public:
  using Tensor = gradwire::Tensor;

  Session() = default;
  explicit operator bool() const { return core_ != nullptr; }

  /// Waits until all calls so far have run. Throws the first error. A timeout of zero means that of the client.
  void sync(std::chrono::milliseconds timeout = {});
  /// Ends the session on the server; harmless when repeated. Later calls throw `closed`.
  void close(std::chrono::milliseconds timeout = {});
  const std::string& id() const;
  /// What the server warned of since the last call of this, the newest 256.
  std::vector<Warning> warnings();

  // How ops.h reaches the server: see schema/value.h.
  Tensor one(uint16_t op, const std::source_location& at, std::span<const Value<Tensor>> args);
  void none(uint16_t op, const std::source_location& at, std::span<const Value<Tensor>> args);
  std::vector<Tensor> list(uint16_t op, const std::source_location& at, std::span<const Value<Tensor>> args);
  template <size_t N>
  std::array<Tensor, N> several(uint16_t op, const std::source_location& at, std::span<const Value<Tensor>> args);

 private:
  friend class client::Core;
  friend class Client;
  friend gradwire::Tensor;
  friend gradwire::Tensor from_bytes(Session&, DType, std::span<const std::byte>, std::span<const int64_t>, bool,
                                     std::source_location);
  friend gradwire::Tensor tensor(Session&, Literal, TensorOptions, std::source_location);
  friend gradwire::Tensor tensor_of(Session&, DType, std::span<const std::byte>, TensorOptions, std::source_location);
  friend void set_default_session(const Session&);
  friend void forget_default_session(const Session&);
  void fill(uint16_t op, const std::source_location& at, std::span<const Value<Tensor>> args, std::span<Tensor> out);
  client::Core& core() const;
  explicit Session(std::shared_ptr<client::Core> owner) : core_(owner.get()), owner_(std::move(owner)) {}

  client::Core* core_ = nullptr;
  std::shared_ptr<client::Core> owner_;  // null in the one that a Core lends to its tensors
};

/// The session of creation functions that are called without one: that of the first client that is still there, or of
/// this call.
void set_default_session(const Session&);
/// Throws Error{closed} if there is none.
Session& default_session();
/// If it is this one, there is none from now on.
void forget_default_session(const Session&);

}  // namespace gradwire
