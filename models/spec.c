/* The defaults of table specs, and the one place that refuses wrong ones.
 *
 * Thread: any. The checks go from what the messages need (the name) to what needs the other
 * fields. */
#include "models/spec.h"

#include <rubato/error.h>
#include <string.h>

#include "models/init.h"
#include "models/key_uses/key_uses.h"
#include "models/model.h"
#include "models/ragged/ragged.h"
#include "models/storage/admission/admission.h"
#include "models/storage/bounded.h"
#include "models/storage/eviction/eviction.h"
#include "models/storage/expiry/expiry.h"
#include "models/storage/storage.h"
#include "models/update/rule.h"
#include "models/update/update.h"

/* The longest name. Users type names, and names go over the wire. */
#define MAX_NAME_BYTES 255

#define DEFAULT_KEPT_BYTES (UINT64_C(64) << 20)
#define DEFAULT_ADMIT_BYTES (UINT64_C(1) << 20)
#define ADMITS_ALL "all"
#define NEVER_EXPIRES "never"

const char *spec_storage_name(const RubatoTableSpec *spec)
{
    if (spec->storage != NULL)
        return spec->storage;
    return spec->n_keys > 0 ? "dense" : "hash";
}

const char *spec_model_name(const RubatoTableSpec *spec)
{
    return spec->model == NULL ? "asp" : spec->model;
}

const char *spec_update_name(const RubatoTableSpec *spec)
{
    return spec->update == NULL ? "add" : spec->update;
}

const char *spec_init_name(const RubatoTableSpec *spec)
{
    return spec->init == NULL ? "constant" : spec->init;
}

const char *spec_record_name(const RubatoTableSpec *spec)
{
    return spec->record == NULL ? "hash" : spec->record;
}

const char *spec_evict_name(const RubatoTableSpec *spec)
{
    return spec->evict == NULL ? "lru" : spec->evict;
}

const char *spec_admit_name(const RubatoTableSpec *spec)
{
    return spec->admit == NULL ? ADMITS_ALL : spec->admit;
}

const char *spec_expire_name(const RubatoTableSpec *spec)
{
    return spec->expire == NULL ? NEVER_EXPIRES : spec->expire;
}

const char *spec_partition_name(const RubatoTableSpec *spec)
{
    if (spec->partition != NULL)
        return spec->partition;
    return rubato_table_spec_holds_range(spec) ? "range" : "hash";
}

uint32_t spec_width(const RubatoTableSpec *spec)
{
    return spec->width == 0 ? 1 : spec->width;
}

uint32_t spec_chunk_size(const RubatoTableSpec *spec)
{
    return spec->chunk_size == 0 ? 1 : spec->chunk_size;
}

uint64_t spec_max_kept_bytes(const RubatoTableSpec *spec)
{
    if (!model_traits(spec)->applies_by_clock)
        return 0;
    return spec->max_kept_bytes == 0 ? DEFAULT_KEPT_BYTES : spec->max_kept_bytes;
}

/* An admission of the user's may have a use for them, too. */
uint64_t spec_admit_bytes(const RubatoTableSpec *spec)
{
    if (spec->admit_bytes > 0 || strcmp(spec_admit_name(spec), count_admission_ops.name) != 0)
        return spec->admit_bytes;
    return DEFAULT_ADMIT_BYTES;
}

size_t spec_row_bytes(const RubatoTableSpec *spec)
{
    return spec_width(spec) * rubato_dtype_size(spec->dtype);
}

size_t spec_stamp_bytes(const RubatoTableSpec *spec)
{
    const size_t value_bytes = rubato_dtype_size(spec->dtype);

    return expiry_find(spec_expire_name(spec)) == NULL ? 0 : MAX(sizeof(uint32_t), value_bytes);
}

bool spec_counts_clocks(const RubatoTableSpec *spec)
{
    const RubatoExpiryOps *ops = expiry_find(spec_expire_name(spec));

    return ops != NULL && ops->unit == RUBATO_TIME_CLOCKS;
}

