/* Following a stream.
 *
 * The thread that advances reads a version aside, and changes the tables under the lock, for
 * writing: it exchanges rows, or takes other tables. Readers hold the lock for reading. So each of
 * their calls sees one version.
 *
 * What comes next. A version that builds on the follower's own, by number and seed, is applied to
 * it. One with all rows, whose number is the next one, is read beside it; so is one whose tables
 * have other numbers of parts. In all other cases something was missed: the newest version is read,
 * with those that it builds on. A version that is damaged or cannot be read ends the chain: the
 * follower goes on with the newest one behind it that has all rows. If that happens to the newest
 * one when it begins anew, it takes an older one. A version that is held back is as if it were not
 * there.
 *
 * Why each wait ends: for readers, because they hold the lock for a call alone; new readers wait
 * behind a writer that waits. For a version, at the caller's time, or when the directory is looked
 * into again (folder_watch.h).
 *
 * Threads: as the header says. */
#include <math.h>
#include <pthread.h>
#include <rubato/error.h>
#include <rubato/stream.h>
#include <string.h>

#include "io/store/snapshot_folder.h"
#include "io/stream/folder_watch.h"
#include "io/stream/stream_kind.h"
#include "io/stream/version_tables.h"

#define UNDO_BYTES ((uint64_t)256 << 20)

struct RubatoFollower {
    /* immutable */
    const RubatoStreamReaderOps *reader_ops; /* NULL: the versions are where the run writes them */
    RubatoStreamReader *reader;              /* NULL likewise */
    char *directory;
    int64_t hold_back_us;
    uint64_t undo_bytes;

    /* of the thread that advances */
    FolderWatch watch;
    char **names; /* of tables; NULL: all of the first version that it will read */
    GQueue undo;  /* of VersionStep: the newest first, which takes the tables one version back */
    uint64_t n_undo_bytes;
    GError *fault;      /* of a version that is no use; NULL: none */
    uint64_t faulty;    /* its number */
    uint64_t looked_at; /* the newest version that was not held back then */

    pthread_rwlock_t lock;
    /* guarded by lock; written by the thread that advances alone */
    VersionTables *tables; /* NULL: version 0 */
};

/* ---- its life ---- */

static void init_lock(pthread_rwlock_t *lock)
{
    pthread_rwlockattr_t attributes;

    /* Many readers that come all the time do not keep a version from being applied. */
    pthread_rwlockattr_init(&attributes);
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(lock, &attributes);
    pthread_rwlockattr_destroy(&attributes);
}

/* Where its versions are, and who brings them there. */
static bool open_stream(RubatoFollower *follower, const char *uri, GError **error)
{
    const char *rest;
    const RubatoStreamOps *const kind = stream_kind_of(uri, &rest, error);

    if (kind == NULL)
        return false;
    if (kind->reader == NULL) {
        follower->directory = stream_find_directory(uri, error);
        return follower->directory != NULL;
    }
    follower->reader = kind->reader->open(rest, &follower->directory, error);
    if (follower->reader == NULL) {
        g_prefix_error(error, "a stream to \"%s\": ", uri);
        return false;
    }
    follower->reader_ops = kind->reader;
    return true;
}

RubatoFollower *rubato_follower_new(const RubatoFollowerSpec *spec, GError **error)
{
    RubatoFollower *follower;

    g_return_val_if_fail(spec != NULL, NULL);
    if (!(spec->hold_back_s >= 0 && spec->hold_back_s < 1e9)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "a follower of %s that holds back for %g seconds", spec->uri,
                    spec->hold_back_s);
        return NULL;
    }
    follower = g_new0(RubatoFollower, 1);
    if (!open_stream(follower, spec->uri, error)) {
        g_free(follower);
        return NULL;
    }
    follower->names = g_strdupv((char **)(uintptr_t)spec->tables);
    follower->hold_back_us = (int64_t)(spec->hold_back_s * G_USEC_PER_SEC);
    follower->undo_bytes = spec->undo_bytes != 0 ? spec->undo_bytes : UNDO_BYTES;
    folder_watch_init(&follower->watch, follower->directory);
    g_queue_init(&follower->undo);
    init_lock(&follower->lock);
    return follower;
}

static void drop_undo(RubatoFollower *follower, uint64_t most_bytes)
{
    while (follower->n_undo_bytes > most_bytes) {
        VersionStep *const oldest = g_queue_pop_tail(&follower->undo);

        follower->n_undo_bytes -= version_step_bytes(oldest);
        version_step_free(oldest);
    }
}

