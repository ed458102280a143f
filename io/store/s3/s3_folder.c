/* Snapshots in a bucket of S3.
 *
 *   PREFIX/snapshot-000012-SEED   the manifest
 *   PREFIX/rows-SEED/0.3.rows     the files
 *
 * An object appears as a whole or not at all, and whoever lists the bucket afterwards sees it. So
 * the manifest, which is put when all files are there, makes the snapshot whole; and it is removed
 * before they are. Its key has the snapshot's random number, so that a listing tells which files
 * belong to no snapshot. */
#include <rubato/error.h>
#include <string.h>

#include "io/store/folder_ops.h"
#include "io/store/s3/s3_list.h"
#include "io/store/s3/s3_place.h"
#include "io/store/store_file.h"

#define WHOLE "snapshot-"
#define ROWS "rows-"

/* ---- names ---- */

static char *name_writing(const char *directory, uint64_t seed)
{
    return g_strdup_printf("%s/" ROWS "%016" G_GINT64_MODIFIER "x", directory, seed);
}

static char *name_rows(const char *directory, uint64_t number, uint64_t seed)
{
    (void)number;
    return name_writing(directory, seed);
}

/* A whole snapshot, as the key of its manifest says. */
typedef struct {
    uint64_t number, seed;
} Whole;

/* (transfer full) */
static char *write_key(const S3Place *place, const Whole *whole)
{
    g_autofree char *name = g_strdup_printf(
        WHOLE "%06" G_GUINT64_FORMAT "-%016" G_GINT64_MODIFIER "x", whole->number, whole->seed);

    return s3_path_below(&place->path, name);
}

/* Keys that look otherwise are not of this library. */
static bool read_key(const S3Place *place, const char *key, Whole *whole)
{
    g_autofree char *before = s3_path_below(&place->path, WHOLE);
    g_autofree char *again = NULL;
    g_auto(GStrv) numbers = NULL;
    guint64 number, seed;

    if (!g_str_has_prefix(key, before))
        return false;
    numbers = g_strsplit(key + strlen(before), "-", 3);
    if (g_strv_length(numbers) != 2 ||
        !g_ascii_string_to_unsigned(numbers[0], 10, 1, MOST_NUMBER, &number, NULL) ||
        !g_ascii_string_to_unsigned(numbers[1], 16, 0, UINT64_MAX, &seed, NULL))
        return false;
    *whole = (Whole){ .number = number, .seed = seed };
    again = write_key(place, whole);
    return strcmp(again, key) == 0;
}

/* ---- finding ---- */

/* All whole snapshots. (transfer full) */
static GArray *list_whole(const S3Place *place, GError **error)
{
    g_autoptr(GArray) found = g_array_new(FALSE, FALSE, sizeof(Whole));
    g_autoptr(GPtrArray) keys = g_ptr_array_new_with_free_func(g_free);
    g_autofree char *before = s3_path_below(&place->path, WHOLE);

    if (!s3_list(place->client, place->path.bucket, before, S3_LIST_MOST, keys, NULL, error))
        return NULL;
    for (guint i = 0; i < keys->len; i++) {
        Whole whole;

        if (read_key(place, g_ptr_array_index(keys, i), &whole))
            g_array_append_val(found, whole);
    }
    return g_steal_pointer(&found);
}

static bool list(const char *directory, GArray *numbers, GError **error)
{
    g_auto(S3Place) place = { .client = NULL };
    g_autoptr(GArray) found = NULL;

    if (!s3_place_open(&place, directory, error))
        return false;
    found = list_whole(&place, error);
    for (guint i = 0; found != NULL && i < found->len; i++)
        g_array_append_val(numbers, g_array_index(found, Whole, i).number);
    return found != NULL;
}

static bool find_whole(const S3Place *place, const char *directory, uint64_t number, Whole *whole,
                       GError **error)
{
    g_autoptr(GArray) found = list_whole(place, error);
    uint32_t n = 0;

    for (guint i = 0; found != NULL && i < found->len; i++)
        if (g_array_index(found, Whole, i).number == number) {
            *whole = g_array_index(found, Whole, i);
            n++;
        }
    if (found != NULL && n != 1)
        g_set_error(error, RUBATO_ERROR, n == 0 ? RUBATO_ERROR_NOT_FOUND : RUBATO_ERROR_FORMAT,
                    "%s/" WHOLE "%06" G_GUINT64_FORMAT ": %s", directory, number,
                    n == 0 ? "there is no such snapshot"
                           : "two runs have written snapshots of that number");
    return n == 1;
}

static Manifest *read_whole(const char *directory, uint64_t number, GError **error)
{
    g_auto(S3Place) place = { .client = NULL };
    g_autofree char *key = NULL, *named = NULL;
    g_auto(S3Answer) answer = { .body = NULL };
    Whole whole;

    if (!s3_place_open(&place, directory, error) ||
        !find_whole(&place, directory, number, &whole, error))
        return NULL;
    key = write_key(&place, &whole);
    named = g_strconcat(S3_SCHEME, place.path.bucket, "/", key, NULL);
    if (!s3_client_ask(place.client,
                       &(S3Request){ .method = S3_GET,
                                     .bucket = place.path.bucket,
                                     .key = key,
                                     .what = "read",
                                     .most = MOST_MANIFEST },
                       &answer, error))
        return NULL;
    return manifest_parse((const char *)answer.body->data, answer.body->len, named, error);
}

