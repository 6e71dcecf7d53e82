#include "server/program.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "server/args.h"
#include "server/session.h"

namespace gradwire::server {

Key key_of(std::string_view text) {
  constexpr std::string_view kGrad = ".grad";
  Key key;
  if (text.size() > kGrad.size() && text.ends_with(kGrad)) {
    key.part = Part::grad;
    text.remove_suffix(kGrad.size());
  }
  if (text.size() > 1 && text[0] == '#') {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + 1, end, key.id);
    if (error == std::errc() && stop == end) return key;
    key.id = 0;
  }
  key.name = text;
  return key;
}

size_t bytes_of(const std::vector<Program::Input>& inputs) {
  size_t n = 0;
  for (const auto& i : inputs) n += sizeof(i) + i.name.size() + i.bytes.size();
  return n;
}

size_t bytes_of(const Program& p) {
  size_t n = sizeof(p) + bytes_of(p.inputs) + p.args.size() * sizeof(Arg) + p.ints.size() * sizeof(int64_t);
  for (const auto* list : {&p.names, &p.texts, &p.fetch, &p.release, &p.declared_inputs}) {
    for (const auto& s : *list) n += sizeof(s) + s.size();
  }
  for (const auto& s : p.steps) {
    n += sizeof(s) + s.op.size() + s.positional.size() * sizeof(Program::Range);
    for (const auto& [name, range] : s.named) n += sizeof(name) + sizeof(range) + name.size();
    for (const auto& out : s.outs) n += sizeof(out) + (out ? out->size() : 0);
  }
  return n;
}

namespace {

class ProgramTask final : public Task {
 public:
  using Find = std::function<std::shared_ptr<const Program>(State&)>;
  ProgramTask(std::shared_ptr<Core> core, Find find, std::vector<Program::Input> feeds, std::vector<std::string> fetch,
              Done<Result<ProgramResult>> done)
      : core_(std::move(core)),
        find_(std::move(find)),
        feeds_(std::move(feeds)),
        fetch_(std::move(fetch)),
        done_(std::move(done)) {}

  Step step(Clock::time_point until) override {
    std::optional<Error> error;
    try {
      if (core_->closing.load(std::memory_order_acquire) || !core_->state)
        throw Error(Code::closed, "the session is closed");
      if (const Step step = run(*core_->state, until); step != Step::done) return core_->account(), step;
    } catch (...) {
      error = current_error();
    }
    if (error) {
      if (core_->state) core_->state->cx.warnings.clear();
      core_->account();
      core_->shared.metrics.add(Metric::errors, name(error->code()));
      if (done_) done_(std::move(*error));
    }
    return Step::done;
  }

  void fail(const Error& e) noexcept override {
    try {
      if (done_) done_(e);
    } catch (...) {}
  }

 private:
  /// Not done: the time is over, or it waits for other ranks. Throws what went wrong, with step and operator.
  Step run(State& s, Clock::time_point until) {
    if (!program_) start(s);
    while (at_ < program_->steps.size()) {
      if (core_->closing.load(std::memory_order_relaxed)) throw Error(Code::closed, "the session is closed");
      const Program::Step& st = program_->steps[at_];
      try {
        if (const Step step = one(s, st, until); step != Step::done) return step;
      } catch (...) {
        backward_.reset();
        s.groups->abandon(std::move(s.cx.pending));
        Error e = current_error();
        if (e.op().empty()) e.of(st.op);
        throw e.at(0, static_cast<int64_t>(at_));
      }
      for (; warned_ < s.cx.warnings.size(); ++warned_) s.cx.warnings[warned_].step = static_cast<int64_t>(at_);
      ++at_;
      if (core_->shared.clock.now() >= until && at_ < program_->steps.size()) return Step::again;
    }
    ProgramResult result = fetch(s);
    for (const auto& name : program_->release) {
      if (!s.forget(name)) throw Error(Code::no_tensor, "there is no tensor '" + name + "' to release");
    }
    result.warnings = std::exchange(s.cx.warnings, {});
    core_->account();
    done_(std::move(result));
    return Step::done;
  }

  void start(State& s) {
    program_ = find_(s);
    s.cx.pool.collect();
    s.cx.warnings.clear();
    reader_.emplace(Columns{program_->args, program_->ints, program_->texts}, Look{this});
    // What is given with the run comes before what the program brings along.
    std::set<std::string_view> given;
    for (const auto& f : feeds_) {
      const bool known = std::any_of(program_->inputs.begin(), program_->inputs.end(),
                                     [&](const auto& i) { return i.name == f.name; }) ||
                         std::find(program_->declared_inputs.begin(), program_->declared_inputs.end(), f.name) !=
                             program_->declared_inputs.end();
      if (!known) throw Error(Code::bad_program, "the program has no input '" + f.name + "'");
      if (!given.insert(f.name).second) throw Error(Code::bad_program, "the input '" + f.name + "' is given twice");
    }
    for (const auto& name : program_->declared_inputs) {
      if (!given.contains(name)) throw Error(Code::bad_program, "the input '" + name + "' is missing");
    }
    core_->check_server_memory();
    for (const auto& i : program_->inputs) {
      if (!given.contains(i.name)) input(s, i);
    }
    for (const auto& f : feeds_) input(s, f);
    feeds_.clear();
  }

  static void input(State& s, const Program::Input& i) {
    engine::Tensor t = engine::from_bytes(s.cx, i.dtype, i.shape, i.bytes);
    if (i.requires_grad) engine::require_grad(t);
    s.set(i.name, std::move(t));
  }

