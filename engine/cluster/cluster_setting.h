/* Settings of a cluster file, read one by one. where: the group that has the setting, as the reader
 * knows it. A fault is refused: the function returns false, or NULL.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_CLUSTER_CLUSTER_SETTING_H
#define RUBATO_ENGINE_CLUSTER_CLUSTER_SETTING_H

#include <libconfig.h>
#include <stdint.h>

#include "engine/cluster/cluster_fault.h"

/* A number of the file: its bounds and, for one that may be left out, its default. */
typedef struct {
    const char *key;
    uint32_t min;
    uint32_t max;
    bool required;
    uint32_t preset;
    const char *example;
} SettingNumber;

/* The line of a setting, from 1 on. */
unsigned setting_line(const config_setting_t *setting);

/* Its type, for a message: "a group". */
const char *setting_type_name(const config_setting_t *setting);

/* Whether all keys of a group are known; known ends with NULL. */
bool setting_check_keys(const ClusterFaults *faults, const config_setting_t *group,
                        const char *where, const char *const *known);

bool setting_read_number(const ClusterFaults *faults, const config_setting_t *group,
                         const char *where, const SettingNumber *rule, uint32_t *value);

/* Leaves *value as it is if there is none and none is required. *value: (transfer none), the
 * setting's. */
bool setting_read_text(const ClusterFaults *faults, const config_setting_t *group,
                       const char *where, const char *key, bool required, const char *example,
                       const char **value);

/* Leaves *value as it is if there is none. */
bool setting_read_truth(const ClusterFaults *faults, const config_setting_t *group,
                        const char *where, const char *key, bool *value);

/* *host: (transfer full) */
bool setting_read_host(const ClusterFaults *faults, const config_setting_t *group,
                       const char *where, char **host);

/* A group that must be there. (transfer none) */
const config_setting_t *setting_find_group(const ClusterFaults *faults,
                                           const config_setting_t *parent, const char *where,
                                           const char *key, const char *example);

#endif