static void clear_undo(RubatoFollower *follower)
{
    g_queue_clear_full(&follower->undo, (GDestroyNotify)version_step_free);
    follower->n_undo_bytes = 0;
}

void rubato_follower_free(RubatoFollower *follower)
{
    if (follower == NULL)
        return;
    clear_undo(follower);
    version_tables_free(follower->tables);
    pthread_rwlock_destroy(&follower->lock);
    folder_watch_clear(&follower->watch);
    if (follower->reader != NULL)
        follower->reader_ops->close(follower->reader);
    g_clear_error(&follower->fault);
    g_strfreev(follower->names);
    g_free(follower->directory);
    g_free(follower);
}

/* ---- to another version ---- */

static void swap(RubatoFollower *follower, VersionStep *step)
{
    pthread_rwlock_wrlock(&follower->lock);
    version_step_swap(follower->tables, step);
    pthread_rwlock_unlock(&follower->lock);
}

static bool apply(RubatoFollower *follower, const Manifest *manifest, uint64_t number,
                  GError **error)
{
    VersionStep *const step =
        version_step_read(follower->tables, follower->directory, manifest, number, error);

    if (step == NULL)
        return false;
    swap(follower, step);
    g_queue_push_head(&follower->undo, step);
    follower->n_undo_bytes += version_step_bytes(step);
    drop_undo(follower, follower->undo_bytes);
    return true;
}

/* (transfer full) */
static char **list_names(const VersionTables *tables)
{
    char **const names = g_new0(char *, tables->n_tables + 1);

    for (size_t i = 0; i < tables->n_tables; i++)
        names[i] = g_strdup(tables->tables[i].name);
    return names;
}

/* Reads a version with all that it builds on. */
static bool load(RubatoFollower *follower, uint64_t number, GError **error)
{
    VersionTables *const before = follower->tables;
    g_autoptr(VersionTables) read = version_tables_read(
        follower->directory, number, (const char *const *)follower->names, error);

    if (read == NULL || (before != NULL && !version_tables_check_same(before, read, error)))
        return false;
    clear_undo(follower);
    pthread_rwlock_wrlock(&follower->lock);
    follower->tables = g_steal_pointer(&read);
    pthread_rwlock_unlock(&follower->lock);
    version_tables_free(before);
    if (follower->names == NULL)
        follower->names = list_names(follower->tables);
    return true;
}

/* ---- what comes next ---- */

typedef struct {
    uint64_t number;
    uint64_t newest;     /* in the directory, as far as it was looked into */
    uint64_t newest_due; /* that is not held back */
    RubatoFollowed followed;
    Manifest *manifest; /* of a version that is applied; NULL: it is read with all it builds on */
} Next;

static uint64_t own_number(const RubatoFollower *follower)
{
    return follower->tables != NULL ? follower->tables->number : 0;
}

/* *number is the first one behind the follower's; 0: there is none. */
static bool list(const RubatoFollower *follower, uint64_t *number, uint64_t *newest, GError **error)
{
    const uint64_t own = own_number(follower);
    g_autofree uint64_t *numbers = NULL;
    size_t n;

    if (!rubato_snapshot_list(follower->directory, &numbers, &n, error))
        return false;
    *number = 0;
    *newest = n > 0 ? numbers[n - 1] : 0;
    for (size_t i = n; i-- > 0 && numbers[i] > own;)
        *number = numbers[i];
    return true;
}

static bool is_held_back(const RubatoFollower *follower, const Manifest *manifest)
{
    return follower->hold_back_us > 0 &&
           g_get_real_time() - manifest->time_us < follower->hold_back_us;
}

typedef enum { DAMAGED_COUNTED, DAMAGED_LEFT_OUT } Damaged;

/* The newest version that is not held back; 0: all are. Of a damaged one nobody knows that. */
static uint64_t find_newest(const RubatoFollower *follower, Damaged damaged)
{
    g_autofree uint64_t *numbers = NULL;
    size_t n = 0;

    if (!rubato_snapshot_list(follower->directory, &numbers, &n, NULL))
        return 0;
    while (n-- > 0) {
        g_autoptr(Manifest) manifest =
            follower->hold_back_us > 0 ? snapshot_folder_read(follower->directory, numbers[n], NULL)
                                       : NULL;

        if (manifest != NULL ? !is_held_back(follower, manifest) : damaged == DAMAGED_COUNTED)
            return numbers[n];
    }
    return 0;
}

/* The version to begin anew with; 0: none. One that is not newer than the follower's own is of use
 * only if the directory was emptied: else those behind it are gone, or held back. */