  const engine::Tensor* resolve(const Arg& a) {
    if (a.id >= program_->names.size()) throw Error(Code::bad_program, "there is no name " + std::to_string(a.id));
    const std::string& name = program_->names[a.id];
    Entry& e = core_->state->entry(key_of(name));
    if (!e.tensor) throw Error(Code::no_tensor, "'" + name + "' is a gradient that does not exist");
    return &e.tensor;
  }

  engine::Bound argument(const Program::Range& r) {
    reader_->arg = r.first, reader_->integer = r.ints;
    return reader_->read();
  }

  /// Asked between the nodes of a backward.
  struct Pause {
    const Core& core;
    Clock::time_point until;
    static bool due(void* p) {
      const auto& pause = *static_cast<const Pause*>(p);
      return pause.core.closing.load(std::memory_order_relaxed) || pause.core.shared.clock.now() >= pause.until;
    }
  };

  /// One step, or one piece of a backward. Not done: the time is over, or it waits for other ranks.
  Step one(State& s, const Program::Step& st, Clock::time_point until) {
    if (s.cx.pending) return settle(s, st);
    if (!backward_) {
      if (st.broken) throw *st.broken;
      core_->check_server_memory();
      reader_->clear();
      args_.clear(), named_.clear();
      for (const auto& r : st.positional) args_.push_back(argument(r));
      for (const auto& [name, r] : st.named) named_.emplace_back(name, argument(r));
      engine::bind(st.op, args_, named_, call_);
      const std::span<const engine::Bound> full(call_.args, static_cast<size_t>(call_.count));
      s.cx.grad_mode = st.grad_mode.value_or(true);
      if (!engine::is_backward(call_.id)) {
        engine::Results r = engine::call(s.cx, call_.id, full);
        if (s.cx.pending) return settle(s, st);
        place(s, st, std::move(r));
        ++s.ops;
        return Step::done;
      }
      spent_ = {};
      backward_.emplace(s.cx, call_.id, full);
    }
    Pause pause{*core_, until};
    const auto begun = core_->shared.clock.now();
    const bool ended = backward_->step(Pause::due, &pause);
    spent_ += core_->shared.clock.now() - begun;
    if (!ended && spent_ > kOpDeadline) throw Error(Code::deadline_exceeded, "an operator may take 60 s");
    if (!ended) return backward_->waiting() ? Step::waiting : Step::again;
    place(s, st, backward_->take());
    backward_.reset();
    ++s.ops;
    return Step::done;
  }

  /// The step whose call waits for other ranks, once they have taken part.
  static Step settle(State& s, const Program::Step& st) {
    if (!s.cx.pending->transfer->done()) return Step::waiting;
    const auto pending = std::move(s.cx.pending);
    place(s, st, pending->run());
    ++s.ops;
    return Step::done;
  }

  static void place(State& s, const Program::Step& st, engine::Results r) {
    if (st.outs.empty()) return;
    std::vector<engine::Tensor> all;
    if (r.is_list) {
      all = std::move(r.list);
    } else {
      for (auto& t : r.at) {
        if (t) all.push_back(std::move(t));
      }
    }
    if (all.size() != st.outs.size())
      throw Error(Code::bad_program, "'" + st.op + "' gives " + std::to_string(all.size()) +
                                         " results, but `out` has " + std::to_string(st.outs.size()) + " names");
    for (size_t i = 0; i < all.size(); ++i) {
      if (st.outs[i]) s.set(*st.outs[i], std::move(all[i]));
    }
  }

  ProgramResult fetch(State& s) {
    ProgramResult result;
    std::set<std::string_view> seen;
    const auto& names = fetch_.empty() ? program_->fetch : fetch_;
    for (const auto& name : names) {
      if (!seen.insert(name).second) continue;
      const Key key = key_of(name);
      engine::Tensor t;
      if (key.part == Part::value) {
        t = s.entry(key).tensor;
      } else if (s.names.contains(key.name) || key.name.empty()) {
        t = s.entry(key).tensor;
        if (t) t = engine::grad_of(t);
      }
      auto& [_, value] = result.tensors.emplace_back(name, std::nullopt);
      if (!t) continue;
      value = value_of(t);
      value->info = info_of(t, -1);
    }
    return result;
  }

  struct Look {
    ProgramTask* task;
    const engine::Tensor* operator()(const Arg& a) const { return task->resolve(a); }
  };
  std::shared_ptr<Core> core_;
  Find find_;
  std::vector<Program::Input> feeds_;
  std::vector<std::string> fetch_;
  Done<Result<ProgramResult>> done_;
  std::shared_ptr<const Program> program_;
  std::optional<ArgReader<Look>> reader_;
  std::vector<engine::Bound> args_;
  engine::BoundCall call_;
  std::vector<std::pair<std::string_view, engine::Bound>> named_;
  std::optional<engine::BackwardTask> backward_;
  Clock::time_point::duration spent_{};  // by the backward, on lanes
  size_t at_ = 0, warned_ = 0;
};

}  // namespace

std::unique_ptr<Task> make_program_task(std::shared_ptr<Core> core, ProgramTask::Find find,
                                        std::vector<Program::Input> feeds, std::vector<std::string> fetch,
                                        Done<Result<ProgramResult>> done) {
  return std::make_unique<ProgramTask>(std::move(core), std::move(find), std::move(feeds), std::move(fetch),
                                       std::move(done));
}

}  // namespace gradwire::server
