/* The cluster file: which nodes a run has, where they listen, and what each of them does.
 *
 * A Cluster is read once and never changes. `cluster_read` has checked everything that the file
 * alone can tell, so a holder of a Cluster need not check again: ids and host:port pairs are
 * distinct, some node has a server that is there from the beginning, the scheduler's node is one of
 * them, the times make sense.
 *
 * Threads: any; a Cluster may be read by several at once. */
#ifndef RUBATO_ENGINE_CLUSTER_CLUSTER_FILE_H
#define RUBATO_ENGINE_CLUSTER_CLUSTER_FILE_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

/* Bounds of what a file may say. Sensible runs stay far below them. */
#define CLUSTER_MAX_NODES 4096u
#define CLUSTER_MAX_NODE_ID 1000000u
#define CLUSTER_MAX_THREADS 1024u /* servers, or workers, of one node */
#define CLUSTER_MAX_MS 86400000u  /* a day */
#define CLUSTER_MAX_MIB 1048576u  /* a TiB */
#define CLUSTER_MAX_QUERIES 2000000000u
#define CLUSTER_MAX_FILE_BYTES (1024u * 1024u)

/* The default: shared memory between nodes of one host, TCP between hosts. */
#define CLUSTER_AUTO_TRANSPORT "auto"
#define CLUSTER_SHM_AND_UCX "shm+ucx"

/* If the file says nothing, and without one: one request to a service, of the largest size. */
#define CLUSTER_USUAL_SERVICE_MIB 1024u

/* What a server may be given; 0: no limit. */
typedef struct {
    uint32_t memory_mib;
    uint32_t network_mib; /* a second */
    uint32_t queries;     /* a second */
} ClusterLimits;

typedef struct {
    uint32_t id;
    char *host;
    uint16_t port; /* 0: any free one, which the others learn from the scheduler */
    uint32_t servers;
    uint32_t workers;
    bool spare;           /* the run begins without it; a process may join as it later */
    ClusterLimits limits; /* of each of its servers */
    unsigned line;        /* of the file, where the node's entry begins */
} ClusterNode;

typedef struct {
    char *path; /* as it was given to cluster_read */
    char *name;
    char *scheduler_host;
    uint16_t scheduler_port; /* never 0 */
    uint32_t scheduler_node; /* the number of the node that it runs on */
    unsigned scheduler_line; /* of the file, where the scheduler's group begins */
    ClusterNode *nodes;      /* sorted by id: a node's number is its place here */
    uint32_t n_nodes;        /* at least 1 */
    uint32_t heartbeat_ms;
    uint32_t timeout_ms;
    uint32_t stall_ms;
    uint32_t rendezvous_ms;
    uint32_t service_mib; /* of one node's requests to services that a node keeps */
    char *placement;      /* the name of a strategy */
    bool bind_cores;      /* threads have cores of their own */
    bool numa;            /* and rows are in the NUMA nodes of their servers */
    char **plugins;       /* paths, ended by NULL; or NULL */
    char *transport;      /* one of the known names, or CLUSTER_AUTO_TRANSPORT */
    char *collectives;    /* the name of a backend */
    char *secret_file;    /* the file in which nodes find the run's secret; NULL: none is named */
    bool encrypt;         /* all that is sent between nodes */
    unsigned encrypt_line;
    bool authenticate; /* packets over sockets have a MAC within a host, too */
    unsigned authenticate_line;
    bool insecure; /* addresses other than loopback need no secret */
    char *digest;  /* SHA-256 of the file's bytes, in hex */
} Cluster;

/* Reads and checks a cluster file. Returns NULL with RUBATO_ERROR_IO for a file that cannot be
 * read, and with RUBATO_ERROR_CONFIG for a wrong one; the message then begins with file:line and
 * says what to write instead. (transfer full) */
Cluster *cluster_read(const char *path, GError **error);

/* The same for `length` bytes of text, which need not end in a zero; `path` names them in messages.
 * (transfer full) */
Cluster *cluster_parse(const char *text, size_t length, const char *path, GError **error);

/* NULL is allowed. */
void cluster_free(Cluster *cluster);

/* The node of that id and, where `number` is not NULL, its number; NULL if there is none.
 * (transfer none) */
const ClusterNode *cluster_find(const Cluster *cluster, uint32_t id, uint32_t *number);

/* How many nodes, servers and nodes with servers there are when the run begins: spare nodes do not
 * count. */
uint32_t cluster_first_nodes(const Cluster *cluster);
uint32_t cluster_first_servers(const Cluster *cluster);
uint32_t cluster_first_server_nodes(const Cluster *cluster);

bool cluster_has_spares(const Cluster *cluster);

/* The transport that reaches every node wherever it is: "zmq" or "ucx" where the file asks for it,
 * also beside shared memory, else "tcp". (transfer none) */
const char *cluster_far_transport(const Cluster *cluster);

/* Whether nodes of one host use shared memory, and that transport is for other nodes. */
bool cluster_shares_memory_nearby(const Cluster *cluster);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(Cluster, cluster_free)

#endif
