/* Tables as the engine knows them: a copy of the spec in which every default is filled in, and its
 * partition. */
#include "engine/catalogue.h"

#include "engine/server/replicas/replica_feed.h"
#include "models/model.h"
#include "models/spec.h"
#include "models/storage/expiry/expiry.h"
#include "models/update/rule.h"

#include <math.h>
#include <rubato/error.h>
#include <string.h>

static RubatoTableSpec *resolve(const RubatoTableSpec *spec, uint32_t n_servers)
{
    RubatoTableSpec *resolved = g_memdup2(spec, sizeof *spec);

    resolved->name = g_strdup(spec->name);
    resolved->bounds = g_memdup2(spec->bounds, spec->n_bounds * sizeof *spec->bounds);
    resolved->storage = g_strdup(spec_storage_name(spec));
    resolved->model = g_strdup(spec_model_name(spec));
    resolved->update = g_strdup(spec_update_name(spec));
    resolved->init = g_strdup(spec_init_name(spec));
    resolved->record = g_strdup(spec_record_name(spec));
    resolved->partition = g_strdup(spec_partition_name(spec));
    resolved->rule = rule_resolve(spec);
    resolved->width = spec_width(spec);
    resolved->chunk_size = spec_chunk_size(spec);
    resolved->parts = spec->parts > 0 ? spec->parts : spec->no_split ? 1 : n_servers;
    resolved->max_kept_bytes = spec_max_kept_bytes(spec);
    resolved->admit = g_strdup(spec_admit_name(spec));
    resolved->admit_bytes = spec_admit_bytes(spec);
    resolved->admit_keys =
        g_memdup2(spec->admit_keys, spec->n_admit_keys * sizeof *spec->admit_keys);
    resolved->expire = g_strdup(spec_expire_name(spec));
    resolved->evict = spec->max_bytes == 0 ? NULL : g_strdup(spec_evict_name(spec));
    return resolved;
}

/* With the lists of the resolved one, which has all that were given. */
static RubatoTableSpec *copy_given(const RubatoTableSpec *spec, const RubatoTableSpec *resolved)
{
    RubatoTableSpec *given = g_memdup2(spec, sizeof *spec);

    given->name = g_strdup(spec->name);
    given->storage = g_strdup(spec->storage);
    given->model = g_strdup(spec->model);
    given->update = g_strdup(spec->update);
    given->init = g_strdup(spec->init);
    given->record = g_strdup(spec->record);
    given->partition = g_strdup(spec->partition);
    given->evict = g_strdup(spec->evict);
    given->admit = g_strdup(spec->admit);
    given->expire = g_strdup(spec->expire);
    given->bounds = resolved->bounds;
    given->admit_keys = resolved->admit_keys;
    return given;
}

/* All but the lists. */
static void spec_free(RubatoTableSpec *spec)
{
    const char *const names[] = { spec->name,   spec->storage,  spec->model, spec->update,
                                  spec->init,   spec->record,   spec->evict, spec->admit,
                                  spec->expire, spec->partition };

    for (size_t i = 0; i < G_N_ELEMENTS(names); i++)
        g_free((char *)(uintptr_t)names[i]);
    g_free(spec);
}

Table *table_new(const RubatoTableSpec *spec, const ServerCount *servers, GError **error)
{
    g_autoptr(Table) table = NULL;

    if (!spec_check(spec, error))
        return NULL;
    table = g_new0(Table, 1);
    table->spec = resolve(spec, servers->n);
    table->given = copy_given(spec, table->spec);
    table->most_parts = spec->no_split
                            ? table->spec->parts
                            : (table->spec->parts + servers->n_first - 1) / servers->n_first;
    table->spec->max_bytes /= table->most_parts;
    table->spec->admit_bytes /= table->most_parts;
    if (spec->admit_halve_after > 0)
        table->spec->admit_halve_after = MAX(1, spec->admit_halve_after / table->most_parts);
    if (!spec_check_share(spec, table->spec->max_bytes, table->spec->admit_bytes, error))
        return NULL;
    table->made_us = g_get_monotonic_time();
    table->row_bytes = spec_row_bytes(spec);
    table->state_bytes = spec_state_bytes(spec);
    if (!partition_init(&table->partition, table->spec,
                        rubato_table_spec_holds_range(spec) ? PARTITION_KEYS_RANGE
                                                            : PARTITION_KEYS_ALL,
                        table->spec->parts, error))
        return NULL;
    table->map = part_map_new(table->spec->parts, servers->n);
    return g_steal_pointer(&table);
}

