#pragma once

/// All of tutti that a plain C++20 compiler builds. Components with dependencies of their own (OpenSSL, NCCL, MPI) are
/// headers beside it, switched on by linking their CMake target or including them.

#include <tutti/config.hpp>

#include <tutti/async/engine.hpp>
#include <tutti/async/op.hpp>
#include <tutti/async/progress_thread.hpp>
#include <tutti/async/resume_on.hpp>
#include <tutti/async/sync_wait.hpp>
#include <tutti/async/task.hpp>
#include <tutti/async/when_all.hpp>
#include <tutti/bootstrap/init.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/communicator.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/log.hpp>
#include <tutti/grad/reducer.hpp>
#include <tutti/version.hpp>

#if defined(TUTTI_WITH_OPENSSL)  // the CMake target tutti::openssl defines it
#include <tutti/bootstrap/tls.hpp>
#endif