static uint64_t find_anew(const RubatoFollower *follower, const Next *next)
{
    const uint64_t own = own_number(follower);
    const uint64_t found = next->newest != 0 ? find_newest(follower, DAMAGED_COUNTED) : 0;

    return found > own || next->newest < own ? found : 0;
}

/* Whether the version of the follower's number, if there is one, is its own, and not that of
 * another stream. */
static bool is_own(const RubatoFollower *follower)
{
    g_autoptr(Manifest) manifest =
        snapshot_folder_read(follower->directory, own_number(follower), NULL);

    return manifest == NULL || manifest->seed == follower->tables->seed;
}

/* Most of the time the next version is there, and builds on the follower's own. Then no other one
 * counts, and the directory need not be listed, which takes longer the more versions it has. */
static bool find_link(const RubatoFollower *follower, Next *next)
{
    const uint64_t own = own_number(follower);
    g_autoptr(Manifest) manifest = NULL;

    if (own == 0 || follower->fault != NULL || follower->hold_back_us > 0)
        return false;
    manifest = snapshot_folder_read(follower->directory, own + 1, NULL);
    if (manifest == NULL || manifest->base != own ||
        manifest->base_seed != follower->tables->seed ||
        !version_tables_have_parts(follower->tables, manifest))
        return false;
    *next = (Next){ .number = own + 1, .newest = own + 1, .followed = RUBATO_FOLLOWED_NEXT };
    next->manifest = g_steal_pointer(&manifest);
    return true;
}

/* next->number 0: nothing. */
static bool find_next(const RubatoFollower *follower, Next *next, GError **error)
{
    const uint64_t own = own_number(follower);
    g_autoptr(Manifest) manifest = NULL;

    if (find_link(follower, next))
        return true;
    *next = (Next){ .followed = RUBATO_FOLLOWED_ANEW };
    if (!list(follower, &next->number, &next->newest, error))
        return false;
    /* Numbers only ascend, unless the directory was emptied. */
    if (own == 0 || (next->newest != 0 && next->newest < own) || next->number > own + 1) {
        next->number = find_anew(follower, next);
        return true;
    }
    if (next->number == 0 && !is_own(follower)) /* any of the other stream is new */
        next->number = find_newest(follower, DAMAGED_COUNTED);
    if (next->number <= own)
        return true;
    next->followed = RUBATO_FOLLOWED_NEXT;
    manifest = snapshot_folder_read(follower->directory, next->number, error);
    if (manifest == NULL)
        return false;
    if (is_held_back(follower, manifest)) {
        next->number = 0;
    } else if (manifest->base == own && manifest->base_seed == follower->tables->seed) {
        if (version_tables_have_parts(follower->tables, manifest))
            next->manifest = g_steal_pointer(&manifest);
    } else if (manifest->base != 0 || !is_own(follower)) {
        next->followed = RUBATO_FOLLOWED_ANEW;
        next->number = find_anew(follower, next);
    }
    return true;
}

static bool is_there(const RubatoFollower *follower, uint64_t number)
{
    g_autofree char *folder = snapshot_folder_whole(follower->directory, number);

    return g_file_test(folder, G_FILE_TEST_IS_DIR);
}

/* Whether it may be that another version has not got the fault. */
static bool is_of_one_version(const GError *fault)
{
    return g_error_matches(fault, RUBATO_ERROR, RUBATO_ERROR_FORMAT) ||
           g_error_matches(fault, RUBATO_ERROR, RUBATO_ERROR_IO);
}

/* Instead of a version that is damaged or cannot be read: the newest one with all rows behind it,
 * or any good one if it was read to begin anew. False: there is none. */
static bool load_other(RubatoFollower *follower, const Next *damaged)
{
    const bool begins = damaged->followed == RUBATO_FOLLOWED_ANEW;
    const uint64_t own = own_number(follower);
    const uint64_t least = !begins ? damaged->number + 1 : damaged->newest > own ? own + 1 : 1;
    g_autofree uint64_t *numbers = NULL;
    size_t n = 0;

    if (!rubato_snapshot_list(follower->directory, &numbers, &n, NULL))
        return false;
    while (n-- > 0 && numbers[n] >= least) {
        g_autoptr(Manifest) manifest = snapshot_folder_read(follower->directory, numbers[n], NULL);

        if (numbers[n] != damaged->number && manifest != NULL && (begins || manifest->base == 0) &&
            !is_held_back(follower, manifest) && load(follower, numbers[n], NULL))
            return true;
    }
    return false;
}

/* ---- one step ---- */

