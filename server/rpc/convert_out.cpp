#include <algorithm>
#include <cstring>

#include "server/rpc/convert.h"
#include "server/rpc/limits.h"

namespace gradwire::server {

namespace {

kj::StringPtr text(const std::string& s) { return kj::StringPtr(s.c_str(), s.size()); }

void write(capnp::List<int64_t>::Builder to, const Shape& shape) {
  for (uint i = 0; i < to.size(); ++i) to.set(i, shape[i]);
}

uint64_t words(size_t bytes) { return bytes / sizeof(capnp::word) + 1; }

}  // namespace

void write(wire::Error::Builder to, const Error& e) {
  to.setCode(static_cast<uint8_t>(e.code()));
  to.setMessage(text(e.message())), to.setOp(text(e.op()));
  to.setSeq(e.seq()), to.setStep(e.step());
  to.setFile(text(e.where().file)), to.setLine(e.where().line);
}

void write(wire::TensorInfo::Builder to, const TensorInfo& i) {
  to.setDtype(static_cast<uint8_t>(i.dtype));
  write(to.initShape(i.shape.size()), i.shape);
  write(to.initStrides(i.strides.size()), i.strides);
  to.setDevice(text(i.device)), to.setGradFn(text(i.grad_fn));
  to.setRequiresGrad(i.requires_grad), to.setIsLeaf(i.is_leaf);
  to.setVersion(i.version), to.setBytes(i.bytes), to.setCount(i.count);
}

void write(wire::SessionInfo::Builder to, const SessionInfo& s) {
  to.setId(text(s.id)), to.setName(text(s.name)), to.setDevice(text(s.device));
  to.setTensors(s.tensors), to.setBytes(s.bytes), to.setMemoryLimit(s.memory_limit);
  to.setOpsRun(s.ops_run), to.setAgeSeconds(s.age_seconds), to.setPeakBytes(s.peak_bytes);
}

void write(wire::ServerInfo::Builder to, const ServerInfo& i, bool operators) {
  to.setVersion(text(i.version)), to.setCatalogueHash(i.catalogue_hash);
  to.setThreads(static_cast<uint32_t>(i.threads)), to.setLanes(static_cast<uint32_t>(i.lanes));
  auto devices = to.initDevices(i.devices.size());
  for (uint k = 0; k < i.devices.size(); ++k) devices.set(k, text(i.devices[k]));
  if (!operators) return;
  auto names = to.initOperators(i.operators.size());
  for (uint k = 0; k < i.operators.size(); ++k) names.set(k, text(i.operators[k]));
}

void write(wire::Outcome::Builder to, const Outcome& o) {
  to.setSeq(o.seq);
  if (o.error) {
    to.setFailed(true);
    write(to.initError(), *o.error);
  }
  if (!o.fetched.empty()) {
    auto fetched = to.initFetched(o.fetched.size());
    size_t sum = 0;
    for (uint i = 0; i < o.fetched.size(); ++i) {
      const Fetched& f = o.fetched[i];
      auto one = fetched[i];
      one.setPresent(f.present);
      if (!f.present) continue;
      write(one.initInfo(), f.value.info);
      const size_t size = f.value.bytes.size;
      one.setSize(size);
      if (size == 0 || size > kInlineValue || sum + size > kInlineSum) continue;
      sum += size;
      std::memcpy(one.initData(size).begin(), f.value.bytes.data, size);
    }
  }
  if (!o.warnings.empty()) {
    auto warnings = to.initWarnings(static_cast<uint>(o.warnings.size()));
    for (uint i = 0; i < warnings.size(); ++i) {
      warnings[i].setOp(text(o.warnings[i].op)), warnings[i].setMessage(text(o.warnings[i].message));
      warnings[i].setStep(o.warnings[i].step);
      if (o.warnings[i].line) warnings[i].setFile(text(o.warnings[i].file)), warnings[i].setLine(o.warnings[i].line);
    }
  }
}

capnp::MessageSize size_of(const Outcome& o) {
  uint64_t n = 16;
  if (o.error)
    n += 16 + words(o.error->message().size()) + words(o.error->op().size()) + words(o.error->where().file.size());
  size_t sum = 0;
  for (const auto& f : o.fetched) {
    n += 16;
    if (!f.present) continue;
    n += 2 * f.value.info.shape.size() + 16 + words(f.value.info.grad_fn.size());
    if (f.value.bytes.size <= kInlineValue && sum + f.value.bytes.size <= kInlineSum) sum += f.value.bytes.size;
  }
  for (const auto& w : o.warnings) n += 10 + words(w.op.size()) + words(w.message.size()) + words(w.file.size());
  return {n + words(sum), 0};
}

}  // namespace gradwire::server
