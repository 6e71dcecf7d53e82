#pragma once

#include <span>
#include <vector>

#include "engine/op.h"
#include "engine/optimizer_options.h"

namespace gradwire::engine {

/// An optimiser: groups of parameters, their hyper-parameters, and what the algorithm keeps from step to step. It keeps
/// its parameters alive. A 0-dim int64 tensor stands for it, whose value is the number of steps taken, and which owns
/// it: see optimizer_of. Belongs to the Context's thread.
///
/// What fails changes nothing.
class Optimizer {
 public:
  /// One group, of tensors that are leaves and each there once. Options that the call does not give are the row's
  /// defaults. Throws bad_argument, memory_limit, in PyTorch's words.
  Optimizer(Context&, const Algorithm&, std::span<const Tensor> params, const Options&);
  ~Optimizer();
  Optimizer(const Optimizer&) = delete;

  /// Another group; an option that is not given is as in the constructor's call. `c`'s parameters from `first` on are
  /// options, by name. Throws bad_argument for one that the algorithm does not have.
  void add_group(const Call& c, std::span<const Tensor> params, int first);
  /// Changes options of one group, or of all (-1).
  void set(const Call& c, int first, int64_t group);
  /// Moves every parameter that has a gradient, and counts a write for it. `handle`: the tensor that stands for this.
  void step(const Tensor& handle);
  std::vector<Tensor> params() const;
  /// All of it as new tensors, for load: for each group a float64 row of the number of its parameters and its options
  /// in the order of the constructor's parameters (of a pair both); then for each of its parameters a float64 row of
  /// the steps that it took (nadam: and the product of its momenta; asgd: and its next rate and weight) and what is
  /// kept, in the order that engine/functors/optim.h names, an empty tensor for what is not there yet.
  std::vector<Tensor> state() const;
  /// Throws bad_argument for what another kind of optimiser gave, or one with other groups or shapes.
  void load(const Tensor& handle, std::span<const Tensor> state);

  template <class F> void each_tensor(F f) {
    for (Group& g : groups_) {
      for (Slot& s : g.slots) {
        f(s.param);
        for (Tensor& t : s.kept) f(t);
      }
    }
  }

 private:
  struct Slot {
    Tensor param;
    Tensor kept[3];
    int64_t steps = 0;
    double number[2] = {};  // nadam: product of momenta; asgd: eta, mu
  };
  struct Group {
    Options options;
    std::vector<Slot> slots;
  };
  struct Move;

  void check_params(std::span<const Tensor>) const;
  void push(std::span<const Tensor> params, const Options&);
  Move prepare(Slot&, const Options&) const;
  void apply(Move&) const;
  void count(const Tensor& handle, int64_t steps);

  Context& cx_;
  const Algorithm& algorithm_;
  Options defaults_;
  std::vector<Group> groups_;
  int64_t steps_ = 0;
  size_t charged_ = 0;  // bytes of this and its groups, on the session's account
};

/// The optimiser that a tensor stands for; null where it is only a tensor.
inline Optimizer* optimizer_of(const Tensor& t) { return t->extra ? t->extra->optimizer : nullptr; }

/// What "optim.SGD" and the like do: the row's name is the algorithm's.
Tensor make_optimizer(const Call&);

}  // namespace gradwire::engine