typedef enum {
    STEP_NOTHING,
    STEP_DONE,
    STEP_AGAIN, /* what it read was removed meanwhile */
    STEP_FAILED,
} StepResult;

static bool take(RubatoFollower *follower, Next *next, GError **error)
{
    const bool ok = next->manifest != NULL ? apply(follower, next->manifest, next->number, error)
                                           : load(follower, next->number, error);

    g_clear_pointer(&next->manifest, manifest_free);
    return ok;
}

/* Keeps an error that stays until there is another version, and tells it once. */
static StepResult fail(RubatoFollower *follower, const Next *next, GError *fault, GError **error)
{
    const bool is_known = follower->fault != NULL && follower->faulty == next->number;
    const bool stays = !g_error_matches(fault, RUBATO_ERROR, RUBATO_ERROR_IO) &&
                       !g_error_matches(fault, RUBATO_ERROR, RUBATO_ERROR_MEMORY);

    g_clear_error(&follower->fault);
    follower->fault = stays ? g_error_copy(fault) : NULL;
    follower->faulty = next->number;
    follower->looked_at = next->newest_due;
    if (stays && is_known) {
        g_error_free(fault);
        return STEP_NOTHING;
    }
    g_propagate_error(error, fault);
    return STEP_FAILED;
}

static StepResult try_step(RubatoFollower *follower, RubatoFollowed *followed, GError **error)
{
    GError *fault = NULL;
    Next next;
    bool ok = find_next(follower, &next, &fault);

    if (next.number != 0)
        next.newest_due =
            follower->hold_back_us > 0 ? find_newest(follower, DAMAGED_LEFT_OUT) : next.newest;
    if (ok &&
        (next.number == 0 || (follower->fault != NULL && follower->looked_at == next.newest_due))) {
        g_clear_pointer(&next.manifest, manifest_free);
        return STEP_NOTHING;
    }
    if (ok)
        ok = take(follower, &next, &fault);
    if (!ok && next.number != 0 && !is_there(follower, next.number)) {
        g_clear_error(&fault);
        return STEP_AGAIN;
    }
    if (next.number != 0 && is_of_one_version(fault) && load_other(follower, &next)) {
        g_message("a follower of %s goes on with version %" G_GUINT64_FORMAT
                  ", because another one is of no use: %s",
                  follower->directory, own_number(follower), fault->message);
        g_clear_error(&fault);
        next.followed = RUBATO_FOLLOWED_ANEW;
        ok = true;
    }
    if (!ok)
        return fail(follower, &next, fault, error);
    g_clear_error(&follower->fault);
    *followed = next.followed;
    return STEP_DONE;
}

bool rubato_follower_advance(RubatoFollower *follower, double timeout_s, RubatoFollowed *followed,
                             GError **error)
{
    const int64_t begin_us = g_get_monotonic_time();

    g_return_val_if_fail(follower != NULL && followed != NULL && !isnan(timeout_s), false);
    for (;;) {
        double left_s;
        StepResult result;

        folder_watch_begin(&follower->watch);
        do
            result = try_step(follower, followed, error);
        while (result == STEP_AGAIN);
        if (result != STEP_NOTHING)
            return result == STEP_DONE;
        left_s = timeout_s - (double)(g_get_monotonic_time() - begin_us) / G_USEC_PER_SEC;
        if (left_s <= 0)
            break;
        folder_watch_wait(&follower->watch, (int64_t)(MIN(left_s, 1) * 1000) + 1);
    }
    if (follower->fault == NULL) {
        *followed = RUBATO_FOLLOWED_NOTHING;
        return follower->reader == NULL || follower->reader_ops->check == NULL ||
               follower->reader_ops->check(follower->reader, error);
    }
    if (error != NULL)
        *error = g_error_copy(follower->fault);
    return false;
}

/* ---- back ---- */

/* Whether undoing steps leads to the version. */
static bool can_undo(const RubatoFollower *follower, uint64_t version)
{
    for (const GList *link = follower->undo.head; link != NULL; link = link->next)
        if (((const VersionStep *)link->data)->number == version)
            return true;
    return false;
}

static void undo_to(RubatoFollower *follower, uint64_t version)
{
    pthread_rwlock_wrlock(&follower->lock);
    while (follower->tables->number != version) {
        VersionStep *const step = g_queue_pop_head(&follower->undo);

        follower->n_undo_bytes -= version_step_bytes(step);
        version_step_swap(follower->tables, step);
        version_step_free(step);
    }
    pthread_rwlock_unlock(&follower->lock);
}

