#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace gradwire::server {

/// What is counted, one row each in metrics.cpp. No label carries a session, a tensor or an address, so the number of
/// series is bounded by the tables.
enum class Metric {
  ops,         // operators executed
  op_seconds,  // histogram: time of one turn of a session's work on a lane
  batches,     // by result: ok, error, skipped, repeated
  errors,      // by code
  sessions,    // gauge: open now
  sessions_opened,
  sessions_closed,      // by reason: client, lease, shutdown
  session_bytes,        // gauge: tensor memory of all sessions
  queued_tasks,         // gauge: waiting in all queues
  tasks_refused,        // by reason: full, closed
  rpc_connections,      // gauge
  rpc_requests,         // by method
  rpc_frames_rejected,  // by reason
  http_connections,     // gauge
  http_requests,        // by status
  http_rejected,        // by reason: refused before there was a request
  insecure_mode,        // gauge: 1 while a switch lifts the bind rule
  count_
};

/// Thread-safe. A label outside a metric's first 64 is counted as "other".
class Metrics {
 public:
  Metrics();
  ~Metrics();
  /// Counters grow, gauges move by n (which may be negative).
  void add(Metric, double n = 1);
  void add(Metric, std::string_view label, double n = 1);
  void set(Metric, double value);      // gauges
  void observe(Metric, double value);  // histograms
  std::string text() const;            // Prometheus text format 0.0.4

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gradwire::server
