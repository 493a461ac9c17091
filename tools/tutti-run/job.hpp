#pragma once

#include "tutti-run/options.hpp"

namespace tutti::launch {

/// Runs the job and returns its exit status.
int run_job(const options& given);

}  // namespace tutti::launch