bool rubato_follower_go_to(RubatoFollower *follower, uint64_t version, GError **error)
{
    g_return_val_if_fail(follower != NULL, false);
    g_clear_error(&follower->fault);
    if (version != 0 && version == own_number(follower))
        return true;
    if (version != 0 && can_undo(follower, version)) {
        undo_to(follower, version);
        return true;
    }
    if (version != 0 && is_there(follower, version))
        return load(follower, version, error);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND, "%s has no version %" G_GUINT64_FORMAT,
                follower->directory, version);
    return false;
}

/* ---- reading ---- */

uint64_t rubato_follower_version(RubatoFollower *follower, int64_t *time_us)
{
    uint64_t number;

    g_return_val_if_fail(follower != NULL, 0);
    pthread_rwlock_rdlock(&follower->lock);
    number = own_number(follower);
    if (time_us != NULL)
        *time_us = number != 0 ? follower->tables->time_us : 0;
    pthread_rwlock_unlock(&follower->lock);
    return number;
}

char **rubato_follower_list_tables(RubatoFollower *follower)
{
    char **names;

    g_return_val_if_fail(follower != NULL, NULL);
    pthread_rwlock_rdlock(&follower->lock);
    names = follower->tables != NULL ? list_names(follower->tables) : g_new0(char *, 1);
    pthread_rwlock_unlock(&follower->lock);
    return names;
}

/* The lock is held for reading; if there is no such table, it is released. */
static const VersionTable *begin_read(RubatoFollower *follower, const char *name, GError **error)
{
    const VersionTable *table;

    pthread_rwlock_rdlock(&follower->lock);
    table = follower->tables != NULL ? version_tables_find(follower->tables, name) : NULL;
    if (table != NULL)
        return table;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_NOT_FOUND,
                follower->tables != NULL ? "%s: no table %s is followed"
                                         : "%s: there is no version yet, so no table %s",
                follower->directory, name);
    pthread_rwlock_unlock(&follower->lock);
    return NULL;
}

bool rubato_follower_table(RubatoFollower *follower, const char *name, RubatoFollowedTable *table,
                           GError **error)
{
    const VersionTable *found;

    g_return_val_if_fail(follower != NULL && name != NULL && table != NULL, false);
    found = begin_read(follower, name, error);
    if (found == NULL)
        return false;
    *table = found->shape;
    table->n_rows = version_rows_n(found->rows);
    pthread_rwlock_unlock(&follower->lock);
    return true;
}

static void copy_rows(const VersionTable *table, const RubatoKey *keys, size_t n,
                      unsigned char *values, bool *found)
{
    const size_t row_bytes = table->shape.width * rubato_dtype_size(table->shape.dtype);

    for (size_t i = 0; i < n; i++) {
        uint32_t n_values;
        const void *const row = version_rows_find(table->rows, keys[i], &n_values);

        if (row != NULL)
            memcpy(values + i * row_bytes, row, row_bytes);
        else
            memset(values + i * row_bytes, 0, row_bytes);
        if (found != NULL)
            found[i] = row != NULL;
    }
}

bool rubato_follower_get(RubatoFollower *follower, const char *name, const RubatoKey *keys,
                         size_t n, void *values, bool *found, uint64_t *version, GError **error)
{
    const VersionTable *table;
    bool ok;

    g_return_val_if_fail(follower != NULL && name != NULL, false);
    g_return_val_if_fail(n == 0 || (keys != NULL && values != NULL), false);
    table = begin_read(follower, name, error);
    if (table == NULL)
        return false;
    ok = table->shape.shape != RUBATO_SHAPE_RAGGED;
    if (ok)
        copy_rows(table, keys, n, values, found);
    else
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "table %s has rows of different lengths: read it row by row", name);
    if (ok && version != NULL)
        *version = follower->tables->number;
    pthread_rwlock_unlock(&follower->lock);
    return ok;
}

bool rubato_follower_read(RubatoFollower *follower, const char *name, const RubatoKey *keys,
                          size_t n, RubatoFollowedRowFunc function, void *user_data,
                          uint64_t *version, GError **error)
{
    const VersionTable *table;

    g_return_val_if_fail(follower != NULL && name != NULL && function != NULL, false);
    g_return_val_if_fail(n == 0 || keys != NULL, false);
    table = begin_read(follower, name, error);
    if (table == NULL)
        return false;
    for (size_t i = 0; i < n; i++) {
        uint32_t n_values;
        const void *const row = version_rows_find(table->rows, keys[i], &n_values);

        function(i, row, n_values, user_data);
    }
    if (version != NULL)
        *version = follower->tables->number;
    pthread_rwlock_unlock(&follower->lock);
    return true;
}