size_t spec_state_bytes(const RubatoTableSpec *spec)
{
    const RubatoUpdateOps *ops = update_find(spec_update_name(spec));
    const RubatoUpdate update = { .dtype = spec->dtype,
                                  .width = spec_width(spec),
                                  .rule = spec->rule };

    const size_t width = ops->state_width == NULL ? 0 : ops->state_width(&update);

    return width * rubato_dtype_size(spec->dtype) + spec_stamp_bytes(spec);
}

bool rubato_table_spec_holds_range(const RubatoTableSpec *spec)
{
    const RubatoStorageOps *ops = storage_find(spec_storage_name(spec));

    return ops != NULL && ops->holds_range;
}

/* How a table can be divided. What each of them does is said in tables/partition.c. */
static const struct {
    const char *name;
    bool scatters_keys, takes_bounds;
} partitions[] = {
    { .name = "range" },
    { .name = "hash", .scatters_keys = true },
    { .name = "bounds", .takes_bounds = true },
};

static const char *partition_name(size_t i)
{
    return i < G_N_ELEMENTS(partitions) ? partitions[i].name : NULL;
}

/* What `admit` may say. */
static const char *admit_name(size_t i)
{
    return i == 0 ? ADMITS_ALL : admission_name(i - 1);
}

/* What `expire` may say. */
static const char *expire_name(size_t i)
{
    return i == 0 ? NEVER_EXPIRES : expiry_name(i - 1);
}

/* The fields of a spec that hold a name: their values, and the known names. */
static const struct {
    const char *field;
    const char *(*of)(const RubatoTableSpec *spec);
    const char *(*known)(size_t i);
} named_fields[] = {
    { "storage", spec_storage_name, storage_name },
    { "model", spec_model_name, model_name },
    { "record", spec_record_name, key_uses_name },
    { "update rule", spec_update_name, update_name },
    { "initialiser", spec_init_name, init_name },
    { "partition", spec_partition_name, partition_name },
    { "order of eviction", spec_evict_name, eviction_name },
    { "admission", spec_admit_name, admit_name },
    { "expiry", spec_expire_name, expire_name },
};

static bool check_known(const RubatoTableSpec *spec, const char *field, const char *name,
                        const char *(*known)(size_t i), GError **error)
{
    g_autoptr(GString) list = g_string_new(NULL);

    for (size_t i = 0; known(i) != NULL; i++) {
        if (strcmp(known(i), name) == 0)
            return true;
        g_string_append_printf(list, "%s%s", i == 0 ? "" : ", ", known(i));
    }
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND,
                "table %s: there is no %s \"%s\"; known are %s", spec->name, field, name,
                list->str);
    return false;
}

bool spec_refuse(const RubatoTableSpec *spec, GError **error, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    g_autofree char *what = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "table %s: %s", spec->name, what);
    return false;
}

bool spec_refuse_idle(const RubatoTableSpec *spec, const char *field, const char *needs,
                      GError **error)
{
    return spec_refuse(spec, error, "%s has no effect here; it needs %s, or leave it out", field,
                       needs);
}

static bool check_name(const RubatoTableSpec *spec, GError **error)
{
    if (spec->name == NULL || spec->name[0] == '\0') {
        g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                            "a table needs a name: set the spec's name");
        return false;
    }
    if (strlen(spec->name) > MAX_NAME_BYTES) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "the table name that begins with \"%.32s\" is longer than %d bytes", spec->name,
                    MAX_NAME_BYTES);
        return false;
    }
    for (const char *c = spec->name; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            g_set_error_literal(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                                "a table name has a control character in it");
            return false;
        }
    return true;
}

