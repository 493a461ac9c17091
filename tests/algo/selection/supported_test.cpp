#include <doctest/doctest.h>

#include <string>

#include <tutti/algo/selection/choose.hpp>
#include <tutti/algo/selection/supported.hpp>
#include <tutti/core/args.hpp>

namespace {

using tutti::algorithm;
using namespace tutti::algo;

constexpr problem mapped{connectivity::memory, 8, 0, 4}, networked{connectivity::messages, 8, 0, 4},
    crowded{connectivity::memory, 65, 0, 4096}, layered{connectivity::machines, 8, 0, 4, 3},
    level{connectivity::machines, 8, 0, 4, 2, 1, true};
constexpr auto foreign = static_cast<algorithm>(200);

static_assert(is_supported<tutti::all_reduce_args>(algorithm::direct, mapped));
static_assert(is_supported<tutti::all_reduce_args>(algorithm::ring, networked));
static_assert(!is_supported<tutti::all_reduce_args>(algorithm::direct, networked));
static_assert(!is_supported<tutti::all_reduce_args>(algorithm::direct, crowded));
static_assert(!is_supported<tutti::all_reduce_args>(algorithm::tree, mapped));
static_assert(!is_supported<tutti::all_reduce_args>(foreign, mapped));
static_assert(is_supported<tutti::broadcast_args>(algorithm::tree, mapped));
static_assert(!is_supported<tutti::broadcast_args>(algorithm::ring, mapped));
static_assert(!is_supported<tutti::broadcast_sized_args>(algorithm::direct, mapped));
static_assert(!is_supported<tutti::reduce_scatter_args>(algorithm::recursive_doubling, mapped));
static_assert(is_supported<tutti::gather_args>(algorithm::tree, mapped));
static_assert(!is_supported<tutti::gather_v_args>(algorithm::tree, mapped), "nobody but the root knows the lengths");
static_assert(is_supported<tutti::all_reduce_args>(algorithm::hierarchical, layered));
static_assert(is_supported<tutti::all_gather_args>(algorithm::hierarchical, level));
static_assert(!is_supported<tutti::all_gather_args>(algorithm::hierarchical, layered), "not as many on each");
static_assert(!is_supported<tutti::reduce_scatter_args>(algorithm::hierarchical, layered));
static_assert(!is_supported<tutti::barrier_args>(algorithm::direct, mapped));

template <class Args>
void check_consistent() {
  for (const problem& s : {mapped, networked, crowded, layered, level}) {
    CHECK(is_supported<Args>(algorithm::automatic, s));
    for (const auto via : {algorithm::direct, algorithm::ring, algorithm::recursive_doubling, algorithm::tree,
                           algorithm::linear, algorithm::pairwise, algorithm::halving_doubling, algorithm::bruck,
                           algorithm::chain, algorithm::hierarchical}) {
      CAPTURE(tutti::name(via));
      const std::string text = refusal<Args>(foreign, s), others = text.substr(text.find("; ask for"));
      CHECK((others.find(tutti::name(via)) != std::string::npos) == is_supported<Args>(via, s));
    }
  }
}

TEST_CASE("supported: automatic can always be asked for, and a refusal lists what else") {
  check_consistent<tutti::all_reduce_args>();
  check_consistent<tutti::broadcast_args>();
  check_consistent<tutti::broadcast_sized_args>();
  check_consistent<tutti::reduce_scatter_args>();
  check_consistent<tutti::all_gather_args>();
  check_consistent<tutti::all_reduce_coalesced_args>();
  check_consistent<tutti::reduce_args>();
  check_consistent<tutti::scan_args>();
  check_consistent<tutti::exclusive_scan_args>();
  check_consistent<tutti::reduce_scatter_v_args>();
  check_consistent<tutti::all_gather_v_args>();
  check_consistent<tutti::gather_args>();
  check_consistent<tutti::gather_v_args>();
  check_consistent<tutti::scatter_args>();
  check_consistent<tutti::scatter_v_args>();
  check_consistent<tutti::all_to_all_args>();
  check_consistent<tutti::all_to_all_v_args>();
  check_consistent<tutti::barrier_args>();
  check_consistent<tutti::send_args>();
  check_consistent<tutti::recv_args>();
}

TEST_CASE("supported: a refusal says what was asked for, why not, and what there is") {
  CHECK(refusal<tutti::barrier_args>(algorithm::ring, mapped) ==
        "there is no algorithm ring for it; ask for automatic");
  CHECK(refusal<tutti::broadcast_args>(foreign, networked) ==
        "there is no algorithm unknown for it; ask for automatic, tree or chain");
  CHECK(refusal<tutti::all_reduce_args>(algorithm::hierarchical, networked) ==
        "algorithm hierarchical needs ranks on several machines, with several on one of them that share "
        "its memory, and elements of which a slot of 256 KiB holds one per rank; ask for automatic, ring, "
        "recursive_doubling, halving_doubling or pairwise");
  CHECK(refusal<tutti::all_gather_args>(algorithm::hierarchical, networked) ==
        "algorithm hierarchical needs ranks on several machines, equally many on each, at least two, which share "
        "memory, and "
        "elements of which a slot of 256 KiB holds one per rank; ask for automatic, ring or bruck");
  CHECK(refusal<tutti::all_reduce_args>(algorithm::direct, networked) ==
        "algorithm direct needs a world whose ranks map each other's memory, and elements of which a slot "
        "of 256 KiB holds one per rank; ask for automatic, ring, recursive_doubling, halving_doubling or pairwise");
}

}  // namespace
