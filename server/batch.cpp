#include <utility>

#include "server/args.h"
#include "server/session.h"

namespace gradwire::server {
namespace {

constexpr size_t kFetches = 4096;                            // of one batch
constexpr auto kUnnoticed = std::chrono::microseconds(200);  // between two looks at the clock

class BatchTask final : public Task {
 public:
  BatchTask(std::shared_ptr<Core> core, Batch batch, std::shared_ptr<std::atomic<bool>> cancelled)
      : core_(std::move(core)),
        batch_(std::move(batch)),
        cancelled_(std::move(cancelled)),
        reader_({batch_.args, batch_.ints, batch_.texts}, Find{this}),
        outcome_(std::make_shared<Outcome>()) {
    outcome_->seq = batch_.seq;
  }

  Step step(Clock::time_point until) override {
    if (core_->closing.load(std::memory_order_acquire) || !core_->state) {
      fail(Error(Code::closed, "the session is closed"));
      return Step::done;
    }
    State& s = *core_->state;
    if (!started_) start(s);
    const Clock& clock = core_->shared.clock;
    auto looked = clock.now();
    for (int unseen = 0; at_ < batch_.calls.size();) {
      if (const Step step = one(s, until); step != Step::done) return core_->account(), step;
      // Looks at the clock after every call, or after up to 16 quick ones.
      if (++unseen < quick_) continue;
      const auto now = clock.now();
      quick_ = (now - looked) * 2 < kUnnoticed ? std::min(quick_ * 2, 16) : 1;
      looked = now, unseen = 0;
      core_->account();
      if (now >= until && at_ < batch_.calls.size()) return Step::again;
    }
    if (!error_) fetch(s);
    answer(s);
    return Step::done;
  }

  void fail(const Error& e) noexcept override {
    try {
      backward_.reset();
      auto outcome = std::make_shared<Outcome>();
      outcome->seq = batch_.seq;
      outcome->error = e;
      outcome->error->at(batch_.seq, -1);
      core_->shared.metrics.add(Metric::batches, "error");
      core_->window.finish(batch_.seq, std::move(outcome));
    } catch (...) {  // no memory for an answer: the client's deadline tells
    }
  }

 private:
  /// Asked between the nodes of a backward.
  struct Pause {
    const Core& core;
    Clock::time_point until;
    const std::atomic<bool>& cancelled;
    static bool due(void* p) {
      const auto& pause = *static_cast<const Pause*>(p);
      return pause.cancelled.load(std::memory_order_relaxed) || pause.core.closing.load(std::memory_order_relaxed) ||
             pause.core.shared.clock.now() >= pause.until;
    }
  };

  void start(State& s) {
    started_ = true;
    s.cx.pool.collect();
    if (s.failure && batch_.epoch <= s.failed_epoch) {
      error_ = s.failure;
      skipped_ = true;
    } else if (batch_.fetches.size() > kFetches) {
      error_ = Error(Code::bad_program, "a batch fetches at most " + std::to_string(kFetches) + " values")
                   .at(batch_.seq, -1);
    }
  }

  const engine::Tensor* resolve(const Arg& a) {
    Entry* e = core_->state->table.find(a.id);
    if (!e) throw Error(Code::no_tensor, "there is no tensor #" + std::to_string(a.id));
    if (!e->tensor)
      throw Error(Code::no_tensor, "the tensor #" + std::to_string(a.id) + " is a gradient that does not exist");
    return &e->tensor;
  }

  /// One call, or one piece of a backward. Not done: the time is over, or it waits for other ranks.
  Step one(State& s, Clock::time_point until) {
    const OpCall& c = batch_.calls[at_];
    if (c.op == OpCall::kRelease) {
      s.forget(c.out);
      ++at_;
      return Step::done;
    }
    if (error_) {
      skip(c);
      ++at_;
      return Step::done;
    }
    const bool begun_before = backward_ || s.cx.pending;
    if (!begun_before) read_ = false, arg_ = reader_.arg, integer_ = reader_.integer;
    try {
      if (cancelled_->load(std::memory_order_relaxed)) throw Error(Code::cancelled, "the batch was cancelled");
      if (!begun_before && !begin(s, c)) return ++at_, Step::done;
      if (backward_) {
        Pause pause{*core_, until, *cancelled_};
        const auto begun = core_->shared.clock.now();
        const bool ended = backward_->step(Pause::due, &pause);
        spent_ += core_->shared.clock.now() - begun;
        if (!ended && spent_ > kOpDeadline) throw Error(Code::deadline_exceeded, "an operator may take 60 s");
        if (!ended) return backward_->waiting() ? Step::waiting : Step::again;
        place(s, c.out, backward_->take());
        backward_.reset();
      } else if (s.cx.pending) {
        if (!s.cx.pending->transfer->done()) return Step::waiting;
        const auto pending = std::move(s.cx.pending);
        place(s, c.out, pending->run());
      }
      ++s.ops;
    } catch (...) {
      note(current_error(), c);
      backward_.reset();
      s.groups->abandon(std::move(s.cx.pending));
    }
    place_warnings(s, c);
    reader_.clear();
    ++at_;
    return Step::done;
  }

