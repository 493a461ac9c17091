#include <type_traits>

#include <tutti/backend/concept.hpp>
#include <tutti/backend/default.hpp>
#include <tutti/communicator.hpp>

// What is tested here is tested by the compiler.

static_assert(std::is_same_v<tutti::host, tutti::composed<tutti::host_transport>>);
static_assert(std::is_same_v<tutti::communicator<>, tutti::communicator<tutti::host>>);
static_assert(tutti::backend<tutti::host> && tutti::supports<tutti::host, tutti::all_reduce_args> &&
              tutti::supports<tutti::host, tutti::recv_any_args>);