/* A part's share of what the whole table needs, rounded up. */
static uint64_t share_of(const Table *table, uint32_t part, uint64_t need)
{
    const uint32_t n_parts = table->map->n_parts;
    RubatoKey first;
    uint64_t n;

    if (!table->partition.dense)
        return need / n_parts + (need % n_parts > 0);
    partition_range(&table->partition, part, &first, &n);
    return (uint64_t)ceil((double)need * ((double)n / (double)table->partition.n_keys));
}

static uint64_t part_memory(const Table *table, uint32_t part)
{
    const uint64_t row_bytes = table->row_bytes + table->state_bytes;
    RubatoKey first;
    uint64_t n;

    if (!spec_knows_memory(table->spec))
        return share_of(table, part, table->spec->needs.memory_bytes);
    if (table->spec->max_bytes > 0)
        return table->spec->max_bytes;
    partition_range(&table->partition, part, &first, &n);
    return n > UINT64_MAX / row_bytes ? UINT64_MAX : n * row_bytes;
}

PlacementLoad table_part_load(const Table *table, uint32_t part)
{
    const RubatoNeeds *const needs = &table->spec->needs;

    return (PlacementLoad){ { [PLACEMENT_MEMORY] = part_memory(table, part),
                              [PLACEMENT_NETWORK] = share_of(table, part, needs->network_bytes),
                              [PLACEMENT_QUERIES] = share_of(table, part, needs->queries) } };
}

bool table_check_replicas(const RubatoTableSpec *spec, uint32_t n_nodes, GError **error)
{
    if (spec->replicas == 0)
        return true;
    if (n_nodes > spec->replicas && spec->replicas <= REPLICA_FEED_MOST)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                "table %s: %u replicas need servers on %u nodes, and %u nodes have some; there are "
                "%u replicas at most",
                spec->name, spec->replicas, spec->replicas + 1, n_nodes,
                MIN(n_nodes - 1, REPLICA_FEED_MOST));
    return false;
}

bool table_lay(const Table *table, const PlacementOps *strategy, uint32_t n_replicas,
               PlacementServer *servers, uint32_t n_servers, uint32_t *places, GError **error)
{
    const uint32_t n_parts = table->map->n_parts;
    g_autofree PlacementLoad *loads = g_new(PlacementLoad, n_parts);
    const PlacementRequest request = { .table = table->spec->name,
                                       .parts = loads,
                                       .n_parts = n_parts,
                                       .n_replicas = n_replicas,
                                       .most_parts =
                                           table->spec->max_bytes > 0 ? table->most_parts : 0,
                                       .no_split = table->spec->no_split };

    for (uint32_t part = 0; part < n_parts; part++)
        loads[part] = table_part_load(table, part);
    for (uint32_t i = 0; i < n_servers; i++)
        if (servers[i].limit.of[PLACEMENT_MEMORY] != PLACEMENT_UNLIMITED &&
            !spec_knows_memory(table->spec) && table->spec->needs.memory_bytes == 0) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                        "table %s: the cluster file limits the memory of server %u, and nobody "
                        "knows how much the table takes; give its needs.memory_bytes%s",
                        table->spec->name, servers[i].number,
                        table->spec->shape == RUBATO_SHAPE_EVEN ? ", or its max_bytes" : "");
            return false;
        }
    return placement_lay(strategy, servers, n_servers, &request, places, error);
}

void table_free(Table *table)
{
    if (table == NULL)
        return;
    partition_clear(&table->partition);
    part_map_free(table->map);
    g_free((RubatoKey *)(uintptr_t)table->spec->bounds);
    g_free((RubatoKey *)(uintptr_t)table->spec->admit_keys);
    spec_free(table->spec);
    spec_free(table->given);
    g_free(table);
}

