#include "engine/reducer.h"

#include <algorithm>
#include <cstring>

#include "engine/apply.h"

namespace gradwire::engine {
namespace {
/// A handle on what somebody else owns too.
Tensor handle(TensorImpl* t) { return ++t->refs, Tensor(t); }

constexpr size_t kWorthwhile = size_t{64} << 10;  // bytes: what is smaller is copied
constexpr size_t kAlign = 64;                     // as the pool's memory, which may also be read this far past its end
size_t aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }
}  // namespace

/// A transfer that gradients stay in, and what the session is charged for it.
struct Reducer::Kept {
  Kept(Pool& p, TransferPtr t) : pool(p), transfer(std::move(t)) {}
  ~Kept() {
    if (charged) pool.uncharge_remote(charged);  // the last gradient may be a snapshot's, on any thread
  }
  /// Whether the session has room for it.
  bool charge() {
    if (charged) return true;
    try {
      pool.charge(transfer->bytes.size());
    } catch (const Error&) {
      return false;
    }
    if (!transfer->keep()) return pool.uncharge(transfer->bytes.size()), false;
    charged = transfer->bytes.size();
    return true;
  }
  Pool& pool;
  const TransferPtr transfer;
  size_t charged = 0;
};

Reducer::~Reducer() {
  if (cx_) std::erase(cx_->reducers, this);
}

void Reducer::attach(Context& cx, std::span<const Tensor> params, std::string group, int64_t bucket_bytes) {
  const auto r = std::make_shared<Reducer>();
  r->cx_ = &cx, r->group_ = std::move(group);
  cx.reducers.push_back(r.get());
  r->slots_.resize(params.size());
  int64_t most = std::min(bucket_bytes, kFirstBucket);
  for (size_t k = params.size(); k-- > 0;) {  // backward reaches the last parameters first
    const Tensor& t = params[k];
    const auto bytes = static_cast<size_t>(t.numel() * size_of(t.dtype()));
    // As PyTorch: full when it has reached its size, so that small parameters travel with a large one.
    const bool fits = !r->buckets_.empty() && r->buckets_.back().dtype == t.dtype() &&
                      static_cast<int64_t>(r->buckets_.back().bytes) < most;
    if (!fits) {
      if (!r->buckets_.empty()) most = bucket_bytes;
      r->buckets_.push_back({.dtype = t.dtype()});
    }
    Bucket& b = r->buckets_.back();
    b.bytes = aligned(b.bytes);
    r->slots_[k] = {t.get(), static_cast<uint32_t>(r->buckets_.size() - 1), b.bytes, bytes};
    b.slots.push_back(static_cast<uint32_t>(k));
    b.bytes += bytes;
  }
  r->model_ = list_number(params, static_cast<uint64_t>(bucket_bytes));
  for (const Tensor& t : params) extra(t);  // all that can fail comes before the first is changed
  for (size_t k = 0; k < params.size(); ++k) {
    Extra& e = *params[k]->extra;
    if (e.reducer) e.reducer->forget(e.reducer_slot);
    e.reducer = r, e.reducer_slot = static_cast<uint32_t>(k);
  }
}

void Reducer::begin(const std::unordered_map<Node*, uint32_t>& reached) {
  next_ = 0, begun_ = false;
  drop();
  for (Bucket& b : buckets_) b.missing = b.slots.size();
  for (Slot& s : slots_) {
    s.there = !s.param || !reached.contains(s.param->node);
    buckets_[s.bucket].missing -= s.there;
  }
}

void Reducer::drop() noexcept {
  for (Slot& s : slots_) s.sent = s.fresh = Tensor();
  for (Bucket& b : buckets_) b.transfer.reset(), b.kept.reset();
}

void Reducer::arrived(uint32_t slot) {
  begun_ = true;
  Slot& s = slots_[slot];
  if (!std::exchange(s.there, true)) --buckets_[s.bucket].missing;
}

bool Reducer::pump() {
  while (next_ < buckets_.size() && buckets_[next_].missing == 0) start(buckets_[next_++]);
  return next_ == buckets_.size();
}

