/* Tables as lines of text. A line is a GVariant in its text form: by name, what the table's maker
 * gave. Members that are not in the array below are passed over. spec_check judges the values.
 *
 * Names are bytes, since they need not be UTF-8; real numbers are the bits of a double, since text
 * of small ones is not read back.
 *
 * Runs on the caller's thread and keeps no state. */
#include "engine/control/told_table.h"

#include "engine/control/place_text.h"

#include <rubato/error.h>
#include <stddef.h>
#include <string.h>

/* More tables than a run makes. A server's list of tables is as long as the largest number. */
#define MOST_TABLES (1u << 20)

typedef enum {
    FIELD_BOOL,
    FIELD_UINT32, /* enumerators, too */
    FIELD_UINT64,
    FIELD_DOUBLE,
    FIELD_NAME,
} FieldType;

typedef struct {
    const char *name;
    FieldType type;
    size_t offset; /* in the spec */
} Field;

#define FIELD(type, member)                                      \
    {                                                            \
#member, FIELD_##type, offsetof(RubatoTableSpec, member) \
    }

/* All members but the lists. */
static const Field fields[] = {
    FIELD(NAME, name),
    FIELD(UINT32, dtype),
    FIELD(UINT32, width),
    FIELD(UINT32, shape),
    FIELD(NAME, storage),
    FIELD(UINT64, first_key),
    FIELD(UINT64, n_keys),
    FIELD(BOOL, create_on_get),
    FIELD(UINT64, max_bytes),
    FIELD(NAME, evict),
    FIELD(NAME, admit),
    FIELD(DOUBLE, admit_probability),
    FIELD(UINT32, admit_count),
    FIELD(UINT64, admit_bytes),
    FIELD(UINT64, admit_halve_after),
    FIELD(NAME, expire),
    FIELD(UINT32, expire_after),
    FIELD(DOUBLE, expire_below),
    FIELD(DOUBLE, expire_decay),
    FIELD(DOUBLE, expire_show_weight),
    FIELD(DOUBLE, expire_click_weight),
    FIELD(NAME, model),
    FIELD(UINT32, staleness),
    FIELD(UINT32, speculation),
    FIELD(NAME, record),
    FIELD(UINT64, max_kept_bytes),
    FIELD(NAME, update),
    FIELD(DOUBLE, rule.learning_rate),
    FIELD(DOUBLE, rule.momentum),
    FIELD(DOUBLE, rule.beta1),
    FIELD(DOUBLE, rule.beta2),
    FIELD(DOUBLE, rule.decay),
    FIELD(DOUBLE, rule.epsilon),
    FIELD(DOUBLE, rule.beta),
    FIELD(DOUBLE, rule.l1),
    FIELD(DOUBLE, rule.l2),
    FIELD(DOUBLE, rule.clip_value),
    FIELD(DOUBLE, rule.clip_norm),
    FIELD(DOUBLE, rule.weight_decay),
    FIELD(DOUBLE, rule.initial_accumulator),
    FIELD(DOUBLE, rule.max_gradient),
    FIELD(UINT32, rule.on_bad_gradient),
    FIELD(BOOL, rule.row_wise),
    FIELD(UINT32, aggregate),
    FIELD(NAME, init),
    FIELD(DOUBLE, init_value),
    FIELD(DOUBLE, init_low),
    FIELD(DOUBLE, init_high),
    FIELD(DOUBLE, init_mean),
    FIELD(DOUBLE, init_stddev),
    FIELD(UINT32, init_zero_every),
    FIELD(UINT64, seed),
    FIELD(UINT32, chunk_size),
    FIELD(UINT32, parts),
    FIELD(UINT64, needs.memory_bytes),
    FIELD(UINT64, needs.network_bytes),
    FIELD(UINT64, needs.queries),
    FIELD(BOOL, no_split),
    FIELD(NAME, partition),
    FIELD(UINT32, cache),
    FIELD(UINT32, replicas),
};

static GVariant *variant_of(const RubatoTableSpec *spec, const Field *field)
{
    const void *const at = (const char *)spec + field->offset;
    uint32_t number;
    uint64_t large;
    double real;

    switch (field->type) {
    case FIELD_BOOL:
        return *(const bool *)at ? g_variant_new_boolean(true) : NULL;
    case FIELD_UINT32:
        memcpy(&number, at, sizeof number);
        return number != 0 ? g_variant_new_uint32(number) : NULL;
    case FIELD_UINT64:
        memcpy(&large, at, sizeof large);
        return large != 0 ? g_variant_new_uint64(large) : NULL;
    case FIELD_DOUBLE:
        memcpy(&real, at, sizeof real);
        memcpy(&large, &real, sizeof large);
        return large != 0 ? g_variant_new_uint64(large) : NULL;
    default:
        return *(const char *const *)at != NULL ? g_variant_new_bytestring(*(const char *const *)at)
                                                : NULL;
    }
}

static void add_keys(GVariantDict *dict, const char *name, const RubatoKey *keys, size_t n)
{
    if (n > 0)
        g_variant_dict_insert_value(
            dict, name, g_variant_new_fixed_array(G_VARIANT_TYPE_UINT64, keys, n, sizeof *keys));
}