  /// Runs the call; a backward is only set up, and what waits for other ranks is begun. False: it was no operator.
  bool begin(State& s, const OpCall& c) {
    engine::Context& cx = s.cx;
    if (c.out) s.table.check_room(c.out, 1);
    if (c.op == OpCall::kUpload) return upload(s, c), false;
    read(c);
    engine::check(c.op, args_);
    core_->check_server_memory();
    cx.grad_mode = c.grad_mode;
    if (engine::is_backward(c.op)) {
      spent_ = {};
      backward_.emplace(cx, c.op, std::span<const engine::Bound>(args_));
    } else {
      engine::Results r = engine::call(cx, c.op, args_);
      if (!cx.pending) place(s, c.out, std::move(r));
    }
    return true;
  }

  void read(const OpCall& c) {
    args_.clear();
    for (int i = 0; i < c.args; ++i) args_.push_back(reader_.read());
    read_ = true;
  }

  void upload(State& s, const OpCall& c) {
    read(c);
    const auto& a = args_;
    if (c.args < 3 || c.args > 4 || a[0].kind != ArgKind::dtype || a[1].kind != ArgKind::ints || !c.out ||
        (c.args == 4 && a[3].kind != ArgKind::boolean))
      throw Error(Code::bad_program,
                  "an upload has a dtype, a shape, its bytes or number, and whether it requires a gradient");
    const bool requires_grad = c.args == 4 && a[3].b;
    const std::span<const int64_t> shape(a[1].ints, a[1].count);
    core_->check_server_memory();
    engine::Tensor t;
    if (a[2].kind == ArgKind::text) {
      t = engine::from_bytes(s.cx, a[0].dtype, shape, std::as_bytes(std::span(a[2].text, a[2].count)));
      if (requires_grad) engine::require_grad(t);
    } else if (a[2].kind == ArgKind::integer) {
      const auto room = core_->take_upload(static_cast<uint64_t>(a[2].i));
      if (!room) throw Error(Code::bad_program, "there is no upload " + std::to_string(a[2].i));
      // Nobody else can find it any more; who still has it writes to it.
      if (room->hold.use_count() > 1)
        throw Error(Code::bad_program, "upload " + std::to_string(a[2].i) + " is still being written");
      if (room->dtype != a[0].dtype || !(room->shape == Shape(shape)))
        throw Error(Code::bad_program, "upload " + std::to_string(a[2].i) + " was reserved for another dtype or shape");
      t = tensor_of(s.cx, *room, requires_grad);
    } else {
      throw Error(Code::bad_program, "an upload brings its bytes or its number");
    }
    s.table.add(c.out, std::move(t));
  }

  static void place(State& s, uint64_t out, engine::Results r) {
    if (!out) return;
    if (r.is_list) {
      const size_t n = r.list.size();
      if (n > Table::kListRoom)
        throw Error(Code::memory_limit, "a list result may have " + std::to_string(Table::kListRoom) + " tensors");
      s.table.check_room(out, std::max<size_t>(1, n));
      s.table.add(out, n ? std::move(r.list[0]) : engine::Tensor()).count = static_cast<int32_t>(n);
      for (size_t i = 1; i < n; ++i) s.table.add(out + i, std::move(r.list[i]));
      return;
    }
    size_t n = 0;
    for (const auto& t : r.at) n += static_cast<bool>(t);
    if (n > 1) s.table.check_room(out, n);
    for (size_t i = 0; i < n; ++i) s.table.add(out + i, std::move(r.at[i]));
  }

  /// Finds where the next call's arguments begin; an upload that nobody will take is dropped.
  void skip(const OpCall& c) {
    if (lost_) return;
    try {
      for (int i = 0; i < c.args; ++i) {
        const auto number = reader_.skip();
        if (c.op == OpCall::kUpload && i == 2 && number) core_->take_upload(static_cast<uint64_t>(*number));
      }
    } catch (...) {
      lost_ = true;
    }
  }