void Reducer::flush() {
  while (next_ < buckets_.size()) start(buckets_[next_++]);
}

void Reducer::start(Bucket& b) {
  Exchange& x = *cx_->exchange;
  const TransferPtr t = x.prepare(group_, b.bytes + kAlign);
  b.kept = std::make_shared<Kept>(cx_->pool, t);
  // As PyTorch: divided, then added up; but halves are divided after they were added in float32.
  const bool divides = b.dtype == DType::float32 || b.dtype == DType::float64;
  const double factor = 1.0 / x.group(group_).size;
  for (const uint32_t k : b.slots) {
    Slot& s = slots_[k];
    std::byte* to = t->bytes.data() + s.offset;
    const size_t end = s.offset + s.bytes;
    std::memset(to + s.bytes, 0, std::min(aligned(end), b.bytes) - end);
    if (!s.param || !s.param->extra->grad || !s.bytes) {
      std::memset(to, 0, s.bytes);
      continue;
    }
    const Tensor& grad = s.param->extra->grad;
    s.sent = cx_->on_cpu ? borrow(*cx_, b.dtype, grad.shape(), to, b.kept)
             : divides   ? cx_->empty_like(grad, b.dtype)
                         : grad;
    if (divides)
      scale_into(*cx_, s.sent, grad, factor);
    else if (cx_->on_cpu)
      cx_->copy(s.sent, grad);
    if (!cx_->on_cpu) put_bytes(*cx_, std::exchange(s.sent, Tensor()), to);
  }
  x.start(t, group_,
          {Collective::all_reduce, divides ? ReduceOp::sum : ReduceOp::avg, b.dtype,
           static_cast<int64_t>(b.bytes) / size_of(b.dtype), -1,
           model_ << 16 | static_cast<uint64_t>(&b - buckets_.data()) % Terms::kList});
  b.transfer = t;
}

void Reducer::abandon() noexcept {
  try {
    if (begun_ && !std::ranges::all_of(buckets_, [](const Bucket& b) { return b.transfer != nullptr; }))
      cx_->exchange->leave(group_, "a backward has failed before all of its gradients were sent");
  } catch (...) {  // it has been left already
  }
  drop();
}

bool Reducer::done() const {
  for (const Bucket& b : buckets_) {
    if (!b.transfer || !b.transfer->done()) return false;
  }
  return true;
}

/// Whether nobody sees that a gradient's bytes are elsewhere from now on. One that is a small part of its bucket would
/// keep all of it.
static bool moves(const Tensor& grad, size_t bucket) {
  const size_t bytes = grad->storage->bytes();
  return grad->contiguous && grad->storage->refs == 1 && !grad->own_version &&
         bytes >= std::max(bucket / 8, kWorthwhile) &&
         bytes == static_cast<size_t>(grad.numel() * size_of(grad.dtype()));
}

void Reducer::prepare() {
  for (Bucket& b : buckets_) b.transfer->result();
  for (Slot& s : slots_) {
    if (!s.param) continue;
    const Tensor& grad = s.param->extra->grad;
    if (!grad || (!grad->contiguous && !s.sent)) s.fresh = cx_->empty(handle(s.param).shape(), s.param->dtype);
  }
}

void Reducer::commit() {
  for (Slot& s : slots_) {
    if (!s.param) continue;
    Bucket& b = buckets_[s.bucket];
    Tensor& grad = s.param->extra->grad;
    if (s.sent && grad && moves(grad, b.bytes) && b.kept->charge()) {
      s.sent->storage->version = grad->storage->version + 1;
      std::swap(s.sent->storage, grad->storage);
      s.sent = Tensor();
      continue;
    }
    if (grad && !grad->contiguous) {
      if (!s.sent) take_bytes(*cx_, b.transfer->bytes.data() + s.offset, s.fresh);
      cx_->copy(grad, s.sent ? s.sent : s.fresh);
      bump_version(grad);
      continue;
    }
    if (!grad) grad = std::move(s.fresh);
    take_bytes(*cx_, b.transfer->bytes.data() + s.offset, grad);
  }
}

}  // namespace gradwire::engine