static bool has_file(const char *path)
{
    uint64_t n_bytes;
    StoreFile *const file = store_file_open(path, &n_bytes, NULL);

    store_file_close(file);
    return file != NULL;
}

const FolderReadOps s3_read_ops = {
    .list = list,
    .read = read_whole,
    .rows = name_rows,
    .has_file = has_file,
};

/* ---- writing ---- */

static bool make(const char *directory, GError **error)
{
    g_auto(S3Place) place = { .client = NULL };

    return s3_place_open(&place, directory, error); /* objects need no folder */
}

static bool begin(const char *directory, uint64_t seed, GError **error)
{
    (void)seed;
    return make(directory, error);
}

static bool commit(const char *directory, const Manifest *manifest, uint64_t number, GError **error)
{
    const Whole whole = { .number = number, .seed = manifest->seed };
    g_autofree char *text = manifest_text(manifest);
    g_auto(S3Place) place = { .client = NULL };
    g_autofree char *key = NULL;

    if (!s3_place_open(&place, directory, error))
        return false;
    key = write_key(&place, &whole);
    return s3_place_put(&place, key, text, error);
}

/* Removes the files of a snapshot, as far as it can. */
static void remove_rows(const S3Place *place, uint64_t seed)
{
    g_autofree char *name = name_writing("", seed);
    g_autofree char *folder = g_strconcat(name + 1, "/", NULL);
    g_autofree char *before = s3_path_below(&place->path, folder);
    g_autoptr(GPtrArray) keys = g_ptr_array_new_with_free_func(g_free);

    (void)s3_list(place->client, place->path.bucket, before, S3_LIST_MOST, keys, NULL, NULL);
    for (guint i = 0; i < keys->len; i++)
        if (!s3_place_remove(place, g_ptr_array_index(keys, i), NULL))
            return;
}

static void abandon(const char *directory, uint64_t seed)
{
    g_auto(S3Place) place = { .client = NULL };
    g_autoptr(GArray) found = NULL;

    if (!s3_place_open(&place, directory, NULL))
        return;
    s3_client_hurry(place.client); /* the next snapshot tries again */
    /* The answer to its manifest may have been lost, and the snapshot be there. */
    found = list_whole(&place, NULL);
    for (guint i = 0; found != NULL && i < found->len; i++) {
        const Whole *const whole = &g_array_index(found, Whole, i);
        g_autofree char *key = write_key(&place, whole);

        if (whole->seed == seed && !s3_place_remove(&place, key, NULL))
            return;
    }
    if (found != NULL)
        remove_rows(&place, seed);
}

/* Whether a folder has files of no snapshot. */
static bool is_left(const S3Place *place, const char *folder, const GArray *found, uint64_t own,
                    uint64_t *seed)
{
    g_autofree char *before = s3_path_below(&place->path, ROWS);
    g_autofree char *text = NULL;

    if (!g_str_has_prefix(folder, before) || !g_str_has_suffix(folder, "/"))
        return false;
    text = g_strdup(folder + strlen(before));
    text[strlen(text) - 1] = '\0';
    if (strlen(text) != 16 || !g_ascii_string_to_unsigned(text, 16, 0, UINT64_MAX, seed, NULL) ||
        *seed == own)
        return false;
    for (guint i = 0; i < found->len; i++)
        if (g_array_index(found, Whole, i).seed == *seed)
            return false;
    return true;
}

/* The folders are listed before the manifests: one that was made meanwhile is not looked at. */
static void tidy(const char *directory, uint64_t own)
{
    g_auto(S3Place) place = { .client = NULL };
    g_autoptr(GPtrArray) keys = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GPtrArray) folders = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GArray) found = NULL;
    g_autofree char *before = NULL;

    if (!s3_place_open(&place, directory, NULL))
        return;
    s3_client_hurry(place.client); /* the next one tries again */
    before = s3_path_below(&place.path, ROWS);
    if (!s3_list(place.client, place.path.bucket, before, S3_LIST_MOST, keys, folders, NULL))
        return;
    found = list_whole(&place, NULL);
    for (guint i = 0; found != NULL && i < folders->len; i++) {
        uint64_t seed;

        if (is_left(&place, g_ptr_array_index(folders, i), found, own, &seed))
            remove_rows(&place, seed);
    }
}

static bool remove_whole(const char *directory, uint64_t number, GError **error)
{
    g_auto(S3Place) place = { .client = NULL };
    g_autofree char *key = NULL;
    Whole whole;

    if (!s3_place_open(&place, directory, error) ||
        !find_whole(&place, directory, number, &whole, error))
        return false;
    key = write_key(&place, &whole);
    if (!s3_place_remove(&place, key, error))
        return false;
    remove_rows(&place, whole.seed);
    return true;
}

const FolderWriteOps s3_write_ops = {
    .writing = name_writing,
    .make = make,
    .begin = begin,
    .commit = commit,
    .abandon = abandon,
    .tidy = tidy,
    .list_used = list,
    .remove = remove_whole,
};
