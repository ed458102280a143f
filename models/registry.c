/* The registry of models, storages, update rules, handlers, admissions, expiries and kinds of
 * streams.
 *
 * Threads: any; a lock guards the one registry of the process. Lookups are rare: when a table is
 * made and when a task begins. */
#include "models/registry.h"

#include <pthread.h>
#include <rubato/error.h>
#include <string.h>

#include "io/stream/stream_kind.h"
#include "models/handlers/handler.h"
#include "models/model.h"
#include "models/storage/admission/admission.h"
#include "models/storage/expiry/expiry.h"
#include "models/storage/storage.h"
#include "models/update/update.h"

enum {
    MAX_OF_A_KIND = STREAM_MOST_KINDS,
    MAX_NAME_BYTES = 31,
    DIGEST_SHOWN = 12, /* hexadecimal digits */
};

typedef struct {
    const char *name;
    const void *ops;
} Entry;

static struct {
    pthread_mutex_t lock;
    unsigned n_engines;
    size_t n[REGISTRY_N_KINDS];
    Entry entries[REGISTRY_N_KINDS][MAX_OF_A_KIND];
} registry = { .lock = PTHREAD_MUTEX_INITIALIZER };

static const char *const kind_names[REGISTRY_N_KINDS] = {
    [REGISTRY_MODELS] = "model",
    [REGISTRY_STORAGES] = "storage",
    [REGISTRY_UPDATE_RULES] = "update rule",
    [REGISTRY_HANDLERS] = "handler",
    [REGISTRY_ADMISSIONS] = "admission",
    [REGISTRY_EXPIRIES] = "expiry",
    [REGISTRY_STREAMS] = "kind of stream",
};

/* ---- looking up ---- */

/* The lock is held. */
static const Entry *find_entry(RegistryKind kind, const char *name)
{
    for (size_t i = 0; i < registry.n[kind]; i++)
        if (strcmp(registry.entries[kind][i].name, name) == 0)
            return &registry.entries[kind][i];
    return NULL;
}

const void *registry_find(RegistryKind kind, const char *name)
{
    pthread_mutex_lock(&registry.lock);
    const Entry *entry = find_entry(kind, name);
    pthread_mutex_unlock(&registry.lock);
    return entry == NULL ? NULL : entry->ops; /* entries stay as they are */
}

const char *registry_name(RegistryKind kind, size_t i)
{
    pthread_mutex_lock(&registry.lock);
    const char *name = i < registry.n[kind] ? registry.entries[kind][i].name : NULL;
    pthread_mutex_unlock(&registry.lock);
    return name;
}

void registry_hold(void)
{
    pthread_mutex_lock(&registry.lock);
    registry.n_engines++;
    pthread_mutex_unlock(&registry.lock);
}

void registry_release(void)
{
    pthread_mutex_lock(&registry.lock);
    registry.n_engines--;
    pthread_mutex_unlock(&registry.lock);
}

/* ---- registering ---- */

G_GNUC_PRINTF(4, 5)
static bool refuse(RegistryKind kind, const char *name, GError **error, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    g_autofree char *what = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID, "the %s \"%s\" cannot be registered: %s",
                kind_names[kind], name == NULL ? "" : name, what);
    return false;
}

static bool check_name(RegistryKind kind, const char *name, GError **error)
{
    const size_t n = name == NULL ? 0 : strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-");

    if (n == 0 || n > MAX_NAME_BYTES || name[n] != '\0')
        return refuse(kind, name, error,
                      "its name has to be 1 to %d of the characters a-z, 0-9, _ and -",
                      MAX_NAME_BYTES);
    return true;
}

