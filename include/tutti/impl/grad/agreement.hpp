#pragma once
#include <string>

#include <tutti/config.hpp>
#include <tutti/core/error.hpp>
#include <tutti/grad/pass/agreement.hpp>

namespace tutti::grad {

TUTTI_DECL std::string describe(const parameter_shape& p) {
  std::string text =
      (p.name.empty() ? "" : p.name + ", ") + std::to_string(p.count) + " x " + std::string(tutti::name(p.type));
  if (p.rows > 1) text += " in " + std::to_string(p.rows) + " rows";
  return text;
}

namespace detail {

TUTTI_DECL void throw_different_calls(begun here) {
  try {
    throw;
  } catch (const error& e) {
    if (e.kind() != errc::mismatch) throw;
    const std::string what = e.what();
    const auto says = [&](const char* call) { return what.find(call) != std::string::npos; };
    std::string calls = here == begun::rebuild ? "rebuild() on this rank, and begin() or"
                        : here == begun::pass  ? "begin() on this rank, and"
                                              : "begin() with weight 0 on this rank, which has run out of samples, and";
    const bool unknown = says("called another collective here") || says("bytes of a message");
    if (here != begun::rebuild && (unknown || says("(3 x float64, sum)") || says("(float64, sum)")))
      calls += " rebuild() or";
    throw error(e.cause(), "reducer: " + calls + " another call elsewhere; all ranks make the same: " + what,
                {e.rank(), e.sequence(), e.collective(), e.where()});
  }
}

}  // namespace detail

}  // namespace tutti::grad