static bool check_shape(const RubatoTableSpec *spec, GError **error)
{
    if (rubato_dtype_size(spec->dtype) == 0)
        return spec_refuse(spec, error, "%d is no dtype; take one of RUBATO_F32, _F64, _I32, _I64",
                           (int)spec->dtype);
    if (spec->dtype > RUBATO_U8)
        return spec_refuse(spec, error,
                           "no table holds %s; it is for tensors; take RUBATO_F32, _F64, _I32, "
                           "_I64, or _U8 in ragged rows",
                           rubato_dtype_name(spec->dtype));
    if ((unsigned)spec->shape > RUBATO_SHAPE_RAGGED)
        return spec_refuse(spec, error, "%d is no RubatoShape", (int)spec->shape);
    if (spec->dtype == RUBATO_U8 && spec->shape != RUBATO_SHAPE_RAGGED)
        return spec_refuse(spec, error,
                           "bytes (RUBATO_U8) need rows of any length: RUBATO_SHAPE_RAGGED");
    if (spec->width > SPEC_MAX_WIDTH)
        return spec_refuse(spec, error, "rows of %u values are too wide; there may be %u at most",
                           spec->width, SPEC_MAX_WIDTH);
    if (spec->chunk_size > 1 && !rubato_table_spec_holds_range(spec))
        return spec_refuse(spec, error, "chunks of %u keys need dense storage", spec->chunk_size);
    if ((unsigned)spec->cache > RUBATO_CACHE_NONE)
        return spec_refuse(spec, error, "%d is no RubatoCache", (int)spec->cache);
    return true;
}

static bool check_partition(const RubatoTableSpec *spec, GError **error)
{
    const char *partition = spec_partition_name(spec);
    size_t kind = 0;

    while (strcmp(partitions[kind].name, partition) != 0) /* it is known */
        kind++;
    if (spec->parts > SPEC_MAX_PARTS)
        return spec_refuse(spec, error,
                           "%u parts are too many; ask for at most %u, or leave them out for one "
                           "a server",
                           spec->parts, SPEC_MAX_PARTS);
    if (partitions[kind].scatters_keys && rubato_table_spec_holds_range(spec))
        return spec_refuse(spec, error,
                           "the partition \"hash\" scatters keys that dense storage wants "
                           "in ranges; take \"range\" or \"bounds\"");
    if (!partitions[kind].takes_bounds) {
        if (spec->n_bounds > 0 || spec->bounds != NULL)
            return spec_refuse(spec, error,
                               "bounds are given, but the partition is \"%s\"; take "
                               "\"bounds\" or leave them out",
                               partition);
        return true;
    }
    if (spec->n_bounds > 0 && spec->bounds == NULL)
        return spec_refuse(spec, error, "n_bounds is %zu, but bounds is NULL", spec->n_bounds);
    for (size_t i = 1; i < spec->n_bounds; i++)
        if (spec->bounds[i] < spec->bounds[i - 1])
            return spec_refuse(spec, error,
                               "bounds have to ascend, but bounds[%zu] = %" G_GUINT64_FORMAT
                               " comes after %" G_GUINT64_FORMAT,
                               i, spec->bounds[i], spec->bounds[i - 1]);
    return true;
}

static bool check_model(const RubatoTableSpec *spec, GError **error)
{
    if (model_traits(spec)->takes_announcements &&
        key_uses_find_ops(spec_record_name(spec))->wants_range &&
        !rubato_table_spec_holds_range(spec))
        return spec_refuse(spec, error, "the record \"%s\" needs dense storage; take \"hash\"",
                           spec_record_name(spec));
    if (spec->max_kept_bytes > 0 && !model_traits(spec)->applies_by_clock)
        return spec_refuse(
            spec, error, "max_kept_bytes is given, but \"%s\" applies Adds at once and keeps none",
            spec_model_name(spec));
    return true;
}

static bool has_init(const RubatoTableSpec *spec, const char *init)
{
    return strcmp(spec_init_name(spec), init) == 0;
}

/* Whether the fields of that built-in admission may have an effect. Those of a user's may take
 * any. */
static bool may_admit_by(const RubatoTableSpec *spec, const RubatoAdmissionOps *ops)
{
    const RubatoAdmissionOps *chosen = admission_find(spec_admit_name(spec));

    return chosen == ops || (chosen != NULL && chosen != &count_admission_ops &&
                             chosen != &list_admission_ops && chosen != &probability_admission_ops);
}

static bool check_admission(const RubatoTableSpec *spec, GError **error)
{
    const RubatoAdmissionOps *ops = admission_find(spec_admit_name(spec));

    if (ops == NULL) /* all */
        return true;
    if (spec->create_on_get)
        return spec_refuse(spec, error,
                           "create_on_get makes rows that admit leaves out; leave out one of them");
    return ops->check == NULL || ops->check(spec, error);
}

