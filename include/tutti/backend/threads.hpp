#pragma once
#include <tutti/backend/composed.hpp>
#include <tutti/transport/threads.hpp>

namespace tutti {

/// Ranks are threads of one process: the shape of nn.DataParallel, and of tests.
using threads = composed<threads_transport>;

}  // namespace tutti
