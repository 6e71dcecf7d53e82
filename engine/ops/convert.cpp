// Another dtype, by PyTorch's names.
#include "engine/apply.h"
#include "engine/registry.h"
#include "engine/rules.h"
#include "schema/ops.h"

namespace gradwire::engine {
namespace {

// x itself where it has the dtype already, unless a copy is asked for.
Tensor as(const Tensor& x, DType dtype, bool copy) {
  return x.dtype() != dtype ? cast(x, dtype) : copy ? gradwire::clone(x) : x;
}

constexpr OpDef kRows[] = {
    {
        .sig = "to.device(Tensor self, device device, dtype? dtype=None, *, bool copy=False) -> Tensor",
        .doc = "self on the session's device, which is the only one, and in another dtype: self itself where nothing "
               "changes, unless copy is given.",
        .compose = [](const Call& c) -> Results {
          rule::device(c, 1);
          return as(c.tensor(0), c.dtype(2, c.tensor(0).dtype()), c.flag(3));
        },
        .examples = {{"[1.9, -1.9]; 'cpu'; 'int64'", "[1, -1]"}},
        .samples = {"f(2, 3); 'cpu'; copy=True"},
    },
    {
        .sig = "to.other(Tensor self, Tensor other, *, bool copy=False) -> Tensor",
        .doc = "self in other's dtype: self itself where it has it already, unless copy is given.",
        .compose = [](const Call& c) -> Results { return as(c.tensor(0), c.tensor(1).dtype(), c.flag(2)); },
        .examples = {{"[1.9, -1.9]; [1]", "[1, -1]"}},
        .samples = {"f(2, 3); i2(1)", "i4(3); [1.]; copy=True"},
    },
    {
        .sig = "type(Tensor self, dtype dtype) -> Tensor",
        .doc = "self in another dtype: self itself where it has it already.",
        .compose = [](const Call& c) -> Results { return as(c.tensor(0), c.args[1].dtype, false); },
        .examples = {{"[1.9, -1.9]; 'int64'", "[1, -1]"}},
        .samples = {"f(2, 3); 'float64'"},
    },
    {
        .sig = "type.name(Tensor self, str dtype) -> Tensor",
        .doc = "self in the dtype that a type's name such as 'torch.LongTensor' stands for.",
        .compose = [](const Call& c) -> Results {
          for (int t = 0; t < kDTypes; ++t) {
            if (c.text(1) == std::string("torch.") + kDTypeRows[t].torch + "Tensor")
              return as(c.tensor(0), static_cast<DType>(t), false);
          }
          throw Error(Code::bad_argument, "invalid type: '" + std::string(c.text(1).substr(0, 64)) + "'");
        },
        .examples = {{"[1., 1.]; 'torch.LongTensor'", "[1, 1]"}},
        .samples = {"f(2, 3); 'torch.DoubleTensor'"},
    },
    {
        .sig = "type_as(Tensor self, Tensor other) -> Tensor",
        .doc = "self in other's dtype: self itself where it has it already.",
        .compose = [](const Call& c) -> Results { return as(c.tensor(0), c.tensor(1).dtype(), false); },
        .examples = {{"[1.9, -1.9]; [1]", "[1, -1]"}},
        .samples = {"f(2, 3); i2(1)"},
    },
    {
        .sig = "float(Tensor self) -> Tensor",
        .doc = "self as float32: self itself where it is that already.",
        .compose = [](const Call& c) -> Results { return as(c.tensor(0), DType::float32, false); },
        .examples = {{"[1, 2]", "[1., 2.]"}},
        .samples = {"i4(3)"},
    },
    {
        .sig = "double(Tensor self) -> Tensor",
        .doc = "self as float64: self itself where it is that already.",
        .compose = [](const Call& c) -> Results { return as(c.tensor(0), DType::float64, false); },
        .samples = {"i4(3)"},
    },
    {
        .sig = "half(Tensor self) -> Tensor",
        .doc = "self as float16: self itself where it is that already.",
        .compose = [](const Call& c) -> Results { return as(c.tensor(0), DType::float16, false); },
        .samples = {"i4(3)"},
    },
    {
        .sig = "bfloat16(Tensor self) -> Tensor",
        .doc = "self as bfloat16: self itself where it is that already.",
        .compose = [](const Call& c) -> Results { return as(c.tensor(0), DType::bfloat16, false); },
        .samples = {"i4(3)"},
    },
    {
        .sig = "int(Tensor self) -> Tensor",
        .doc = "self as int32: self itself where it is that already.",
        .compose = [](const Call& c) -> Results { return as(c.tensor(0), DType::int32, false); },
        .samples = {"i4(3)"},
    },
    {
        .sig = "long(Tensor self) -> Tensor",
        .doc = "self as int64: self itself where it is that already.",
        .compose = [](const Call& c) -> Results { return as(c.tensor(0), DType::int64, false); },
        .examples = {{"[1.9, -1.9]", "[1, -1]"}},
        .samples = {"i4(3)"},
    },
    {
        .sig = "short(Tensor self) -> Tensor",
        .doc = "self as int16: self itself where it is that already.",
        .compose = [](const Call& c) -> Results { return as(c.tensor(0), DType::int16, false); },
        .samples = {"i4(3)"},
    },
    {
        .sig = "char(Tensor self) -> Tensor",
        .doc = "self as int8: self itself where it is that already.",
        .compose = [](const Call& c) -> Results { return as(c.tensor(0), DType::int8, false); },
        .samples = {"i4(3)"},
    },
    {
        .sig = "byte(Tensor self) -> Tensor",
        .doc = "self as uint8: self itself where it is that already.",
        .compose = [](const Call& c) -> Results { return as(c.tensor(0), DType::uint8, false); },
        .samples = {"i4(3)"},
    },
    {
        .sig = "bool(Tensor self) -> Tensor",
        .doc = "self as bool: self itself where it is that already.",
        .compose = [](const Call& c) -> Results { return as(c.tensor(0), DType::boolean, false); },
        .examples = {{"[0., 0.5]", "[False, True]"}},
        .samples = {"i4(3)"},
    },
};

}  // namespace

constinit const std::span<const OpDef> kConvertOps = kRows;

}  // namespace gradwire::engine
