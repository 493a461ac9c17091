// All that a communicator over TUTTI_TRANSPORT calls. TUTTI_TEMPLATE is `template` in the file that compiles it, and
// `extern template` elsewhere.

TUTTI_TEMPLATE class composed<TUTTI_TRANSPORT>;
TUTTI_TEMPLATE class communicator_core<composed<TUTTI_TRANSPORT>>;
TUTTI_TEMPLATE struct detail::composed_call<TUTTI_TRANSPORT, barrier_args>;
TUTTI_TEMPLATE struct detail::composed_call<TUTTI_TRANSPORT, all_reduce_args>;
TUTTI_TEMPLATE struct detail::composed_call<TUTTI_TRANSPORT, all_reduce_coalesced_args>;
TUTTI_TEMPLATE struct detail::composed_call<TUTTI_TRANSPORT, broadcast_args>;
TUTTI_TEMPLATE struct detail::composed_call<TUTTI_TRANSPORT, broadcast_sized_args>;
TUTTI_TEMPLATE struct detail::composed_call<TUTTI_TRANSPORT, reduce_scatter_args>;
TUTTI_TEMPLATE struct detail::composed_call<TUTTI_TRANSPORT, all_gather_args>;
TUTTI_TEMPLATE struct detail::composed_call<TUTTI_TRANSPORT, reduce_args>;
TUTTI_TEMPLATE struct detail::composed_call<TUTTI_TRANSPORT, scan_args>;
TUTTI_TEMPLATE struct detail::composed_call<TUTTI_TRANSPORT, exclusive_scan_args>;
TUTTI_TEMPLATE struct detail::composed_call<TUTTI_TRANSPORT, reduce_scatter_v_args>;
TUTTI_TEMPLATE struct detail::composed_call<TUTTI_TRANSPORT, all_gather_v_args>;
TUTTI_TEMPLATE struct detail::composed_call<TUTTI_TRANSPORT, gather_args>;
TUTTI_TEMPLATE struct detail::composed_call<TUTTI_TRANSPORT, gather_v_args>;
TUTTI_TEMPLATE struct detail::composed_call<TUTTI_TRANSPORT, scatter_args>;
TUTTI_TEMPLATE struct detail::composed_call<TUTTI_TRANSPORT, scatter_v_args>;
TUTTI_TEMPLATE struct detail::composed_call<TUTTI_TRANSPORT, all_to_all_args>;
TUTTI_TEMPLATE struct detail::composed_call<TUTTI_TRANSPORT, all_to_all_v_args>;
TUTTI_TEMPLATE struct detail::composed_call<TUTTI_TRANSPORT, send_args>;
TUTTI_TEMPLATE struct detail::composed_call<TUTTI_TRANSPORT, recv_args>;
TUTTI_TEMPLATE struct detail::composed_call<TUTTI_TRANSPORT, recv_any_args>;

#undef TUTTI_TEMPLATE
#undef TUTTI_TRANSPORT