  /// Where the client's program made a call; null if it did not say.
  const Batch::Line* line_of(const OpCall& c) const {
    if (!c.line || c.line > batch_.lines.size()) return nullptr;
    const Batch::Line& l = batch_.lines[c.line - 1];
    return l.file < batch_.texts.size() ? &l : nullptr;
  }

  /// Says of the warnings that a call has made which one it was.
  void place_warnings(State& s, const OpCall& c) {
    for (; warned_ < s.cx.warnings.size(); ++warned_) {
      Warning& w = s.cx.warnings[warned_];
      w.step = static_cast<int64_t>(at_);
      if (const Batch::Line* l = line_of(c)) w.file = batch_.texts[l->file], w.line = l->line;
    }
  }

  void note(Error e, const OpCall& c) {
    if (e.op().empty() && c.op < OpCall::kUpload) e.of(engine::op_name(c.op));
    e.at(batch_.seq, static_cast<int64_t>(at_));
    if (const Batch::Line* l = line_of(c)) e.at(Where{batch_.texts[l->file], l->line});
    error_ = std::move(e);
    if (read_) return;
    reader_.arg = arg_, reader_.integer = integer_;
    skip(c);
  }

  void fetch(State& s) {
    try {
      outcome_->fetched.reserve(batch_.fetches.size());
      for (const Fetch& f : batch_.fetches) {
        Entry* e = s.table.find(f.id);
        if (!e) throw Error(Code::no_tensor, "there is no tensor #" + std::to_string(f.id));
        Fetched& out = outcome_->fetched.emplace_back();
        engine::Tensor t = e->tensor;
        if (f.part == Part::grad && t) t = engine::grad_of(t);
        out.present = static_cast<bool>(t);
        if (!t) {
          out.value.info.count = e->count;
          continue;
        }
        if (f.kind == FetchKind::value) out.value = value_of(t);
        out.value.info = info_of(t, f.part == Part::value ? e->count : -1);
      }
    } catch (...) {
      outcome_->fetched.clear();
      error_ = current_error().at(batch_.seq, -1);
    }
  }

  void answer(State& s) {
    if (error_ && !skipped_) {
      s.failure = error_;
      s.failed_epoch = batch_.epoch;
      core_->shared.metrics.add(Metric::errors, name(error_->code()));
    }
    outcome_->error = std::move(error_);
    outcome_->warnings = std::exchange(s.cx.warnings, {});
    core_->account();
    core_->shared.metrics.add(Metric::batches, skipped_ ? "skipped" : outcome_->error ? "error" : "ok");
    core_->window.finish(batch_.seq, std::move(outcome_));
  }

  struct Find {
    BatchTask* task;
    const engine::Tensor* operator()(const Arg& a) const { return task->resolve(a); }
  };
  std::shared_ptr<Core> core_;
  Batch batch_;
  std::shared_ptr<std::atomic<bool>> cancelled_;
  ArgReader<Find> reader_;
  std::shared_ptr<Outcome> outcome_;
  std::vector<engine::Bound> args_;
  std::optional<engine::BackwardTask> backward_;
  Clock::time_point::duration spent_{};  // by the backward, on lanes
  std::optional<Error> error_;
  size_t at_ = 0, warned_ = 0;
  int quick_ = 1;
  bool started_ = false, skipped_ = false;
  size_t arg_ = 0, integer_ = 0;  // where the arguments of the call begin
  bool read_ = false;             // all of them have been read
  bool lost_ = false;             // where those of the next call begin is unknown
};

}  // namespace

std::unique_ptr<Task> make_batch_task(std::shared_ptr<Core> core, Batch batch,
                                      std::shared_ptr<std::atomic<bool>> cancelled) {
  return std::make_unique<BatchTask>(std::move(core), std::move(batch), std::move(cancelled));
}

size_t bytes_of(const Batch& b) {
  size_t n = b.calls.size() * sizeof(OpCall) + b.args.size() * sizeof(Arg) + b.ints.size() * sizeof(int64_t) +
             b.lines.size() * sizeof(Batch::Line) + b.fetches.size() * sizeof(Fetch) +
             b.texts.size() * sizeof(std::string);
  for (const auto& t : b.texts) n += t.size();
  return n;
}

}  // namespace gradwire::server
