#include "client/core.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "client/errors.h"
#include "client/link.h"

namespace gradwire::client {
namespace {

constexpr size_t kSlab = 256;
constexpr size_t kPool = 4;
constexpr size_t kWarnings = 256;
constexpr uint64_t kListRoom = uint64_t{1} << 20;  // ids that a list of unknown length may take

}  // namespace

Core::Core(std::shared_ptr<Link> link, std::string id, DType default_dtype, Timeout timeout)
    : link_(std::move(link)), id_(std::move(id)), default_dtype_(default_dtype), timeout_(timeout) {
  session_.core_ = this;
  open_locked();
}

Core::~Core() { link_->forget(remote); }

// ---- recording ----

/// Takes back what a call wrote, unless it was completed.
struct Core::Recording {
  explicit Recording(Batch& b)
      : batch(b), calls(b.calls.size()), args(b.args.size()), ints(b.ints.size()), texts(b.texts.size()) {}
  ~Recording() {
    if (done) return;
    batch.calls.resize(calls), batch.args.resize(args), batch.ints.resize(ints);
    // Texts stay: a line may refer to a file's name.
  }
  Batch& batch;
  size_t calls, args, ints, texts;
  bool done = false;
};

void Core::check_locked() {
  if (dead_) raise(*dead_);
}

void Core::call(uint16_t op, const std::source_location& at, std::span<const Value<Tensor>> args, std::span<Tensor> out,
                uint64_t ids) {
  std::unique_lock lock(lock_);
  if (pending_) raise_pending_locked(lock);
  check_locked();
  if (!open_->fetches.empty()) seal_locked();  // a fetch sees the state before this call
  const bool was_empty = open_->empty();
  Batch& b = open_->batch;
  Recording recording(b);
  OpCall& c = begin(op, at);
  const size_t size = open_->size();
  for (const auto& v : args) encode(b, v);
  if (open_->size() - size > kCallBytes)
    raise(Error(Code::too_large, "the arguments of a call have at most 4 MiB: make long lists a tensor",
                kOperatorNames[op])
              .at(Where{at.file_name(), at.line()}));
  c.args = static_cast<uint8_t>(args.size());
  if (!out.empty()) {
    c.out = next_id_;
    next_id_ += std::max<uint64_t>(out.size(), ids);
    for (size_t i = 0; i < out.size(); ++i) out[i] = Tensor(node(c.out + i));
  }
  recording.done = true;
  const bool tell = push_locked(was_empty);
  lock.unlock();
  if (tell) tell_and_wait(tell);
}

std::vector<Tensor> Core::list(uint16_t op, const std::source_location& at, std::span<const Value<Tensor>> args,
                               size_t count) {
  if (count != SIZE_MAX) {
    std::vector<Tensor> out(count);
    call(op, at, args, out);
    return out;
  }
  Tensor first[1];
  call(op, at, args, first, kListRoom);
  const auto info = std::make_shared<InfoArrival>();
  fetch(*first[0].node_, Part::value, FetchKind::info, info);
  info->wait(timeout_);
  const int64_t n = info->info().count;
  std::vector<Tensor> out;
  out.reserve(static_cast<size_t>(std::max<int64_t>(n, 0)));
  std::lock_guard lock(lock_);
  for (int64_t i = 0; i < n; ++i) {
    if (i == 0) {
      out.push_back(first[0]);
      continue;
    }
    Node* more = node(first[0].node_->id + static_cast<uint64_t>(i));
    more->seq = first[0].node_->seq, more->step = first[0].node_->step;
    out.push_back(Tensor(more));
  }
  return out;
}

Tensor Core::upload(DType dtype, std::span<const int64_t> shape, std::span<const std::byte> bytes, uint64_t number,
                    bool requires_grad, const std::source_location& at) {
  std::unique_lock lock(lock_);
  if (pending_) raise_pending_locked(lock);
  check_locked();
  if (!open_->fetches.empty()) seal_locked();
  const bool was_empty = open_->empty();
  Batch& b = open_->batch;
  Recording recording(b);
  OpCall& c = begin(OpCall::kUpload, at);
  b.args.push_back({.kind = ArgKind::dtype, .i = static_cast<int64_t>(dtype)});
  b.args.push_back({.kind = ArgKind::ints, .count = static_cast<uint32_t>(shape.size()), .i = 0});
  b.ints.insert(b.ints.end(), shape.begin(), shape.end());
  if (number) {
    b.args.push_back({.kind = ArgKind::integer, .i = static_cast<int64_t>(number)});
  } else {
    b.args.push_back({.kind = ArgKind::text, .i = static_cast<int64_t>(b.texts.size())});
    b.texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    open_->bytes += bytes.size();
  }
  b.args.push_back({.kind = ArgKind::boolean, .i = requires_grad});
  c.args = 4;
  c.out = next_id_++;
  Tensor t(node(c.out));
  recording.done = true;
  const bool tell = push_locked(was_empty);
  lock.unlock();
  TensorInfo info;
  info.dtype = dtype, info.shape = Shape(shape);
  int64_t stride = 1;
  info.strides = Shape(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 0; stride *= std::max<int64_t>(shape[i], 1)) info.strides[i] = stride;
  info.device = "cpu";
  learn(*t.node_, std::move(info));
  if (tell) tell_and_wait(tell);
  return t;
}

OpCall& Core::begin(uint16_t op, const std::source_location& at) {
  if (op < OpCall::kUpload && !link_->operators().empty()) {
    const uint16_t there = link_->operators()[op];
    if (there == Link::kUnknown)
      raise(Error(Code::unknown_operator, std::string("the server has no operator ") + kOperatorNames[op],
                  kOperatorNames[op])
                .at(Where{at.file_name(), at.line()}));
    op = there;
  }
  Batch& b = open_->batch;
  OpCall& c = b.calls.emplace_back();
  c.op = op;
  c.grad_mode = GradMode::enabled();
  c.line = line(b, at);
  return c;
}

uint32_t Core::line(Batch& b, const std::source_location& at) {
  const char* file = at.file_name();
  if (!at.line()) return 0;
  Line& cached = lines_[(at.line() ^ (std::bit_cast<uintptr_t>(file) >> 4)) % std::size(lines_)];
  if (cached.generation == generation_ && cached.file == file && cached.line == at.line()) return cached.index;
  const auto known = std::find_if(files_.begin(), files_.end(), [&](const File& f) { return f.name == file; });
  uint32_t name;
  if (known != files_.end()) {
    name = known->text;
  } else {
    name = static_cast<uint32_t>(b.texts.size());
    b.texts.emplace_back(file);
    files_.push_back({file, name});
  }
  b.lines.push_back({name, at.line()});
  cached = {file, at.line(), generation_, static_cast<uint32_t>(b.lines.size())};
  return cached.index;
}

uint32_t Core::text(Batch& b, std::string_view s) {
  if (s.size() > kInlineBytes) raise(Error(Code::too_large, "a text argument has at most 64 KiB"));
  const auto i = static_cast<uint32_t>(b.texts.size());
  b.texts.emplace_back(s);
  open_->bytes += s.size();
  return i;
}

void Core::encode_tensor(Batch& b, const Tensor& t) {
  if (!t.node_) {
    b.args.emplace_back();
    return;
  }
  if (t.node_->session != &session_) raise(Error(Code::bad_argument, "expected all tensors to be of the same session"));
  if (t.node_->extra && t.node_->extra->failure) raise(*t.node_->extra->failure);
  Arg& a = b.args.emplace_back();
  a.kind = ArgKind::tensor, a.part = t.part_, a.id = t.node_->id;
}

void Core::encode(Batch& b, const Value<Tensor>& v) {
  switch (v.kind) {
    case ArgKind::tensor:
      return encode_tensor(b, *v.tensors);
    case ArgKind::none:
      b.args.emplace_back();
      return;
    case ArgKind::boolean:
      b.args.push_back({.kind = v.kind, .i = v.b});
      return;
    case ArgKind::integer:
      b.args.push_back({.kind = v.kind, .i = v.i});
      return;
    case ArgKind::real:
      b.args.push_back({.kind = v.kind, .f = v.f});
      return;
    case ArgKind::dtype:
      b.args.push_back({.kind = v.kind, .i = static_cast<int64_t>(v.dtype)});
      return;
    case ArgKind::text:
      b.args.push_back({.kind = v.kind, .i = text(b, {v.text, v.count})});
      return;
    case ArgKind::tensors:
      b.args.push_back({.kind = v.kind, .count = v.count, .i = 0});
      for (uint32_t i = 0; i < v.count; ++i) encode_tensor(b, v.tensors[i]);
      return;
    case ArgKind::ints:
      b.args.push_back({.kind = v.kind, .count = v.count, .i = 0});
      b.ints.insert(b.ints.end(), v.ints, v.ints + v.count);
      return;
    case ArgKind::floats:
      b.args.push_back({.kind = v.kind, .count = v.count, .i = 0});
      for (uint32_t i = 0; i < v.count; ++i) b.ints.push_back(std::bit_cast<int64_t>(v.floats[i]));
      return;
    case ArgKind::index:
      b.args.push_back({.kind = v.kind, .count = v.count, .i = 0});
      for (uint32_t i = 0; i < v.count; ++i) encode_index(b, v.index[i]);
      return;
    default:
      raise(Error(Code::internal, "an argument of a kind that no function takes"));
  }
}

void Core::encode_index(Batch& b, const IndexItem<Tensor>& item) {
  switch (item.kind) {
    case ArgKind::tensor:
      return encode_tensor(b, item.tensor);
    case ArgKind::integer:
    case ArgKind::boolean:
      b.args.push_back({.kind = item.kind, .i = item.integer});
      return;
    case ArgKind::slice: {
      const Slice& s = item.slice;
      const uint32_t present = (s.start ? 1 : 0) | (s.stop ? 2 : 0) | 4;
      b.args.push_back({.kind = item.kind, .count = present, .i = 0});
      for (const int64_t i : {s.start.value_or(0), s.stop.value_or(0), s.step}) b.ints.push_back(i);
      return;
    }
    case ArgKind::int_array:
    case ArgKind::bool_array:
      b.args.push_back({.kind = item.kind, .count = static_cast<uint32_t>(item.sizes.size()), .i = 0});
      b.ints.insert(b.ints.end(), item.sizes.begin(), item.sizes.end());
      b.ints.insert(b.ints.end(), item.values.begin(), item.values.end());
      return;
    default:
      b.args.push_back({.kind = item.kind, .i = 0});
      return;
  }
}

void Core::fetch(const Node& n, Part part, FetchKind kind, const std::shared_ptr<Arrival>& arrival) {
  arrival->core = shared_from_this();
  std::unique_lock lock(lock_);
  if (pending_) raise_pending_locked(lock);
  check_locked();
  if (n.extra && n.extra->failure) raise(*n.extra->failure);
  const bool was_empty = open_->empty();
  open_->fetches.push_back(arrival);
  try {
    open_->batch.fetches.push_back({n.id, part, kind});
  } catch (...) {
    open_->fetches.pop_back();
    throw;
  }
  const bool full = open_->fetches.size() >= kBatchFetches;
  if (full) seal_locked();
  lock.unlock();
  if (was_empty || full) tell_and_wait(true);
}

// ---- nodes ----

Node* Core::allocate() {
  if (!free_) {
    auto slab = std::make_unique<Node[]>(kSlab);
    slabs_.reserve(slabs_.size() + 1);
    for (size_t i = 0; i < kSlab; ++i) slab[i].next = free_, free_ = &slab[i];
    slabs_.push_back(std::move(slab));
  }
  if (live_ == 0) keep_ = shared_from_this();
  ++live_;
  Node* n = free_;
  free_ = n->next;
  return n;
}

Node* Core::node(uint64_t id) {
  Node* n = allocate();
  n->refs.store(1, std::memory_order_relaxed);
  n->step = static_cast<uint32_t>(open_->batch.calls.empty() ? 0 : open_->batch.calls.size() - 1);
  n->seq = open_->batch.seq;
  n->id = id;
  n->session = &session_;
  return n;
}

void Core::release(Node* n) noexcept {
  std::shared_ptr<Core> keep;  // destroyed after the lock
  bool tell = false;
  {
    std::lock_guard lock(lock_);
    const bool failed = n->extra && n->extra->failure;
    if (!failed && !dead_) {
      try {
        if (!open_->fetches.empty()) seal_locked();
        const bool was_empty = open_->empty();
        OpCall c;
        c.op = OpCall::kRelease, c.out = n->id;
        open_->batch.calls.push_back(c);
        tell = push_locked(was_empty);
      } catch (...) {  // no memory to say so: the session's end frees it
      }
    }
    delete std::exchange(n->extra, nullptr);
    n->next = free_, free_ = n;
    if (--live_ == 0) keep = std::move(keep_);
  }
  if (tell) link_->wake(*this);
}

void release(Node* n) noexcept { Core::of(*n).release(n); }

std::shared_ptr<const TensorInfo> Core::known(const Node& n) {
  std::unique_lock lock(lock_);
  if (pending_) raise_pending_locked(lock);
  if (n.extra && n.extra->failure) raise(*n.extra->failure);
  return n.extra ? n.extra->info : nullptr;
}

void Core::learn(Node& n, TensorInfo info) {
  auto shared = std::make_shared<const TensorInfo>(std::move(info));
  std::lock_guard lock(lock_);
  if (!n.extra) n.extra = new Extra;
  n.extra->info = std::move(shared);
}

// ---- batches ----

void Core::open_locked() {
  if (pool_.empty()) {
    open_ = std::make_unique<Outgoing>();
    Batch& b = open_->batch;
    b.calls.reserve(kBatchCalls), b.args.reserve(3 * kBatchCalls), b.ints.reserve(kBatchCalls);
  } else {
    open_ = std::move(pool_.back());
    pool_.pop_back();
  }
  open_->batch.seq = next_seq_++;
  open_->batch.epoch = epoch_;
  ++generation_;
  files_.clear();
}

void Core::seal_locked() {
  if (open_->empty()) return;
  sealed_.push_back(std::move(open_));
  open_locked();
}

bool Core::push_locked(bool was_empty) {
  if (open_->batch.calls.size() < kBatchCalls && open_->size() < kBatchBytes) return was_empty;
  seal_locked();
  return true;
}

void Core::tell_and_wait(bool tell) {
  if (tell) link_->wake(*this);
  const auto more_than = [this](size_t n) {
    std::lock_guard lock(lock_);
    return sealed_.size() > n && !dead_;
  };
  if (!more_than(kSealed)) return;
  // Until there is room for several: to switch threads for each costs more than the batches.
  const auto room = [&] { return !more_than(kSealed / 2); };
  std::unique_lock lock(wait_mutex_);
  ++blocked_;
  bool in_time = true;
  if (timeout_.count())
    in_time = room_.wait_for(lock, timeout_, room);
  else
    room_.wait(lock, room);
  --blocked_;
  if (!in_time) raise(Error(Code::deadline_exceeded, "the server takes no more calls"));
}

uint64_t Core::flush() {
  uint64_t last;
  {
    std::lock_guard lock(lock_);
    seal_locked();
    last = open_->batch.seq - 1;
  }
  link_->wake(*this);
  return last;
}

void Core::wait_for(uint64_t seq, Timeout timeout) {
  std::unique_lock lock(wait_mutex_);
  const auto over = [&] {
    wanted_ = std::min(wanted_.load(), seq);  // before looking: an answer that comes now sees it
    if (answered_.load() >= seq) return true;
    std::lock_guard l(lock_);
    return dead_ != nullptr;
  };
  bool in_time = true;
  if (timeout.count())
    in_time = answers_.wait_for(lock, timeout, over);
  else
    answers_.wait(lock, over);
  if (!in_time) raise(Error(Code::deadline_exceeded, "the calls were not done in time"));
}

void Core::check() {
  std::unique_lock lock(lock_);
  if (pending_) raise_pending_locked(lock);
  check_locked();
}

void Core::sync(Timeout t) {
  check();
  wait_for(flush(), timeout(t));
  check();
}

void Core::close(Timeout t) {
  {
    std::lock_guard lock(lock_);
    if (dead_ && dead_->code() == Code::closed) return;
  }
  std::shared_ptr<const Error> first;
  try {
    sync(t);
  } catch (const Error& e) {
    if (e.code() != Code::unavailable) first = std::make_shared<const Error>(e);
  }
  link_->close(*this, timeout(t));
  broken(std::make_shared<const Error>(Code::closed, "Attempted to use a closed Session."));
  if (first) raise(*first);
}

// ---- errors ----

void Core::mark_locked(const Error& e, const std::shared_ptr<const Error>& failure) {
  // Without a step the calls of the batch have run; what it fetched failed.
  const uint64_t seq = e.step() < 0 ? e.seq() + 1 : e.seq();
  const auto step = static_cast<uint64_t>(std::max<int64_t>(e.step(), 0));
  for (const auto& slab : slabs_) {
    for (size_t i = 0; i < kSlab; ++i) {
      Node& n = slab[i];
      if (!n.refs.load(std::memory_order_relaxed) || n.seq < seq || (n.seq == seq && n.step < step)) continue;
      if (!n.extra) n.extra = new Extra;
      if (!n.extra->failure) n.extra->failure = failure;
    }
  }
}

void Core::raise_pending_locked(std::unique_lock<Spin>& lock) {
  const auto failure = std::exchange(pending_, nullptr);
  mark_locked(*failure, failure);
  seal_locked();  // what it holds is of the old epoch: the server skips it
  ++epoch_;
  open_->batch.epoch = epoch_;
  lock.unlock();
  link_->wake(*this);
  raise(*failure);
}

void Core::met(const std::shared_ptr<const Error>& e, uint64_t epoch) {
  {
    std::unique_lock lock(lock_);
    if (pending_ && epoch == epoch_) raise_pending_locked(lock);
  }
  raise(*e);
}

std::vector<Warning> Core::warnings() {
  std::lock_guard lock(lock_);
  return std::exchange(warnings_, {});
}

// ---- the network thread ----

Core::Next Core::next(std::unique_ptr<Outgoing>& out, bool open_too) {
  bool roomy;
  {
    std::lock_guard lock(lock_);
    if (sealed_.empty() && open_too) seal_locked();
    if (sealed_.empty()) return open_->empty() ? Next::none : Next::later;
    out = std::move(sealed_.front());
    sealed_.pop_front();
    roomy = sealed_.size() <= kSealed / 2;
  }
  if (roomy && blocked_.load()) wake(room_);
  return Next::batch;
}

bool Core::idle() {
  std::lock_guard lock(lock_);
  return sealed_.empty() && open_->empty();
}

void Core::recycle(std::unique_ptr<Outgoing> o) {
  o->batch.clear();
  o->fetches.clear();
  o->bytes = 0;
  std::lock_guard lock(lock_);
  if (pool_.size() < kPool && o->batch.args.capacity() + o->batch.ints.capacity() < 32 * kBatchCalls)
    pool_.push_back(std::move(o));
}

void Core::answered(uint64_t seq, uint64_t epoch, std::shared_ptr<const Error> error, std::vector<Warning> warnings) {
  {
    std::lock_guard lock(lock_);
    if (error && epoch == epoch_ && !pending_) pending_ = std::move(error);
    for (auto& w : warnings) {
      if (warnings_.size() >= kWarnings) warnings_.erase(warnings_.begin());
      warnings_.push_back(std::move(w));
    }
  }
  answered_.store(seq);
  if (seq >= wanted_.load()) wake(answers_);
}

void Core::broken(std::shared_ptr<const Error> error) {
  std::vector<std::shared_ptr<Arrival>> waiting;
  {
    std::lock_guard lock(lock_);
    if (!dead_) dead_ = error;
    for (auto& s : sealed_) std::move(s->fetches.begin(), s->fetches.end(), std::back_inserter(waiting));
    std::move(open_->fetches.begin(), open_->fetches.end(), std::back_inserter(waiting));
    sealed_.clear();
    open_->batch.clear(), open_->fetches.clear();
  }
  for (auto& a : waiting) a->fail(error, UINT64_MAX);
  wake(answers_);
  wake(room_);
}

void Core::wake(std::condition_variable& waiting) {
  {
    std::lock_guard lock(wait_mutex_);  // who has looked and does not yet sleep holds it
    if (&waiting == &answers_) wanted_ = UINT64_MAX;
  }
  waiting.notify_all();  // and who is woken finds it free
}

}  // namespace gradwire::client
