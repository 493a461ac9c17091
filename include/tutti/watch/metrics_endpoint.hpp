#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <tutti/config.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/fork_guard.hpp>
#include <tutti/os/event_fd.hpp>
#include <tutti/os/fd.hpp>
#include <tutti/watch/gpu_readings.hpp>
#include <tutti/watch/metrics.hpp>
#include <tutti/watch/operation_sink.hpp>

namespace tutti::watch {

namespace detail {

/// Reads a request up to the end of its head; what came by then if it is too long, too late or broken off, or if the
/// descriptor `ends` can be read.
TUTTI_DECL std::string read_head(int socket, int ends, deadline until);
/// Sends a text, unless it gets too late, or `ends` can be read before the other side has made room.
TUTTI_DECL void send_whole(int socket, std::string_view text, int ends, deadline until) noexcept;

}  // namespace detail

/// HTTP server on 127.0.0.1 that answers GET /metrics with the metrics of all worlds of this process, one request on a
/// connection. Its thread sleeps until somebody connects. Whoever is on this machine can ask.
class metrics_server {
 public:
  /// Starts to listen. Throws error{system}, for a port that is taken, or {out_of_resources}.
  TUTTI_DECL explicit metrics_server(std::uint16_t port);
  metrics_server(const metrics_server&) = delete;
  metrics_server& operator=(const metrics_server&) = delete;
  TUTTI_DECL ~metrics_server();

  /// Returns the server of this process at a port, which all its worlds have in common. Errors as the constructor.
  TUTTI_DECL static std::shared_ptr<metrics_server> at(std::uint16_t port);

  /// Adds the metrics of a world, until remove(). They change under lock() only.
  TUTTI_DECL void add(const metrics& world);
  TUTTI_DECL void remove(const metrics& world) noexcept;
  [[nodiscard]] std::unique_lock<std::mutex> lock() { return std::unique_lock{mutex_}; }

 private:
  TUTTI_DECL void serve();
  TUTTI_DECL std::string answer(const std::string& request);

  ::tutti::detail::fork_guard maker_;
  std::uint16_t port_;
  os::fd listener_;
  os::event_fd ends_;
  std::shared_ptr<gpu_readings> gpus_;
  std::mutex mutex_;
  std::vector<const metrics*> worlds_;
  std::thread thread_;
};

/// The metrics of a rank at its process's server.
class metrics_endpoint final : public operation_sink {
 public:
  /// Errors as those of metrics_server.
  TUTTI_DECL metrics_endpoint(std::uint16_t port, metrics_place where);
  TUTTI_DECL ~metrics_endpoint() override;

  TUTTI_DECL void take(const operation& o, std::int64_t issued, std::int64_t started, std::int64_t ended,
                       const call_site& site) override;
  TUTTI_DECL void take_span(const ::tutti::detail::time_span& s, std::int64_t begun, std::int64_t middle,
                            std::int64_t ended) override;
  TUTTI_DECL void end_batch(std::int64_t now) override;

 private:
  std::shared_ptr<metrics_server> server_;
  metrics counted_;
};

}  // namespace tutti::watch

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/watch/metrics_endpoint.hpp>
#endif
