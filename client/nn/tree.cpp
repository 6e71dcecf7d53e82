#include "client/nn/tree.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "client/errors.h"
#include "schema/shape.h"

namespace gradwire::nn::tree {
namespace {

[[noreturn]] void refuse(std::string message) { raise(Error(Code::bad_argument, std::move(message))); }

/// What every nn.Module of PyTorch has: `module.add_module("forward", ...)` would hide it.
constexpr std::string_view kTaken[] = {"T_destination",
                                       "add_module",
                                       "apply",
                                       "bfloat16",
                                       "buffers",
                                       "call_super_init",
                                       "children",
                                       "cpu",
                                       "cuda",
                                       "double",
                                       "dump_patches",
                                       "eval",
                                       "extra_repr",
                                       "float",
                                       "forward",
                                       "get_buffer",
                                       "get_extra_state",
                                       "get_parameter",
                                       "get_submodule",
                                       "half",
                                       "ipu",
                                       "load_state_dict",
                                       "modules",
                                       "named_buffers",
                                       "named_children",
                                       "named_modules",
                                       "named_parameters",
                                       "parameters",
                                       "register_backward_hook",
                                       "register_buffer",
                                       "register_forward_hook",
                                       "register_forward_pre_hook",
                                       "register_full_backward_hook",
                                       "register_load_state_dict_post_hook",
                                       "register_module",
                                       "register_parameter",
                                       "requires_grad_",
                                       "set_extra_state",
                                       "share_memory",
                                       "state_dict",
                                       "to",
                                       "to_empty",
                                       "train",
                                       "training",
                                       "type",
                                       "xpu",
                                       "zero_grad"};

const std::shared_ptr<Node>* child(const Node& n, std::string_view name) {
  for (const auto& [key, node] : n.children) {
    if (key == name) return &node;
  }
  return nullptr;
}

}  // namespace

Node::~Node() {
  // Whoever would be the last to hold a module hands its children on first.
  std::vector<std::shared_ptr<Node>> rest;
  const auto take = [&rest](Node& n) {
    for (auto& c : n.children) rest.push_back(std::move(c.second));
    n.children.clear();
  };
  take(*this);
  while (!rest.empty()) {
    const std::shared_ptr<Node> n = std::move(rest.back());
    rest.pop_back();
    if (n && n.use_count() == 1) take(*n);
  }
}

std::vector<Visit> walk(const std::shared_ptr<Node>& root, bool once) {
  std::vector<Visit> found, rest = {{"", root}};
  std::unordered_set<const Node*> seen;
  while (!rest.empty()) {
    Visit v = std::move(rest.back());
    rest.pop_back();
    if (once && !seen.insert(v.node.get()).second) continue;
    if (found.size() == kMaxVisits) refuse("a model has at most " + std::to_string(kMaxVisits) + " modules");
    const auto& children = v.node->children;
    for (auto c = children.rbegin(); c != children.rend(); ++c) rest.push_back({join(v.path, c->first), c->second});
    found.push_back(std::move(v));
  }
  return found;
}

std::vector<std::shared_ptr<Node>> all(const std::shared_ptr<Node>& root) {
  std::vector<std::shared_ptr<Node>> found, rest = {root};
  std::unordered_set<const Node*> seen;
  while (!rest.empty()) {
    std::shared_ptr<Node> n = std::move(rest.back());
    rest.pop_back();
    if (!seen.insert(n.get()).second) continue;
    for (auto c = n->children.rbegin(); c != n->children.rend(); ++c) rest.push_back(c->second);
    found.push_back(std::move(n));
  }
  return found;
}

std::vector<std::shared_ptr<Node>> children_first(const std::shared_ptr<Node>& root) {
  // Parent before children and those from the last to the first, read backwards.
  std::vector<std::shared_ptr<Node>> found, rest = {root};
  while (!rest.empty()) {
    std::shared_ptr<Node> n = std::move(rest.back());
    rest.pop_back();
    if (found.size() == kMaxVisits) refuse("a model has at most " + std::to_string(kMaxVisits) + " modules");
    for (const auto& c : n->children) rest.push_back(c.second);
    found.push_back(std::move(n));
  }
  std::reverse(found.begin(), found.end());
  return found;
}

void check_name(const Node& n, const char* what, std::string_view name) {
  const std::string kind = what;
  if (name.find('.') != name.npos)
    refuse(kind + " name can't contain \".\"" + (kind == "module" ? ", got: " + std::string(name) : ""));
  if (name.empty()) refuse(kind + " name can't be empty string \"\"");
  const bool module = child(n, name) != nullptr, tensor = n.has_tensor(name);
  if ((kind == "module" ? tensor : module) || std::find(std::begin(kTaken), std::end(kTaken), name) != std::end(kTaken))
    refuse("attribute '" + std::string(name) + "' already exists");
}

void adopt(Node& parent, std::string_view name, const std::shared_ptr<Node>& node) {
  check_name(parent, "module", name);
  for (const auto& n : all(node)) {
    if (n.get() == &parent) refuse("module '" + std::string(name) + "' contains the module it is added to");
  }
  for (auto& [key, value] : parent.children) {
    if (key == name) {
      value = node;
      return;
    }
  }
  parent.children.emplace_back(name, node);
}

std::shared_ptr<Node> find(const std::shared_ptr<Node>& root, std::string_view path) {
  std::shared_ptr<Node> n = root;
  while (!path.empty()) {
    const std::string_view name = path.substr(0, path.find('.'));
    const auto* c = child(*n, name);
    if (!c) refuse(n->kind + " has no attribute `" + std::string(name) + "`");
    n = *c;
    path.remove_prefix(std::min(path.size(), name.size() + 1));
  }
  return n;
}

std::pair<std::shared_ptr<Node>, std::string> owner(const std::shared_ptr<Node>& root, std::string_view path) {
  const size_t dot = path.rfind('.');
  const std::string_view name = dot == path.npos ? path : path.substr(dot + 1);
  auto n = find(root, dot == path.npos ? "" : path.substr(0, dot));
  if (!n->has_tensor(name)) refuse(n->kind + " has no attribute `" + std::string(name) + "`");
  return {std::move(n), std::string(name)};
}

std::vector<std::string> unexpected(const std::shared_ptr<Node>& root, std::span<const std::string_view> given) {
  std::unordered_map<std::string, size_t> order;
  const auto places = walk(root, false);
  for (size_t i = 0; i < places.size(); ++i) order.emplace(places[i].path, i);
  std::vector<std::pair<size_t, std::string>> found;
  for (const std::string_view key : given) {
    const Node* n = root.get();
    size_t at = 0;  // where in the key the rest begins
    for (size_t dot; (dot = key.find('.', at)) != key.npos; at = dot + 1) {
      const auto* c = child(*n, key.substr(at, dot - at));
      if (!c) break;
      n = c->get();
    }
    const std::string_view rest = key.substr(at);
    if (rest.find('.') == rest.npos && (n->has_tensor(rest) || child(*n, rest))) continue;
    found.emplace_back(order.at(std::string(key.substr(0, at ? at - 1 : 0))), std::string(key));
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  for (auto& f : found) names.push_back(std::move(f.second));
  return names;
}

namespace {

std::string quoted(const char* text, const std::vector<std::string>& keys) {
  std::string s = text;
  for (size_t i = 0; i < keys.size(); ++i) s += (i ? ", \"" : "\"") + keys[i] + "\"";
  return s + ". ";
}
std::string torch_size(std::span<const int64_t> s) { return "torch.Size(" + to_string(s) + ")"; }

}  // namespace

void check_loadable(const Node& root, const IncompatibleKeys& keys, std::vector<std::string> faults) {
  if (!keys.unexpected_keys.empty())
    faults.insert(faults.begin(), quoted("Unexpected key(s) in state_dict: ", keys.unexpected_keys));
  if (!keys.missing_keys.empty())
    faults.insert(faults.begin(), quoted("Missing key(s) in state_dict: ", keys.missing_keys));
  if (faults.empty()) return;
  std::string message = "Error(s) in loading state_dict for " + root.kind + ":";
  for (const std::string& f : faults) message += "\n\t" + f;
  refuse(message);
}

std::string size_mismatch(const std::string& key, std::span<const int64_t> theirs, std::span<const int64_t> ours) {
  return "size mismatch for " + key + ": copying a param with shape " + torch_size(theirs) +
         " from checkpoint, the shape in current model is " + torch_size(ours) + ".";
}

}  // namespace gradwire::nn::tree