void told_table_write(GString *text, const Table *table)
{
    GVariantDict dict;

    g_variant_dict_init(&dict, NULL);
    g_variant_dict_insert(&dict, "table", "u", table->id);
    g_variant_dict_insert(&dict, "hash_seed", "t", table->hash_seed);
    if (table->map->n_replicas > 0)
        g_variant_dict_insert(&dict, "map_replicas", "u", table->map->n_replicas);
    for (size_t i = 0; i < G_N_ELEMENTS(fields); i++) {
        GVariant *const value = variant_of(table->given, &fields[i]);

        if (value != NULL)
            g_variant_dict_insert_value(&dict, fields[i].name, value);
    }
    add_keys(&dict, "bounds", table->given->bounds, table->given->n_bounds);
    add_keys(&dict, "admit_keys", table->given->admit_keys, table->given->n_admit_keys);
    g_autoptr(GVariant) line = g_variant_ref_sink(g_variant_dict_end(&dict));
    g_variant_print_string(line, text, /* type_annotate= */ TRUE);
    g_string_append_c(text, '\n');
}

/* ---- from text ---- */

static bool refuse(GError **error, const char *what)
{
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT, "a line that is to be a table: %s", what);
    return false;
}

/* False: the value is of another type. */
static bool set_field(RubatoTableSpec *spec, const Field *field, GVariant *value)
{
    static const char *const types[] = { [FIELD_BOOL] = "b",
                                         [FIELD_UINT32] = "u",
                                         [FIELD_UINT64] = "t",
                                         [FIELD_DOUBLE] = "t",
                                         [FIELD_NAME] = "ay" };
    char *const at = (char *)spec + field->offset;

    if (!g_variant_is_of_type(value, G_VARIANT_TYPE(types[field->type])))
        return false;
    switch (field->type) {
    case FIELD_BOOL:
        *(bool *)at = g_variant_get_boolean(value);
        break;
    case FIELD_UINT32:
        memcpy(at, &(uint32_t){ g_variant_get_uint32(value) }, sizeof(uint32_t));
        break;
    case FIELD_UINT64:
        memcpy(at, &(uint64_t){ g_variant_get_uint64(value) }, sizeof(uint64_t));
        break;
    case FIELD_DOUBLE:
        memcpy(at, &(uint64_t){ g_variant_get_uint64(value) }, sizeof(double));
        break;
    default: /* it lives as long as the value */
        *(const char **)at = g_variant_get_bytestring(value);
        break;
    }
    return true;
}

static bool set_keys(GVariant *line, const char *name, const RubatoKey **keys, size_t *n)
{
    g_autoptr(GVariant) value = g_variant_lookup_value(line, name, NULL);

    if (value == NULL)
        return true;
    if (!g_variant_is_of_type(value, G_VARIANT_TYPE("at")))
        return false;
    *keys = g_variant_get_fixed_array(value, n, sizeof **keys);
    return true;
}

/* What the spec points to is the line's. */
static bool read_spec(GVariant *line, RubatoTableSpec *spec)
{
    for (size_t i = 0; i < G_N_ELEMENTS(fields); i++) {
        g_autoptr(GVariant) value = g_variant_lookup_value(line, fields[i].name, NULL);

        if (value != NULL && !set_field(spec, &fields[i], value))
            return false;
    }
    return set_keys(line, "bounds", &spec->bounds, &spec->n_bounds) &&
           set_keys(line, "admit_keys", &spec->admit_keys, &spec->n_admit_keys);
}

static Table *make(GVariant *line, const ServerCount *servers, GError **error)
{
    RubatoTableSpec spec = { 0 };
    uint32_t id, n_replicas = 0;
    uint64_t hash_seed;

    (void)g_variant_lookup(line, "map_replicas", "u", &n_replicas);
    if (!g_variant_lookup(line, "table", "u", &id) || id >= MOST_TABLES ||
        !g_variant_lookup(line, "hash_seed", "t", &hash_seed) || !read_spec(line, &spec) ||
        n_replicas > spec.replicas || n_replicas >= PLACE_MOST_SERVERS) {
        refuse(error, "a member is missing, or not what it has to be");
        return NULL;
    }
    Table *const table = table_new(&spec, servers, error);
    if (table == NULL)
        return NULL;
    table->id = id;
    table->hash_seed = hash_seed;
    if (n_replicas > 0) {
        g_autofree uint32_t *nowhere = g_new0(uint32_t, (size_t)table->map->n_parts * n_replicas);

        part_map_set_replicas(table->map, n_replicas, nowhere);
    }
    return table;
}

Table *told_table_read(const char **text, const ServerCount *servers, GError **error)
{
    const char *const end = strchr(*text, '\n');
    g_autoptr(GError) fault = NULL;

    if (end == NULL) {
        refuse(error, "it has no end");
        return NULL;
    }
    g_autoptr(GVariant) line = g_variant_parse(G_VARIANT_TYPE_VARDICT, *text, end, NULL, &fault);
    if (line == NULL) {
        refuse(error, fault->message);
        return NULL;
    }
    Table *const table = make(line, servers, error);
    if (table != NULL)
        *text = end + 1;
    return table;
}
