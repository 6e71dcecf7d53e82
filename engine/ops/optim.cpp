// Optimisers, as torch.optim has them: engine/optimizer.h. In C++ optim.SGD is optim_SGD.
#include "engine/optimizer.h"
#include "engine/registry.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

constexpr const char* kUpdates = "it changes parameters, and is no function of them";

Results make(const Call& c) { return make_optimizer(c); }

Optimizer& its(const Call& c) {
  Optimizer* o = optimizer_of(c.tensor(0));
  if (!o) throw Error(Code::bad_argument, "expected an Optimizer, which optim.SGD and the like make");
  return *o;
}

constexpr OpDef kRows[] = {
    {
        .sig = "optim.SGD(Tensor[] params, float? lr=None, float momentum=0, float dampening=0, float weight_decay=0, "
               "bool nesterov=False, *, bool maximize=False) -> Tensor",
        .doc =
            "An optimiser: g = grad + weight_decay * p; with momentum buf = momentum * buf + (1 - dampening) * g (at "
            "first g itself) and g = buf, or with nesterov g + momentum * buf; then p -= lr * g. lr must be given. "
            "What stands for it holds the number of its steps, int64.",
        .compute = make,
        .no_grad = kUpdates,
        .examples = {{"[1., 2.]; 0.1", "0"}},
        .samples = {"f(2, 3); 0.1", "f(2); 0.1; 0.9; nesterov=True"},
    },
    {
        .sig =
            "optim.Adam(Tensor[] params, float lr=0.001, float[2]? betas=None, float eps=1e-08, float weight_decay=0, "
            "bool amsgrad=False, *, bool maximize=False) -> Tensor",
        .doc =
            "An optimiser: m = b1 * m + (1 - b1) * g; v = b2 * v + (1 - b2) * g^2; p -= lr / (1 - b1^t) * m / "
            "(sqrt(v / (1 - b2^t)) + eps), with amsgrad by the largest v so far. betas are (0.9, 0.999) if not given.",
        .compute = make,
        .no_grad = kUpdates,
        .samples = {"f(2, 3)", "f(2); 0.1; amsgrad=True"},
    },
    {
        .sig = "optim.AdamW(Tensor[] params, float lr=0.001, float[2]? betas=None, float eps=1e-08, float "
               "weight_decay=0.01, bool amsgrad=False, *, bool maximize=False) -> Tensor",
        .doc = "As optim.Adam, but weight decay is apart from the gradient: p *= 1 - lr * weight_decay first.",
        .compute = make,
        .no_grad = kUpdates,
        .samples = {"f(2, 3)"},
    },
    {
        .sig = "optim.Adamax(Tensor[] params, float lr=0.002, float[2]? betas=None, float eps=1e-08, float "
               "weight_decay=0, *, bool maximize=False) -> Tensor",
        .doc = "An optimiser: m as optim.Adam; u = max(b2 * u, |g| + eps); p -= lr / (1 - b1^t) * m / u.",
        .compute = make,
        .no_grad = kUpdates,
        .samples = {"f(2, 3)"},
    },
    {
        .sig = "optim.NAdam(Tensor[] params, float lr=0.002, float[2]? betas=None, float eps=1e-08, float "
               "weight_decay=0, float momentum_decay=0.004, *, bool maximize=False) -> Tensor",
        .doc = "An optimiser: optim.Adam with Nesterov momentum mu_t = b1 * (1 - 0.96^(t * momentum_decay) / 2).",
        .compute = make,
        .no_grad = kUpdates,
        .samples = {"f(2, 3)"},
    },
    {
        .sig = "optim.RAdam(Tensor[] params, float lr=0.001, float[2]? betas=None, float eps=1e-08, float "
               "weight_decay=0, *, bool maximize=False) -> Tensor",
        .doc = "An optimiser: optim.Adam whose adaptive rate is rectified, and left out while its variance is unknown.",
        .compute = make,
        .no_grad = kUpdates,
        .samples = {"f(2, 3)"},
    },
    {
        .sig = "optim.RMSprop(Tensor[] params, float lr=0.01, float alpha=0.99, float eps=1e-08, float weight_decay=0, "
               "float momentum=0, bool centered=False, *, bool maximize=False) -> Tensor",
        .doc =
            "An optimiser: v = alpha * v + (1 - alpha) * g^2; p -= lr * g / (sqrt(v) + eps), or by a buffer of these "
            "with momentum. centered takes the squared mean of g off v.",
        .compute = make,
        .no_grad = kUpdates,
        .samples = {"f(2, 3)", "f(2); momentum=0.9; centered=True"},
    },
    {
        .sig = "optim.Adagrad(Tensor[] params, float lr=0.01, float lr_decay=0, float weight_decay=0, float "
               "initial_accumulator_value=0, float eps=1e-10, *, bool maximize=False) -> Tensor",
        .doc = "An optimiser: s += g^2; p -= lr / (1 + (t - 1) * lr_decay) * g / (sqrt(s) + eps).",
        .compute = make,
        .no_grad = kUpdates,
        .samples = {"f(2, 3)"},
    },
    {
        .sig = "optim.Adadelta(Tensor[] params, float lr=1.0, float rho=0.9, float eps=1e-06, float weight_decay=0, *, "
               "bool maximize=False) -> Tensor",
        .doc =
            "An optimiser: v = rho * v + (1 - rho) * g^2; d = sqrt(a + eps) / sqrt(v + eps) * g; p -= lr * d; a = rho "
            "* a + (1 - rho) * d^2.",
        .compute = make,
        .no_grad = kUpdates,
        .samples = {"f(2, 3)"},
    },
    {
        .sig = "optim.Rprop(Tensor[] params, float lr=0.01, float[2]? etas=None, float[2]? step_sizes=None, *, bool "
               "maximize=False) -> Tensor",
        .doc =
            "An optimiser: each element's own step grows by etas[1] while its gradient keeps its sign and shrinks by "
            "etas[0] where it changes, within step_sizes. etas are (0.5, 1.2) and step_sizes (1e-6, 50) if not given.",
        .compute = make,
        .no_grad = kUpdates,
        .samples = {"f(2, 3)"},
    },
    {
        .sig = "optim.ASGD(Tensor[] params, float lr=0.01, float lambd=0.0001, float alpha=0.75, float t0=1000000.0, "
               "float weight_decay=0, *, bool maximize=False) -> Tensor",
        .doc = "An optimiser: p *= 1 - lambd * eta; p -= eta * g; eta = lr / (1 + lambd * lr * t)^alpha; from t0 on it "
               "keeps the average of p.",
        .compute = make,
        .no_grad = kUpdates,
        .samples = {"f(2, 3)"},
    },
    {
        .sig = "optim.step(Optimizer self) -> ()",
        .doc = "Moves every parameter that has a gradient, in place and without history.",
        .compute = [](const Call& c) -> Results {
          its(c).step(c.tensor(0));
          return {};
        },
        .no_grad = kUpdates,
        .samples = {"o(2, 3)"},
    },
    {
        .sig = "optim.zero_grad(Optimizer self, bool set_to_none=True) -> ()",
        .doc = "Drops the gradients of its parameters, or sets them to zero.",
        .compute = [](const Call& c) -> Results {
          const std::vector<Tensor> params = its(c).params();
          zero_grad(std::span<const Tensor>(params), c.flag(1));
          return {};
        },
        .no_grad = kUpdates,
        .samples = {"o(2, 3)", "o(2); False"},
    },
    {
        .sig =
            "optim.set(Optimizer self, *, float? lr=None, float? momentum=None, float? dampening=None, float? "
            "weight_decay=None, bool? nesterov=None, bool? maximize=None, float[2]? betas=None, float? eps=None, bool? "
            "amsgrad=None, float? alpha=None, bool? centered=None, float? lr_decay=None, float? rho=None, float[2]? "
            "etas=None, float[2]? step_sizes=None, float? lambd=None, float? t0=None, float? momentum_decay=None, int? "
            "group=None) -> ()",
        .doc = "Changes the options that are given, of one group of parameters (counted from 0) or of all.",
        .compute = [](const Call& c) -> Results {
          const int group = c.row.params - 1;
          if (c.has(group) && c.integer(group) < 0)
            throw Error(Code::index_out_of_range, "group " + std::to_string(c.integer(group)) + " is out of range");
          its(c).set(c, 1, c.has(group) ? c.integer(group) : -1);
          return {};
        },
        .no_grad = kUpdates,
        .samples = {"o(2, 3); lr=0.5"},
    },
    {
        .sig =
            "optim.add_param_group(Optimizer self, Tensor[] params, *, float? lr=None, float? momentum=None, float? "
            "dampening=None, float? weight_decay=None, bool? nesterov=None, bool? maximize=None, float[2]? betas=None, "
            "float? eps=None, bool? amsgrad=None, float? alpha=None, bool? centered=None, float? lr_decay=None, float? "
            "initial_accumulator_value=None, float? rho=None, float[2]? etas=None, float[2]? step_sizes=None, float? "
            "lambd=None, float? t0=None, float? momentum_decay=None) -> ()",
        .doc = "More parameters, with options of their own; those that are not given are as the optimiser was made.",
        .compute = [](const Call& c) -> Results {
          its(c).add_group(c, c.tensors(1), 2);
          return {};
        },
        .no_grad = kUpdates,
        .samples = {"o(2, 3); f(2); lr=0.5"},
    },
    {
        .sig = "optim.state(Optimizer self) -> Tensor[]",
        .doc =
            "A copy of all that optim.load_state needs. For each group a float64 row: the number of its parameters, "
            "then its options in the order of the constructor's parameters, of a pair both. Then for each parameter a "
            "float64 row of the number of its steps (NAdam: and mu_product; ASGD: and eta, mu), and what is kept of "
            "it, "
            "each as an empty tensor where there is nothing yet: SGD momentum_buffer; Adam and AdamW exp_avg, "
            "exp_avg_sq, max_exp_avg_sq; Adamax exp_avg, exp_inf; NAdam and RAdam exp_avg, exp_avg_sq; RMSprop "
            "square_avg, momentum_buffer, grad_avg; Adagrad sum; Adadelta square_avg, acc_delta; Rprop prev, "
            "step_size; "
            "ASGD ax.",
        .compute = [](const Call& c) -> Results { return its(c).state(); },
        .no_grad = kUpdates,
        .samples = {"o(2, 3)"},
    },
    {
        .sig = "optim.load_state(Optimizer self, Tensor[] state) -> ()",
        .doc = "Goes on from what optim.state gave, of an optimiser of the same kind, groups and shapes.",
        .compute = [](const Call& c) -> Results {
          its(c).load(c.tensor(0), c.tensors(1));
          return {};
        },
        .no_grad = kUpdates,
        .samples = {"o(2, 3); [1., 0.5, 0.9, 0., 0., 0., 0.]; [1.]; f(2, 3)"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kOptimOps = kRows;

}  // namespace gradwire::engine
