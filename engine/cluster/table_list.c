/* Reads a file of tables: its syntax and its messages are those of cluster files.
 *
 * Thread: any; no state beyond the call. */
#include "engine/cluster/table_list.h"

#include <string.h>

#include "engine/cluster/cluster_file.h"
#include "engine/cluster/cluster_setting.h"
#include "engine/cluster/config_text.h"
#include "engine/server/replicas/replica_feed.h"
#include "models/spec.h"

enum {
    MOST_TABLES = 4096,
    MOST_DIGITS = 999999999, /* the largest number that the syntax has */
    WIDEST = 1 << 20,
};

static const char *const ROOT_KEYS[] = { "tables", NULL };
static const char *const TABLE_KEYS[] = { "name",     "dtype",      "width",       "storage",
                                          "n_keys",   "update",     "max_mib",     "parts",
                                          "no_split", "memory_mib", "network_mib", "queries",
                                          "replicas", NULL };

static const char example[] = "tables = ( { name = \"weights\"; n_keys = 1000000; } );";

static bool read_dtype(const ClusterFaults *faults, const config_setting_t *entry,
                       const char *where, RubatoDtype *dtype)
{
    static const RubatoDtype known[] = { RUBATO_F32, RUBATO_F64, RUBATO_I32, RUBATO_I64 };
    const char *text = rubato_dtype_name(RUBATO_F32);

    if (!setting_read_text(faults, entry, where, "dtype", /* required= */ false, "dtype = \"f32\";",
                           &text))
        return false;
    for (size_t i = 0; i < G_N_ELEMENTS(known); i++)
        if (strcmp(rubato_dtype_name(known[i]), text) == 0) {
            *dtype = known[i];
            return true;
        }
    g_autofree char *shown = g_strescape(text, NULL);
    return cluster_refuse(faults, setting_line(config_setting_get_member(entry, "dtype")),
                          "unknown dtype \"%.40s\"; known: f32, f64, i32, i64", shown);
}

static bool read_numbers(const ClusterFaults *faults, const config_setting_t *entry,
                         const char *where, RubatoTableSpec *spec)
{
    uint32_t n_keys, max_mib, memory_mib, network_mib, queries;
    const struct {
        SettingNumber rule;
        uint32_t *number;
    } numbers[] = {
        { { "width", 1, WIDEST, false, 1, "width = 16;" }, &spec->width },
        { { "n_keys", 1, MOST_DIGITS, false, 0, "n_keys = 1000000;" }, &n_keys },
        { { "max_mib", 1, CLUSTER_MAX_MIB, false, 0, "max_mib = 512;" }, &max_mib },
        { { "parts", 1, SPEC_MAX_PARTS, false, 0, "parts = 16;" }, &spec->parts },
        { { "memory_mib", 1, MOST_DIGITS, false, 0, "memory_mib = 2000;" }, &memory_mib },
        { { "network_mib", 1, MOST_DIGITS, false, 0, "network_mib = 20;" }, &network_mib },
        { { "queries", 1, MOST_DIGITS, false, 0, "queries = 50000;" }, &queries },
        { { "replicas", 0, REPLICA_FEED_MOST, false, 0, "replicas = 1;" }, &spec->replicas },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(numbers); i++)
        if (!setting_read_number(faults, entry, where, &numbers[i].rule, numbers[i].number))
            return false;
    spec->n_keys = n_keys;
    spec->max_bytes = (uint64_t)max_mib << 20;
    spec->needs = (RubatoNeeds){ .memory_bytes = (uint64_t)memory_mib << 20,
                                 .network_bytes = (uint64_t)network_mib << 20,
                                 .queries = queries };
    return true;
}

static bool read_table(const ClusterFaults *faults, const config_setting_t *entry, unsigned place,
                       RubatoTableSpec *spec)
{
    g_autofree char *entry_name = g_strdup_printf("entry %u of 'tables'", place + 1);
    const char *name = NULL, *storage = NULL, *update = NULL;

    if (!config_setting_is_group(entry))
        return cluster_refuse(faults, setting_line(entry), "%s is %s; write a group, as in %s",
                              entry_name, setting_type_name(entry), example);
    if (!setting_check_keys(faults, entry, entry_name, TABLE_KEYS) ||
        !setting_read_text(faults, entry, entry_name, "name", /* required= */ true,
                           "name = \"weights\";", &name))
        return false;
    spec->name = g_strdup(name);
    if (!setting_read_text(faults, entry, name, "storage", /* required= */ false,
                           "storage = \"hash\";", &storage) ||
        !setting_read_text(faults, entry, name, "update", /* required= */ false,
                           "update = \"adam\";", &update) ||
        !setting_read_truth(faults, entry, name, "no_split", &spec->no_split))
        return false;
    spec->storage = g_strdup(storage);
    spec->update = g_strdup(update);
    return read_dtype(faults, entry, name, &spec->dtype) && read_numbers(faults, entry, name, spec);
}

static bool check_new_name(const ClusterFaults *faults, const config_setting_t *entry,
                           const TableList *list, uint32_t place)
{
    for (uint32_t i = 0; i < place; i++)
        if (strcmp(list->specs[i].name, list->specs[place].name) == 0)
            return cluster_refuse(faults, setting_line(entry),
                                  "entry %u of 'tables' has the name of entry %u; give each table "
                                  "its own",
                                  place + 1, i + 1);
    return true;
}

static bool read_list(const ClusterFaults *faults, const config_setting_t *root, void *data)
{
    TableList *const list = data;
    const config_setting_t *tables = config_setting_get_member(root, "tables");

    if (!setting_check_keys(faults, root, "the file", ROOT_KEYS))
        return false;
    if (tables == NULL || !config_setting_is_list(tables) || config_setting_length(tables) == 0)
        return cluster_refuse(faults, tables == NULL ? 1 : setting_line(tables),
                              "the file has no list of tables; write %s", example);
    if (config_setting_length(tables) > MOST_TABLES)
        return cluster_refuse(faults, setting_line(tables),
                              "'tables' has %d entries; write at most %d",
                              config_setting_length(tables), MOST_TABLES);
    list->n = (uint32_t)config_setting_length(tables);
    list->specs = g_new0(RubatoTableSpec, list->n);
    for (uint32_t i = 0; i < list->n; i++) {
        const config_setting_t *const entry = config_setting_get_elem(tables, i);

        if (!read_table(faults, entry, i, &list->specs[i]) ||
            !check_new_name(faults, entry, list, i))
            return false;
    }
    return true;
}

TableList *table_list_read(const char *path, GError **error)
{
    const ClusterFaults faults = { path, error };
    g_autoptr(TableList) list = g_new0(TableList, 1);
    size_t length;
    g_autofree char *text = config_text_load(path, "file of tables", &length, error);

    if (text == NULL ||
        !config_text_parse(text, length, "file of tables", &faults, read_list, list))
        return NULL;
    return g_steal_pointer(&list);
}

void table_list_free(TableList *list)
{
    if (list == NULL)
        return;
    for (uint32_t i = 0; i < list->n; i++) {
        const void *const owned[] = { list->specs[i].name, list->specs[i].storage,
                                      list->specs[i].update };

        for (size_t k = 0; k < G_N_ELEMENTS(owned); k++)
            g_free((void *)(uintptr_t)owned[k]);
    }
    g_free(list->specs);
    g_free(list);
}