static void describe_admission(const RubatoTableSpec *spec, GString *text)
{
    g_autofree char *keys =
        g_compute_checksum_for_data(G_CHECKSUM_SHA256, (const guchar *)spec->admit_keys,
                                    spec->n_admit_keys * sizeof *spec->admit_keys);

    g_string_append_printf(text,
                           ", admit %s, admit_probability %.17g, admit_count %u, admit_bytes "
                           "%" G_GUINT64_FORMAT " a part, admit_halve_after %" G_GUINT64_FORMAT,
                           spec->admit, spec->admit_probability, spec->admit_count,
                           spec->admit_bytes, spec->admit_halve_after);
    g_string_append_printf(text, ", n_admit_keys %zu, digest of admit_keys %.12s",
                           spec->n_admit_keys, keys);
}

/* Field by field, parted by commas, so that two descriptions can be compared. */
char *table_describe(const RubatoTableSpec *spec)
{
    GString *text = g_string_new(NULL);

    g_string_append_printf(text, "dtype %s, width %u, shape %d, storage %s",
                           rubato_dtype_name(spec->dtype), spec->width, (int)spec->shape,
                           spec->storage);
    g_string_append_printf(text, ", n_keys %" G_GUINT64_FORMAT ", first_key %" G_GUINT64_FORMAT,
                           spec->n_keys, spec->first_key);
    g_string_append_printf(text, ", model %s, staleness %u, speculation %u, record %s", spec->model,
                           spec->staleness, spec->speculation, spec->record);
    g_string_append_printf(text, ", max_kept_bytes %" G_GUINT64_FORMAT ", update %s",
                           spec->max_kept_bytes, spec->update);
    rule_describe(&spec->rule, text);
    g_string_append_printf(
        text, ", aggregate %d, init %s, init_value %g, init_low %g, init_high %g",
        (int)spec->aggregate, spec->init, spec->init_value, spec->init_low, spec->init_high);
    g_string_append_printf(
        text, ", init_mean %g, init_stddev %g, init_zero_every %u, seed %" G_GUINT64_FORMAT,
        spec->init_mean, spec->init_stddev, spec->init_zero_every, spec->seed);
    g_string_append_printf(text, ", chunk_size %u, parts %u, partition %s", spec->chunk_size,
                           spec->parts, spec->partition);
    for (size_t i = 0; i < spec->n_bounds; i++)
        g_string_append_printf(text, "%s%" G_GUINT64_FORMAT, i == 0 ? ", bounds " : " ",
                               spec->bounds[i]);
    g_string_append_printf(text, ", cache %d, create_on_get %d", (int)spec->cache,
                           spec->create_on_get);
    if (spec->max_bytes > 0)
        g_string_append_printf(text, ", max_bytes %" G_GUINT64_FORMAT " a part, evict %s",
                               spec->max_bytes, spec->evict);
    if (strcmp(spec->admit, "all") != 0)
        describe_admission(spec, text);
    if (spec->replicas > 0)
        g_string_append_printf(text, ", replicas %u", spec->replicas);
    if (spec->no_split)
        g_string_append(text, ", no_split");
    g_string_append_printf(text,
                           ", needs %" G_GUINT64_FORMAT " bytes, %" G_GUINT64_FORMAT
                           " bytes/s, %" G_GUINT64_FORMAT " queries/s",
                           spec->needs.memory_bytes, spec->needs.network_bytes,
                           spec->needs.queries);
    if (spec_stamp_bytes(spec) > 0)
        g_string_append_printf(text,
                               ", expire %s, expire_after %u, expire_below %.17g, expire_decay "
                               "%.17g, expire_show_weight %.17g, expire_click_weight %.17g",
                               spec->expire, spec->expire_after, spec->expire_below,
                               spec->expire_decay, spec->expire_show_weight,
                               spec->expire_click_weight);
    return g_string_free(text, FALSE);
}
