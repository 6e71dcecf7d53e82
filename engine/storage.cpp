#include "engine/storage.h"

#include <cstring>
#include <new>

#include "engine/tensor.h"

namespace gradwire::engine {
namespace {

// Small data shares one block with its storage. Larger data has a block of its own, so that it can go when the storage
// moves to another buffer.
constexpr size_t kCombined = 4096;
constexpr size_t kHeader = 64;

}  // namespace

Buffer* Buffer::make(Context& cx, size_t bytes) {
  if (cx.on_cpu) {
    char* block = static_cast<char*>(cx.pool.take(kHeader + bytes));
    auto* b = new (block) Buffer;
    b->data = block + kHeader, b->bytes = bytes, b->pool = &cx.pool;
    return b;
  }
  cx.pool.charge(bytes);
  void* data = nullptr;
  Buffer* b = nullptr;
  try {
    data = cx.backend.allocate(bytes);
    b = new (cx.pool.take(kHeader)) Buffer;
  } catch (...) {
    if (data) cx.backend.free(data, bytes);
    cx.pool.uncharge(bytes);
    throw;
  }
  b->data = data, b->bytes = bytes, b->pool = &cx.pool, b->device = &cx.backend;
  return b;
}

Buffer* Buffer::borrow(Context& cx, void* data, size_t bytes, std::shared_ptr<void> owner) {
  static_assert(sizeof(Buffer) + sizeof owner <= kHeader);
  auto* b = new (cx.pool.take(kHeader)) Buffer;
  b->borrowed = true, b->data = data, b->bytes = bytes, b->pool = &cx.pool;
  new (b + 1) std::shared_ptr<void>(std::move(owner));
  return b;
}

std::shared_ptr<void>& Buffer::owner() { return *reinterpret_cast<std::shared_ptr<void>*>(this + 1); }

size_t Buffer::block() const { return borrowed || device ? kHeader : kHeader + bytes; }

void Buffer::free_here() {
  if (borrowed) std::destroy_at(&owner());
  if (device) {
    device->free(data, bytes);
    pool->uncharge(bytes);
  }
  pool->give(combined ? reinterpret_cast<char*>(this) - sizeof(Storage) : reinterpret_cast<char*>(this), block());
}

void Buffer::let_go(Buffer* b) {
  Pool* pool = b->pool;
  if (b->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    if (b->borrowed) std::destroy_at(&b->owner());
    void* block = b->combined ? reinterpret_cast<char*>(b) - sizeof(Storage) : reinterpret_cast<char*>(b);
    pool->give_remote(block, b->block());
  }
  pool->release();
}

/// On a buffer that it owns, also if this throws.
Storage* Storage::on(Context& cx, Buffer* b) {
  try {
    auto* s = new (cx.pool.take(sizeof(Storage))) Storage;
    s->buffer = b;
    return s;
  } catch (...) {
    b->free_here();
    throw;
  }
}

Storage* Storage::make(Context& cx, size_t bytes) {
  if (bytes > kCombined || !cx.on_cpu) return on(cx, Buffer::make(cx, bytes));
  char* block = static_cast<char*>(cx.pool.take(kHeader + bytes));
  auto* s = new (block) Storage;
  auto* b = new (block + sizeof(Storage)) Buffer;
  b->combined = true, b->data = block + kHeader, b->bytes = bytes, b->pool = &cx.pool;
  s->buffer = b;
  return s;
}

Storage* Storage::borrow(Context& cx, void* data, size_t bytes, std::shared_ptr<void> owner) {
  return on(cx, Buffer::borrow(cx, data, bytes, std::move(owner)));
}

Storage* Storage::around(Context& cx, Buffer* b) {
  auto* s = new (cx.pool.take(sizeof(Storage))) Storage;
  b->shared = true;
  b->holders.fetch_add(1, std::memory_order_relaxed);
  s->buffer = b;
  return s;
}

void Storage::drop(Storage* s) {
  auto end = [](Buffer* b) {
    if (!b->shared || b->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) b->free_here();
  };
  Buffer* b = s->buffer;
  if (s->moved) {
    end(reinterpret_cast<Buffer*>(s + 1));  // the block goes with it
  } else if (!b->combined) {
    b->pool->give(s, sizeof(Storage));
  }
  end(b);
}

void Storage::unshare(Context& cx) {
  Buffer* b = Buffer::make(cx, buffer->bytes);
  std::memcpy(b->data, buffer->data, buffer->bytes);
  if (buffer->combined) {
    moved = true;
  } else if (buffer->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    buffer->free_here();
  }
  buffer = b;
}

}  // namespace gradwire::engine
