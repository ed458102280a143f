/* Any bytes as a cluster file: a Cluster that holds what its header promises, or an error that
 * names the file and a line. A syntax error told by libconfig means that our own check let through
 * what libconfig refuses, and libconfig may then leak: that counts as a finding too. */
#include <rubato/error.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cluster/cluster_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(condition) \
    do {                   \
        if (!(condition))  \
            abort();       \
    } while (false)

static void check_cluster(const Cluster *cluster)
{
    uint32_t servers = 0;

    REQUIRE(cluster->n_nodes > 0 && cluster->n_nodes <= CLUSTER_MAX_NODES);
    REQUIRE(cluster->scheduler_node < cluster->n_nodes);
    REQUIRE(cluster->scheduler_port != 0 && *cluster->scheduler_host != '\0');
    REQUIRE(cluster->timeout_ms > cluster->heartbeat_ms && cluster->heartbeat_ms > 0);
    REQUIRE(cluster->stall_ms > 0 && cluster->stall_ms <= CLUSTER_MAX_MS);
    REQUIRE(strlen(cluster->digest) == 64);
    for (uint32_t i = 0; i < cluster->n_nodes; i++) {
        const ClusterNode *node = &cluster->nodes[i];
        uint32_t number = UINT32_MAX;

        REQUIRE(i == 0 || node[-1].id < node->id);
        REQUIRE(node->id <= CLUSTER_MAX_NODE_ID && *node->host != '\0' && *node->host != '-');
        REQUIRE(node->servers <= CLUSTER_MAX_THREADS && node->workers <= CLUSTER_MAX_THREADS);
        REQUIRE(node->line > 0);
        REQUIRE(cluster_find(cluster, node->id, &number) == node && number == i);
        servers += node->servers;
    }
    REQUIRE(servers > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(Cluster) cluster = cluster_parse((const char *)data, size, "fuzz.cfg", &error);

    REQUIRE((cluster == NULL) == (error != NULL));
    if (cluster != NULL) {
        check_cluster(cluster);
    } else {
        REQUIRE(error->domain == RUBATO_ERROR && error->code == RUBATO_ERROR_CONFIG);
        REQUIRE(g_str_has_prefix(error->message, "fuzz.cfg:"));
        REQUIRE(g_ascii_isdigit(error->message[strlen("fuzz.cfg:")]));
        REQUIRE(g_utf8_validate(error->message, -1, NULL));
        REQUIRE(!g_str_has_suffix(error->message, ": syntax error"));
        REQUIRE(!g_str_has_suffix(error->message, ": duplicate setting name"));
    }
    return 0;
}
