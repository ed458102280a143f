/* The library UCX (libucp), which is loaded by nodes that use it: no other program needs it.
 *
 * Threads: any. */
#ifndef RUBATO_IO_NET_TRANSPORT_UCX_UCX_LIBRARY_H
#define RUBATO_IO_NET_TRANSPORT_UCX_UCX_LIBRARY_H

#include <stdbool.h>

#include <glib.h>
#include <ucp/api/ucp.h>
#include <ucs/debug/log_def.h>

/* The functions that the transport calls. Those of libucs come with libucp. */
#define UCX_FUNCTIONS(DO)          \
    DO(ucp_config_read)            \
    DO(ucp_config_modify)          \
    DO(ucp_config_release)         \
    DO(ucp_init_version)           \
    DO(ucp_cleanup)                \
    DO(ucp_worker_create)          \
    DO(ucp_worker_destroy)         \
    DO(ucp_worker_get_address)     \
    DO(ucp_worker_release_address) \
    DO(ucp_worker_progress)        \
    DO(ucp_worker_get_efd)         \
    DO(ucp_worker_arm)             \
    DO(ucp_tag_probe_nb)           \
    DO(ucp_ep_create)              \
    DO(ucp_ep_close_nbx)           \
    DO(ucp_tag_msg_recv_nbx)       \
    DO(ucp_tag_send_nbx)           \
    DO(ucp_request_check_status)   \
    DO(ucp_request_free)           \
    DO(ucs_status_string)          \
    DO(ucs_log_push_handler)

typedef struct {
#define UCX_POINTER(name) __typeof__(&name) name;
    UCX_FUNCTIONS(UCX_POINTER)
#undef UCX_POINTER
} UcxLibrary;

/* Loads it, if it is not loaded yet. NULL with RUBATO_ERROR_NETWORK. It stays loaded: it leaves
 * handlers of its own in the process. (transfer none) */
const UcxLibrary *ucx_library_load(GError **error);

#endif
