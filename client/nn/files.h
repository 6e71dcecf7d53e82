#pragma once

#include <string>
#include <vector>

#include "client/nn/state_dict.h"
#include "client/nn/traits.h"
#include "client/safetensors.h"

namespace gradwire::nn {

/// save_file for any tensors: see client/safetensors.h.
template <class T> void save_tensors(const std::string& path, const StateDict<T>& dict, const Metadata& metadata = {}) {
  std::vector<T> tensors;
  for (const auto& e : dict) tensors.push_back(e.second);
  const std::vector<TensorInfo> infos = TensorTraits<T>::infos(tensors);
  std::vector<SafetensorsEntry> entries;
  for (size_t i = 0; i < infos.size(); ++i)
    entries.push_back({dict.entries()[i].first, infos[i].dtype, infos[i].shape, 0, 0});
  client::SafetensorsWriter file(path, entries, metadata);
  TensorTraits<T>::read(tensors, [&](size_t, std::span<const std::byte> bytes) { file.write(bytes); });
  file.commit();
}

template <class T> StateDict<T> load_tensors(MakerOf<T>& maker, const std::string& path) {
  const client::SafetensorsReader file(path);
  StateDict<T> dict;
  for (const SafetensorsEntry& e : file.head().tensors)
    dict.set(e.name, TensorTraits<T>::make(maker, e.dtype, file.read(e), e.shape));
  return dict;
}

}  // namespace gradwire::nn