static bool add(RegistryKind kind, const char *name, const void *ops, bool is_built_in,
                GError **error)
{
    bool added = false;

    pthread_mutex_lock(&registry.lock);
    const Entry *entry = find_entry(kind, name);
    if (entry != NULL && entry->ops == ops)
        added = true;
    else if (entry != NULL || is_built_in)
        refuse(kind, name, error, "there is one of that name already");
    else if (registry.n_engines > 0)
        refuse(kind, name, error, "the process has an engine; register before making one");
    else if (registry.n[kind] == MAX_OF_A_KIND)
        refuse(kind, name, error, "there are %d registered ones already", MAX_OF_A_KIND);
    else {
        registry.entries[kind][registry.n[kind]++] = (Entry){ name, ops };
        added = true;
    }
    pthread_mutex_unlock(&registry.lock);
    return added;
}

bool rubato_register_model(const RubatoModelOps *ops, GError **error)
{
    const RegistryKind kind = REGISTRY_MODELS;

    g_return_val_if_fail(ops != NULL, false);
    if (!check_name(kind, ops->name, error))
        return false;
    if (ops->create == NULL || ops->destroy == NULL || ops->get == NULL || ops->add == NULL)
        return refuse(kind, ops->name, error, "it needs create, destroy, get and add");
    if ((unsigned)ops->traits.lead > RUBATO_LEAD_UNBOUNDED)
        return refuse(kind, ops->name, error, "%d is no RubatoLead", (int)ops->traits.lead);
    if (ops->traits.lazy_clocks && ops->traits.per_worker_clocks)
        return refuse(kind, ops->name, error,
                      "lazy_clocks and per_worker_clocks exclude each other");
    return add(kind, ops->name, ops, model_find(ops->name) != NULL, error);
}

bool rubato_register_storage(const RubatoStorageOps *ops, GError **error)
{
    const RegistryKind kind = REGISTRY_STORAGES;

    g_return_val_if_fail(ops != NULL, false);
    if (!check_name(kind, ops->name, error))
        return false;
    if (ops->create == NULL || ops->destroy == NULL || ops->run == NULL || ops->size == NULL)
        return refuse(kind, ops->name, error, "it needs create, destroy, run and size");
    if (!ops->holds_range && (ops->find == NULL || ops->find_or_create == NULL))
        return refuse(kind, ops->name, error,
                      "it needs find and find_or_create, since it does not hold a range");
    return add(kind, ops->name, ops, storage_find(ops->name) != NULL, error);
}

bool rubato_register_update_rule(const RubatoUpdateOps *ops, GError **error)
{
    const RegistryKind kind = REGISTRY_UPDATE_RULES;

    g_return_val_if_fail(ops != NULL, false);
    if (!check_name(kind, ops->name, error))
        return false;
    if (ops->apply_rows == NULL)
        return refuse(kind, ops->name, error, "it needs apply_rows");
    if (ops->apply != NULL && ops->state_width != NULL)
        return refuse(kind, ops->name, error, "a rule with state can have no apply");
    return add(kind, ops->name, ops, update_find(ops->name) != NULL, error);
}

bool rubato_register_handler(const RubatoHandlerOps *ops, GError **error)
{
    const RegistryKind kind = REGISTRY_HANDLERS;

    g_return_val_if_fail(ops != NULL, false);
    if (!check_name(kind, ops->name, error))
        return false;
    if (ops->run == NULL)
        return refuse(kind, ops->name, error, "it needs run");
    if ((unsigned)ops->access > RUBATO_ACCESS_WRITES)
        return refuse(kind, ops->name, error, "%d is no RubatoAccess", (int)ops->access);
    if (ops->access == RUBATO_ACCESS_WRITES && ops->reduce != NULL)
        return refuse(kind, ops->name, error, "it writes, so it has no results to reduce");
    return add(kind, ops->name, ops, handler_find(ops->name) != NULL, error);
}

bool rubato_register_admission(const RubatoAdmissionOps *ops, GError **error)
{
    const RegistryKind kind = REGISTRY_ADMISSIONS;

    g_return_val_if_fail(ops != NULL, false);
    if (!check_name(kind, ops->name, error))
        return false;
    if (ops->admits == NULL)
        return refuse(kind, ops->name, error, "it needs admits");
    if ((ops->create == NULL) != (ops->destroy == NULL))
        return refuse(kind, ops->name, error, "it needs both create and destroy, or none of them");
    return add(kind, ops->name, ops, admission_find(ops->name) != NULL, error);
}