/* The same of a built-in expiry. */
static bool may_expire_by(const RubatoTableSpec *spec, const RubatoExpiryOps *ops)
{
    const RubatoExpiryOps *chosen = expiry_find(spec_expire_name(spec));

    return chosen == ops || (chosen != NULL && chosen != &clocks_expiry_ops &&
                             chosen != &seconds_expiry_ops && chosen != &score_expiry_ops);
}

static bool check_expiry(const RubatoTableSpec *spec, GError **error)
{
    const RubatoExpiryOps *ops = expiry_find(spec_expire_name(spec));

    if (ops == NULL) /* never */
        return true;
    if (spec->create_on_get)
        return spec_refuse(
            spec, error,
            "create_on_get makes rows that nobody has written, and expire tells when "
            "rows were written; leave out one of them");
    return ops->check == NULL || ops->check(spec, error);
}

/* A field that has no effect is refused, because its user expects one. Storages refuse their own
 * such fields. */
static bool check_effects(const RubatoTableSpec *spec, GError **error)
{
    const RubatoModelTraits *model = model_traits(spec);
    const RubatoExpiryOps *expiry = expiry_find(spec_expire_name(spec));
    const bool is_uniform = has_init(spec, "uniform"),
               is_normal = has_init(spec, "normal") || has_init(spec, "zero_normal");
    const struct {
        bool is_given, has_effect;
        const char *field, *needs;
    } fields[] = {
        { spec->max_bytes > 0, storage_find_bounded(spec_storage_name(spec)) != NULL, "max_bytes",
          "the storage \"hash\"" },
        { spec->evict != NULL, spec->max_bytes > 0, "evict", "max_bytes" },
        { eviction_find(spec_evict_name(spec))->choose == NULL,
          expiry != NULL && expiry->score != NULL, "evict = \"score\"", "expire = \"score\"" },
        { admission_find(spec_admit_name(spec)) != NULL,
          storage_find(spec_storage_name(spec))->find_or_admit != NULL, "admit",
          "the storage \"hash\"" },
        { spec->admit_probability != 0, may_admit_by(spec, &probability_admission_ops),
          "admit_probability", "admit = \"probability\"" },
        { spec->admit_count != 0, may_admit_by(spec, &count_admission_ops), "admit_count",
          "admit = \"count\"" },
        { spec->admit_bytes != 0, may_admit_by(spec, &count_admission_ops), "admit_bytes",
          "admit = \"count\"" },
        { spec->admit_halve_after != 0, may_admit_by(spec, &count_admission_ops),
          "admit_halve_after", "admit = \"count\"" },
        { spec->n_admit_keys != 0, may_admit_by(spec, &list_admission_ops), "n_admit_keys",
          "admit = \"list\"" },
        { spec->admit_keys != NULL, may_admit_by(spec, &list_admission_ops), "admit_keys",
          "admit = \"list\"" },
        { expiry != NULL, storage_find_bounded(spec_storage_name(spec)) != NULL, "expire",
          "the storage \"hash\"" },
        { spec->expire_after != 0,
          may_expire_by(spec, &clocks_expiry_ops) || may_expire_by(spec, &seconds_expiry_ops),
          "expire_after", "expire = \"clocks\" or \"seconds\"" },
        { spec->expire_below != 0, may_expire_by(spec, &score_expiry_ops), "expire_below",
          "expire = \"score\"" },
        { spec->expire_decay != 0, may_expire_by(spec, &score_expiry_ops), "expire_decay",
          "expire = \"score\"" },
        { spec->expire_show_weight != 0, may_expire_by(spec, &score_expiry_ops),
          "expire_show_weight", "expire = \"score\"" },
        { spec->expire_click_weight != 0, may_expire_by(spec, &score_expiry_ops),
          "expire_click_weight", "expire = \"score\"" },
        { spec->needs.memory_bytes != 0, !spec_knows_memory(spec), "needs.memory_bytes",
          "a table of which nobody knows how large it grows: hash storage without max_bytes, or "
          "ragged rows" },
        { spec->staleness > 0, model->lead == RUBATO_LEAD_STALENESS, "staleness",
          "a model that bounds it, such as \"ssp\"" },
        { spec->speculation > 0, model->takes_announcements, "speculation",
          "the model \"sparse_ssp\"" },
        { spec->record != NULL, model->takes_announcements, "record", "the model \"sparse_ssp\"" },
        { spec->cache == RUBATO_CACHE_ALL, model->rows_may_be_cached, "cache",
          "a model under which rows are cached, such as \"ssp\"" },
        { spec->init_value != 0, has_init(spec, "constant"), "init_value",
          "the initialiser \"constant\"" },
        { spec->init_low != 0, is_uniform, "init_low", "the initialiser \"uniform\"" },
        { spec->init_high != 0, is_uniform, "init_high", "the initialiser \"uniform\"" },
        { spec->init_mean != 0, is_normal, "init_mean",
          "the initialiser \"normal\" or \"zero_normal\"" },
        { spec->init_stddev != 0, is_normal, "init_stddev",
          "the initialiser \"normal\" or \"zero_normal\"" },
        { spec->init_zero_every != 0, has_init(spec, "zero_normal"), "init_zero_every",
          "the initialiser \"zero_normal\"" },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(fields); i++)
        if (fields[i].is_given && !fields[i].has_effect)
            return spec_refuse_idle(spec, fields[i].field, fields[i].needs, error);
    return true;
}

