/* A process follows a stream (stream.h) and serves Gets from it to other programs, which open its
 * tables like tables that cannot be added to.
 *
 * `rubato follow URI` is such a process. A program asks it through a RubatoRemoteFollower, and
 * needs no engine.
 *
 * Who may ask: on a loopback address anybody on the host, unless there is a secret; on another
 * address only who knows the secret. With a secret everything that is said is encrypted. The secret
 * is that of secret_file, else that of RUBATO_SECRET.
 *
 * Threads: as the calls say. */
#ifndef RUBATO_REMOTE_FOLLOWER_H
#define RUBATO_REMOTE_FOLLOWER_H

#include <rubato/stream.h>

G_BEGIN_DECLS

/* The most keys of a call, and the most bytes of its rows. */
#define RUBATO_REMOTE_MOST_KEYS ((size_t)1 << 18)
#define RUBATO_REMOTE_MOST_BYTES ((size_t)16 << 20)

/* ---- serving ---- */

typedef struct RubatoFollowerServer RubatoFollowerServer;

typedef struct {
    RubatoFollowerSpec follows;
    const char *address;     /* "tcp://HOST:PORT"; port 0: any free one. NULL: tcp://127.0.0.1:0 */
    const char *secret_file; /* NULL: RUBATO_SECRET, if it is set */
    uint32_t most_clients;   /* connections at a time; more are closed at once. 0: 256 */
    bool holds;              /* stays at the first version that it has */
} RubatoFollowerServerSpec;

/* Begins to follow, and to serve. The stream need not be there yet. Errors: RUBATO_ERROR_INVALID:
 * an address that other machines reach needs a secret; those of rubato_follower_new; _NETWORK: it
 * cannot listen there; _IO, _CONFIG: of the secret. (transfer full) */
RUBATO_API RubatoFollowerServer *rubato_follower_serve(const RubatoFollowerServerSpec *spec,
                                                       GError **error);

/* Closes all connections. It waits until a version that is being read has been read. NULL is
 * allowed. */
RUBATO_API void rubato_follower_server_free(RubatoFollowerServer *server);

/* Where it listens, with its port. Any thread. (transfer none) */
RUBATO_API const char *rubato_follower_server_address(const RubatoFollowerServer *server);

/* How a follower that serves is. */
typedef struct {
    uint64_t version; /* 0: it has none yet */
    int64_t time_us;  /* when that was written, since 1970, UTC */
    bool is_held;     /* it goes to no newer version by itself */
    uint32_t n_clients;
    uint64_t n_gets; /* answered */
    uint64_t n_keys; /* of these */
    char fault[256]; /* why it gets no newer version; empty: nothing is wrong */
} RubatoServedStatus;

/* Any thread. */
RUBATO_API void rubato_follower_server_status(RubatoFollowerServer *server,
                                              RubatoServedStatus *status);

/* ---- asking ---- */

/* A connection to a follower. If it breaks, the next call makes another one.
 *
 * Threads: any; calls on it come one after the other. */
typedef struct RubatoRemoteFollower RubatoRemoteFollower;

typedef struct {
    const char *address;     /* "tcp://HOST:PORT" */
    const char *secret_file; /* NULL: RUBATO_SECRET, if it is set */
    double timeout_s;        /* of each call; 0: 10 */
} RubatoRemoteFollowerSpec;

/* Errors, here and below: RUBATO_ERROR_NETWORK: nothing answers there, or it breaks off, or one end
 * has another secret; _TIMEOUT; _FORMAT: what answers is no follower; _MISMATCH: one of another
 * version of Rubato; and what the follower says of the call. (transfer full) */
RUBATO_API RubatoRemoteFollower *rubato_remote_follower_connect(
    const RubatoRemoteFollowerSpec *spec, GError **error);

/* Its tables have been freed. NULL is allowed. */
RUBATO_API void rubato_remote_follower_free(RubatoRemoteFollower *remote);

RUBATO_API bool rubato_remote_follower_status(RubatoRemoteFollower *remote,
                                              RubatoServedStatus *status, GError **error);

/* The names of the tables that it has, ended by NULL; none before the first version. (transfer
 * full, g_strfreev) */
RUBATO_API char **rubato_remote_follower_list_tables(RubatoRemoteFollower *remote, GError **error);

/* A table as it is now. RUBATO_ERROR_NOT_FOUND: it has no such table, or no version yet. */
RUBATO_API bool rubato_remote_follower_describe_table(RubatoRemoteFollower *remote,
                                                      const char *name, RubatoFollowedTable *shape,
                                                      GError **error);

/* It stays at its version from now on. */
RUBATO_API bool rubato_remote_follower_hold(RubatoRemoteFollower *remote, GError **error);

/* It goes on with newer versions. */
RUBATO_API bool rubato_remote_follower_continue(RubatoRemoteFollower *remote, GError **error);

/* It goes to a version (rubato_follower_go_to), and stays there. Answered when it is there. If that
 * takes longer than timeout_s, the call fails, but the follower goes there. */
RUBATO_API bool rubato_remote_follower_go_to(RubatoRemoteFollower *remote, uint64_t version,
                                             GError **error);

/* ---- its tables ---- */

typedef struct RubatoRemoteTable RubatoRemoteTable;

/* RUBATO_ERROR_NOT_FOUND: it has no such table, or no version yet; _TYPE: its values are of another
 * dtype. (transfer full) */
RUBATO_API RubatoRemoteTable *rubato_remote_follower_open_table(RubatoRemoteFollower *remote,
                                                                const char *name, RubatoDtype dtype,
                                                                GError **error);

/* NULL is allowed. */
RUBATO_API void rubato_remote_table_free(RubatoRemoteTable *table);

/* As it was when it was opened. (transfer none) */
RUBATO_API const RubatoFollowedTable *rubato_remote_table_shape(const RubatoRemoteTable *table);

/* As rubato_follower_get: n × width values, from one whole version. RUBATO_ERROR_INVALID: more keys
 * or bytes than a call may have, or the rows have different lengths; _MISMATCH: the table has
 * another width or dtype than when it was opened, as of another stream. */
RUBATO_API bool rubato_remote_table_get(RubatoRemoteTable *table, const RubatoKey *keys, size_t n,
                                        void *values, bool *found, uint64_t *version,
                                        GError **error);

/* As rubato_follower_read: calls function for each row, of a table of any shape, when all have
 * come. It must not call the follower. */
RUBATO_API bool rubato_remote_table_read(RubatoRemoteTable *table, const RubatoKey *keys, size_t n,
                                         RubatoFollowedRowFunc function, void *user_data,
                                         uint64_t *version, GError **error);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoFollowerServer, rubato_follower_server_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoRemoteFollower, rubato_remote_follower_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoRemoteTable, rubato_remote_table_free)

G_END_DECLS

#endif