bool rubato_register_expiry(const RubatoExpiryOps *ops, GError **error)
{
    const RegistryKind kind = REGISTRY_EXPIRIES;

    g_return_val_if_fail(ops != NULL, false);
    if (!check_name(kind, ops->name, error))
        return false;
    if (ops->expires == NULL)
        return refuse(kind, ops->name, error, "it needs expires");
    if ((unsigned)ops->unit > RUBATO_TIME_SECONDS)
        return refuse(kind, ops->name, error, "%d is no RubatoTimeUnit", (int)ops->unit);
    return add(kind, ops->name, ops, expiry_find(ops->name) != NULL, error);
}

bool rubato_register_stream(const RubatoStreamOps *ops, GError **error)
{
    const RegistryKind kind = REGISTRY_STREAMS;

    g_return_val_if_fail(ops != NULL, false);
    if (!check_name(kind, ops->name, error))
        return false;
    if (ops->form == NULL || ops->find_directory == NULL)
        return refuse(kind, ops->name, error, "it needs form and find_directory");
    if (ops->writer != NULL &&
        (ops->writer->open == NULL || ops->writer->written == NULL || ops->writer->close == NULL))
        return refuse(kind, ops->name, error, "its writer needs open, written and close");
    if (ops->reader != NULL && (ops->reader->open == NULL || ops->reader->close == NULL))
        return refuse(kind, ops->name, error, "its reader needs open and close");
    if (!add(kind, ops->name, ops, stream_kind_find(ops->name) != NULL, error))
        return false;
    stream_kind_add(ops); /* followers find it there: the registry lies above them */
    return true;
}

const char *rubato_model_name(size_t i)
{
    return model_name(i);
}

const char *rubato_storage_name(size_t i)
{
    return storage_name(i);
}

const char *rubato_update_rule_name(size_t i)
{
    return update_name(i);
}

const char *rubato_handler_name(size_t i)
{
    return handler_name(i);
}

const char *rubato_admission_name(size_t i)
{
    return admission_name(i);
}

const char *rubato_expiry_name(size_t i)
{
    return expiry_name(i);
}

const char *rubato_stream_name(size_t i)
{
    return stream_kind_name(i);
}

const RubatoUpdateTraits *rubato_update_rule_traits(const char *update)
{
    const RubatoUpdateOps *ops = update_find(update == NULL ? "add" : update);

    return ops == NULL ? NULL : &ops->traits;
}

/* ---- what all nodes must have in common ---- */

static void describe_model(GString *text, const RubatoModelTraits *traits)
{
    g_string_append_printf(text, "%d %d %d %d %d %d", (int)traits->lead, traits->per_worker_clocks,
                           traits->lazy_clocks, traits->rows_may_be_cached,
                           traits->applies_by_clock, traits->takes_announcements);
}

static void describe_update_rule(GString *text, const RubatoUpdateTraits *traits)
{
    const RubatoRule *rule = &traits->defaults;
    const double numbers[] = { rule->learning_rate,
                               rule->momentum,
                               rule->beta1,
                               rule->beta2,
                               rule->decay,
                               rule->epsilon,
                               rule->beta,
                               rule->l1,
                               rule->l2,
                               rule->clip_value,
                               rule->clip_norm,
                               rule->weight_decay,
                               rule->initial_accumulator,
                               rule->max_gradient };

    g_string_append_printf(text, "%d %d %d %u", traits->replayable, traits->takes_gradients,
                           traits->may_be_row_wise, traits->hypers);
    for (size_t i = 0; i < G_N_ELEMENTS(numbers); i++)
        g_string_append_printf(text, " %.17g", numbers[i]);
}

