#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <functional>
#include <map>
#include <mutex>
#include <sstream>

namespace gradwire::server {
namespace {

enum class Kind { counter, gauge, histogram };
struct Row {
  Metric metric;
  Kind kind;
  const char* name;
  const char* label;  // null: none
  const char* help;
};

constexpr int kMetrics = static_cast<int>(Metric::count_);
constexpr Row kRows[kMetrics] = {
    {Metric::ops, Kind::counter, "gradwire_ops_total", nullptr, "Operators executed."},
    {Metric::op_seconds, Kind::histogram, "gradwire_turn_seconds", nullptr, "Time of one turn of a session on a lane."},
    {Metric::batches, Kind::counter, "gradwire_batches_total", "result", "Batches answered."},
    {Metric::errors, Kind::counter, "gradwire_errors_total", "code", "Errors answered, by code."},
    {Metric::sessions, Kind::gauge, "gradwire_sessions", nullptr, "Sessions open now."},
    {Metric::sessions_opened, Kind::counter, "gradwire_sessions_opened_total", nullptr, "Sessions opened."},
    {Metric::sessions_closed, Kind::counter, "gradwire_sessions_closed_total", "reason", "Sessions ended."},
    {Metric::session_bytes, Kind::gauge, "gradwire_session_bytes", nullptr, "Tensor memory of all sessions."},
    {Metric::queued_tasks, Kind::gauge, "gradwire_queued_tasks", nullptr, "Tasks in the sessions' queues."},
    {Metric::tasks_refused, Kind::counter, "gradwire_tasks_refused_total", "reason",
     "Tasks that found no place in a queue."},
    {Metric::rpc_connections, Kind::gauge, "gradwire_rpc_connections", nullptr, "RPC connections open now."},
    {Metric::rpc_requests, Kind::counter, "gradwire_rpc_requests_total", "method", "RPC calls."},
    {Metric::rpc_frames_rejected, Kind::counter, "gradwire_rpc_frames_rejected_total", "reason",
     "RPC frames that ended their connection."},
    {Metric::http_connections, Kind::gauge, "gradwire_http_connections", nullptr, "HTTP connections open now."},
    {Metric::http_requests, Kind::counter, "gradwire_http_requests_total", "status", "HTTP answers, by status."},
    {Metric::http_rejected, Kind::counter, "gradwire_http_rejected_total", "reason", "HTTP heads and bodies refused."},
    {Metric::insecure_mode, Kind::gauge, "gradwire_insecure_mode", nullptr, "1 while a switch lifts the bind rule."},
};
static_assert([] {
  for (int i = 0; i < kMetrics; ++i) {
    if (static_cast<int>(kRows[i].metric) != i) return false;
  }
  return true;
}());
constexpr size_t kLabels = 64;

}  // namespace

struct Metrics::Impl {
  struct Entry {
    prometheus::Family<prometheus::Counter>* counters = nullptr;
    prometheus::Counter* counter = nullptr;
    prometheus::Gauge* gauge = nullptr;
    prometheus::Histogram* histogram = nullptr;
    std::mutex mutex;  // of labels
    std::map<std::string, prometheus::Counter*, std::less<>> labels;
  };
  prometheus::Registry registry;
  std::array<Entry, kMetrics> entries;

  prometheus::Counter& labelled(int i, std::string_view label) {
    Entry& e = entries[static_cast<size_t>(i)];
    const std::lock_guard lock(e.mutex);
    auto found = e.labels.find(label);
    if (found == e.labels.end() && e.labels.size() >= kLabels) found = e.labels.find(label = "other");
    if (found == e.labels.end()) {
      std::string text(label);
      found = e.labels.emplace(text, &e.counters->Add({{kRows[i].label, text}})).first;
    }
    return *found->second;
  }
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {
  for (int i = 0; i < kMetrics; ++i) {
    const Row& row = kRows[i];
    Impl::Entry& e = impl_->entries[static_cast<size_t>(i)];
    switch (row.kind) {
      case Kind::counter:
        e.counters = &prometheus::BuildCounter().Name(row.name).Help(row.help).Register(impl_->registry);
        if (!row.label) e.counter = &e.counters->Add({});
        break;
      case Kind::gauge:
        e.gauge = &prometheus::BuildGauge().Name(row.name).Help(row.help).Register(impl_->registry).Add({});
        break;
      case Kind::histogram:
        e.histogram =
            &prometheus::BuildHistogram()
                 .Name(row.name)
                 .Help(row.help)
                 .Register(impl_->registry)
                 .Add({}, prometheus::Histogram::BucketBoundaries{1e-5, 1e-4, 1e-3, 2.5e-3, 1e-2, 0.1, 1, 10});
        break;
    }
  }
}
Metrics::~Metrics() = default;

void Metrics::add(Metric m, double n) {
  Impl::Entry& e = impl_->entries[static_cast<size_t>(m)];
  if (e.counter) e.counter->Increment(n);
  if (e.gauge) e.gauge->Increment(n);
}

void Metrics::add(Metric m, std::string_view label, double n) {
  impl_->labelled(static_cast<int>(m), label).Increment(n);
}

void Metrics::set(Metric m, double value) {
  if (auto* g = impl_->entries[static_cast<size_t>(m)].gauge) g->Set(value);
}

void Metrics::observe(Metric m, double value) {
  if (auto* h = impl_->entries[static_cast<size_t>(m)].histogram) h->Observe(value);
}

std::string Metrics::text() const {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, impl_->registry.Collect());
  return out.str();
}

}  // namespace gradwire::server