/* Whether the storage tells how much memory a table takes. */
bool spec_knows_memory(const RubatoTableSpec *spec)
{
    return spec->max_bytes > 0 ||
           (rubato_table_spec_holds_range(spec) && spec->shape == RUBATO_SHAPE_EVEN);
}

/* So that sums over parts and tables stay far from the largest number. */
static bool check_needs(const RubatoTableSpec *spec, GError **error)
{
    const struct {
        const char *field;
        uint64_t need;
    } needs[] = { { "needs.memory_bytes", spec->needs.memory_bytes },
                  { "needs.network_bytes", spec->needs.network_bytes },
                  { "needs.queries", spec->needs.queries } };

    for (size_t i = 0; i < G_N_ELEMENTS(needs); i++)
        if (needs[i].need > SPEC_MAX_NEED)
            return spec_refuse(spec, error,
                               "%s is %" G_GUINT64_FORMAT "; there may be %" G_GUINT64_FORMAT
                               " at most",
                               needs[i].field, needs[i].need, SPEC_MAX_NEED);
    return true;
}

bool spec_check_share(const RubatoTableSpec *spec, uint64_t share, uint64_t admit_bytes,
                      GError **error)
{
    const size_t row_bytes = spec_row_bytes(spec) + spec_state_bytes(spec);
    uint64_t least;

    if (spec->max_bytes == 0)
        return true;
    least =
        storage_find_bounded(spec_storage_name(spec))->least_bytes(spec, row_bytes) + admit_bytes;
    if (share >= least)
        return true;
    return spec_refuse(spec, error,
                       "max_bytes is %" G_GUINT64_FORMAT ", of which a part has %" G_GUINT64_FORMAT
                       "; with rows of %zu bytes it needs %" G_GUINT64_FORMAT " at least",
                       spec->max_bytes, share, row_bytes, least);
}

bool spec_check(const RubatoTableSpec *spec, GError **error)
{
    if (!check_name(spec, error))
        return false;
    for (size_t i = 0; i < G_N_ELEMENTS(named_fields); i++)
        if (!check_known(spec, named_fields[i].field, named_fields[i].of(spec),
                         named_fields[i].known, error))
            return false;
    if (!check_shape(spec, error) || !check_partition(spec, error) || !check_model(spec, error) ||
        !check_effects(spec, error) || !check_admission(spec, error) || !check_expiry(spec, error))
        return false;

    const RubatoStorageOps *storage = storage_find(spec_storage_name(spec));
    return (storage->check == NULL || storage->check(spec, error)) && rule_check(spec, error) &&
           init_check(spec, error) && ragged_check_spec(spec, error) && check_needs(spec, error) &&
           spec_check_share(spec, spec->max_bytes, spec_admit_bytes(spec), error);
}