/* "model quorum 0123456789ab" */
static char *describe_entry(RegistryKind kind, const Entry *entry)
{
    g_autoptr(GString) traits = g_string_new(NULL);

    switch (kind) {
    case REGISTRY_MODELS:
        describe_model(traits, &((const RubatoModelOps *)entry->ops)->traits);
        break;
    case REGISTRY_STORAGES:
        g_string_append_printf(traits, "%d", ((const RubatoStorageOps *)entry->ops)->holds_range);
        break;
    case REGISTRY_UPDATE_RULES:
        describe_update_rule(traits, &((const RubatoUpdateOps *)entry->ops)->traits);
        break;
    case REGISTRY_HANDLERS:
        g_string_append_printf(traits, "%d", (int)((const RubatoHandlerOps *)entry->ops)->access);
        break;
    case REGISTRY_ADMISSIONS: /* it has no traits */
        break;
    case REGISTRY_EXPIRIES:
        g_string_append_printf(traits, "%d", (int)((const RubatoExpiryOps *)entry->ops)->unit);
        break;
    case REGISTRY_STREAMS:
        g_string_append_printf(traits, "%d", ((const RubatoStreamOps *)entry->ops)->writer != NULL);
        break;
    case REGISTRY_N_KINDS:
        g_assert_not_reached();
    }
    g_autofree char *digest = g_compute_checksum_for_string(G_CHECKSUM_SHA256, traits->str, -1);
    return g_strdup_printf("%s %s %.*s", kind_names[kind], entry->name, DIGEST_SHOWN, digest);
}

static gint compare_lines(gconstpointer a, gconstpointer b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

char *registry_describe(void)
{
    g_autoptr(GPtrArray) lines = g_ptr_array_new_with_free_func(g_free);

    pthread_mutex_lock(&registry.lock);
    for (RegistryKind kind = 0; kind < REGISTRY_N_KINDS; kind++)
        for (size_t i = 0; i < registry.n[kind]; i++)
            g_ptr_array_add(lines, describe_entry(kind, &registry.entries[kind][i]));
    pthread_mutex_unlock(&registry.lock);
    g_ptr_array_sort(lines, compare_lines);
    g_ptr_array_add(lines, NULL);
    return g_strjoinv("\n", (char **)lines->pdata);
}

/* The line without its digest. (transfer full) */
static char *subject_of(const char *line)
{
    const char *space = strrchr(line, ' ');

    return space == NULL ? g_strdup(line) : g_strndup(line, (size_t)(space - line));
}

static bool has_subject(char *const *lines, const char *subject)
{
    const size_t n = strlen(subject);

    for (; *lines != NULL; lines++)
        if (strncmp(*lines, subject, n) == 0 && (*lines)[n] == ' ')
            return true;
    return false;
}

/* An entry that the first has and the second has not; NULL: there is none. */
static char *find_missing(char *const *lines, const char *name, char *const *others,
                          const char *other_name)
{
    for (; *lines != NULL; lines++) {
        if (**lines == '\0' || g_strv_contains((const char *const *)others, *lines))
            continue;
        g_autofree char *subject = subject_of(*lines);

        if (has_subject(others, subject))
            return g_strdup_printf("the traits of the %s of %s are others than those of %s",
                                   subject, name, other_name);
        return g_strdup_printf("%s has registered the %s, %s has not", name, subject, other_name);
    }
    return NULL;
}

char *registry_compare(const char *theirs, const char *their_name, const char *ours,
                       const char *our_name)
{
    g_auto(GStrv) their_lines = g_strsplit(theirs, "\n", -1);
    g_auto(GStrv) our_lines = g_strsplit(ours, "\n", -1);

    if (strcmp(theirs, ours) == 0)
        return NULL;
    char *difference = find_missing(their_lines, their_name, our_lines, our_name);

    if (difference == NULL)
        difference = find_missing(our_lines, our_name, their_lines, their_name);
    return difference != NULL ? difference
                              : g_strdup_printf("%s and %s list what is registered in another way",
                                                their_name, our_name);
}
