#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// The part of a module that does not depend on its tensors: who contains whom under which name, and how that is
// written. Nothing here recurses: a model may be as deep as memory allows.

namespace gradwire::nn::tree {

/// One module. Its children are owned; no module is inside itself.
struct Node {
  std::string kind;   // "Conv2d"
  std::string extra;  // what stands between the parentheses when it is printed
  bool training = true;
  std::vector<std::pair<std::string, std::shared_ptr<Node>>> children;

  Node() = default;
  Node(const Node&) = delete;
  virtual ~Node();
  /// Whether a parameter or buffer has this name.
  virtual bool has_tensor(std::string_view name) const = 0;
};

struct Visit {
  std::string path;  // "layer1.0.conv1"; empty for the root
  std::shared_ptr<Node> node;
};

inline constexpr size_t kMaxVisits = 1000000;

/// A module and all within it, each before its children. `once`: a module that stands at several places comes with the
/// first of them. Throws Error{bad_argument} for more than kMaxVisits places.
std::vector<Visit> walk(const std::shared_ptr<Node>& root, bool once);
/// The same without the paths, each module once: what it costs does not grow with the depth.
std::vector<std::shared_ptr<Node>> all(const std::shared_ptr<Node>& root);
/// Each place of a module, children before their parent.
std::vector<std::shared_ptr<Node>> children_first(const std::shared_ptr<Node>& root);
inline std::string join(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

/// Throws PyTorch's KeyError for a `what` ("module", "parameter", "buffer") that cannot have this name: empty, with a
/// dot, or that of a method or of another kind of member.
void check_name(const Node&, const char* what, std::string_view name);
/// Puts the child at the name, in place of one that is there. Throws as check_name, and where `child` contains
/// `parent`.
void adopt(Node& parent, std::string_view name, const std::shared_ptr<Node>& child);
/// The module at "layer1.0". Throws Error{bad_argument} with PyTorch's "... has no attribute `0`".
std::shared_ptr<Node> find(const std::shared_ptr<Node>& root, std::string_view path);
/// The module that has a tensor at "layer1.0.weight", and the tensor's own name.
std::pair<std::shared_ptr<Node>, std::string> owner(const std::shared_ptr<Node>& root, std::string_view path);

/// As Python prints the model.
std::string print(const Node&);

/// What a strict load finds wrong with the names: those of `wanted` that `given` lacks, in the order of `wanted`; those
/// of `given` that no module takes, in the order in which PyTorch meets them.
struct IncompatibleKeys {
  std::vector<std::string> missing_keys, unexpected_keys;
};
std::vector<std::string> unexpected(const std::shared_ptr<Node>& root, std::span<const std::string_view> given);
/// Throws PyTorch's "Error(s) in loading state_dict for Net: ..." unless all three are empty.
void check_loadable(const Node& root, const IncompatibleKeys& keys, std::vector<std::string> faults);
/// "size mismatch for weight: copying a param with shape torch.Size([1, 3]) from checkpoint, ..."
std::string size_mismatch(const std::string& key, std::span<const int64_t> theirs, std::span<const int64_t> ours);

/// A row of Module::summary().
struct Row {
  std::string path, kind, tensors;
  int64_t count = 0;
};
struct Totals {
  int64_t parameters = 0, trainable = 0, buffers = 0, bytes = 0;
};
std::string summary(const std::string& kind, std::span<const Row>, const Totals&);

}  // namespace gradwire::nn::tree

namespace gradwire::nn {

using tree::IncompatibleKeys;

// Numbers as Python prints them in a module's line.
/// 1e-05, 0.1, 1.0
std::string py(double);
/// 1, 20, 0.5: of an argument whose default is an integer
std::string py_number(double);
inline const char* py(bool b) { return b ? "True" : "False"; }
/// (3, 3), (3,)
std::string py_tuple(std::span<const int64_t>);
/// 3 for one number, else as py_tuple
std::string py_size(std::span<const int64_t>);

}  // namespace gradwire::nn
