#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "engine/backend.h"
#include "engine/pool.h"

namespace gradwire::engine {

class Context;

/// The bytes of a storage. Who reads them outside the session's queue (a download, a snapshot) holds the Buffer, and
/// whoever writes through the Storage first copies bytes that are held: snapshots are free and never change.
///
/// Content may be held from any thread; everything else belongs to the session's queue.
struct Buffer {
  std::atomic<int32_t> holders{1};  // of the content: its storage, and the holds outside
  bool shared = false;              // ever held outside: until then nothing needs to be atomic
  bool combined = false;            // one block with its storage
  bool borrowed = false;            // the data is somebody else's, whom the header keeps, and charged to nobody here
  void* data = nullptr;             // host memory follows this header; device memory lives elsewhere
  size_t bytes = 0;
  Pool* pool = nullptr;       // of this header, and what the data is charged to
  Backend* device = nullptr;  // null: host memory

  /// A buffer with its data in one block, or with device memory. Throws memory_limit.
  static Buffer* make(Context&, size_t bytes);
  /// Around host memory that `owner` keeps; it may be read up to 64 bytes past its end.
  static Buffer* borrow(Context&, void* data, size_t bytes, std::shared_ptr<void> owner);
  /// Ends a hold, on any thread.
  static void let_go(Buffer*);
  /// Another hold, for any thread. Called by the owner. Host memory only.
  void hold() {
    shared = true;
    holders.fetch_add(1, std::memory_order_relaxed);
    pool->retain();
  }

 private:
  friend struct Storage;
  void free_here();                // by the owner, when holders has come to 0
  std::shared_ptr<void>& owner();  // of what is borrowed
  size_t block() const;            // bytes
};

/// What tensors that alias each other share: the bytes and the count of in-place writes. Not thread-safe.
struct Storage {
  int32_t refs = 1;
  uint32_t version = 0;
  Buffer* buffer = nullptr;
  bool moved = false;  // away from the buffer in whose block it stands, which it still holds

  static Storage* make(Context&, size_t bytes);
  /// Around a buffer that exists: takes a hold of its own.
  static Storage* around(Context&, Buffer*);
  /// Around memory that is not the session's (Buffer::borrow).
  static Storage* borrow(Context&, void* data, size_t bytes, std::shared_ptr<void> owner);
  static void drop(Storage*);  // refs has come to 0

  void* data() const { return buffer->data; }
  size_t bytes() const { return buffer->bytes; }
  /// The bytes, for writing: copies them first while someone outside holds them.
  void* writable(Context& cx) {
    if (buffer->shared && buffer->holders.load(std::memory_order_acquire) > 1) unshare(cx);
    return buffer->data;
  }

 private:
  static Storage* on(Context&, Buffer*);
  void unshare(Context& cx);
};
static_assert(sizeof(Storage) + sizeof(Buffer) == 64);

}  // namespace gradwire::engine
