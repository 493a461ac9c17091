#pragma once
#include <optional>

#include <tutti/bootstrap/init_plan.hpp>
#include <tutti/bootstrap/launch/step_secret.hpp>
#include <tutti/bootstrap/launch/variable_lookup.hpp>
#include <tutti/bootstrap/options.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/wire/hmac.hpp>
#include <tutti/wire/secret.hpp>

namespace tutti::detail {

/// Source of the secret of one call of init(): the options, the environment, or in a Slurm step rank 0. Refers to its
/// arguments.
class job_secret {
 public:
  job_secret(const init_options& options, const init_plan& plan, deadline until)
      : options_(options), plan_(plan), until_(until) {}

  /// Returns the secret; nullopt if there is none. Throws error{auth_failed} if it cannot be read.
  [[nodiscard]] std::optional<wire::secret> load(const variable_lookup auto& get) {
    if (auto given = options_.secret.load(get)) return given;
    if (plan_.step_secret.empty() || plan_.network == exposure::insecure) return std::nullopt;
    wire::require_hmac_provider();
    if (plan_.rank != 0) return await_step_secret(plan_.step_secret, until_, options_.stop);
    if (!made_) made_.emplace(plan_.step_secret);
    return made_->value();
  }

 private:
  const init_options& options_;
  const init_plan& plan_;
  deadline until_;
  std::optional<step_secret_file> made_;
};

}  // namespace tutti::detail
