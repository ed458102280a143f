/* Open files by their names, version by version. */
#include "io/stream/zmq/held_versions.h"

#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "io/store/snapshot_folder.h"

/* More descriptors are of no use: the versions would take too much of the disk. */
#define MOST_FILES 16384u

typedef struct {
    ListedVersion listed;
    int64_t asked_ms;
    GHashTable *files; /* of file descriptors, by their names */
} HeldVersion;

struct HeldVersions {
    char *directory;
    GPtrArray *versions; /* of HeldVersion */
    guint most_files;    /* of all versions */
    bool has_told;       /* that one is not held */
};

static void close_file(gpointer file)
{
    close(GPOINTER_TO_INT(file));
}

static void free_version(gpointer data)
{
    HeldVersion *const version = data;

    g_hash_table_unref(version->files);
    g_free(version);
}

/* The rest is for the process. */
static guint find_most_files(void)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / 2 < MOST_FILES
               ? (guint)(limit.rlim_cur / 2)
               : MOST_FILES;
}

HeldVersions *held_versions_new(const char *directory)
{
    HeldVersions *const held = g_new0(HeldVersions, 1);

    held->directory = g_strdup(directory);
    held->versions = g_ptr_array_new_with_free_func(free_version);
    held->most_files = find_most_files();
    return held;
}

void held_versions_free(HeldVersions *held)
{
    if (held == NULL)
        return;
    g_ptr_array_unref(held->versions);
    g_free(held->directory);
    g_free(held);
}

static HeldVersion *find_version(const HeldVersions *held, uint64_t number, uint64_t seed)
{
    for (guint i = 0; i < held->versions->len; i++) {
        HeldVersion *const version = g_ptr_array_index(held->versions, i);

        if (version->listed.number == number && version->listed.seed == seed)
            return version;
    }
    return NULL;
}

static guint count_names(const char *folder)
{
    GDir *const names = g_dir_open(folder, 0, NULL);
    guint n = 0;

    while (names != NULL && g_dir_read_name(names) != NULL)
        n++;
    if (names != NULL)
        g_dir_close(names);
    return n;
}

/* Opens all files of a version. False: one is gone, or the process may open no more. */
static bool open_files(const char *folder, GHashTable *files)
{
    GDir *const names = g_dir_open(folder, 0, NULL);
    const char *name;
    bool ok = names != NULL;

    while (ok && (name = g_dir_read_name(names)) != NULL) {
        g_autofree char *path = g_build_filename(folder, name, NULL);
        const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

        ok = fd >= 0;
        if (ok)
            g_hash_table_insert(files, g_strdup(name), GINT_TO_POINTER(fd));
    }
    if (names != NULL)
        g_dir_close(names);
    return ok;
}

static guint count_files(const HeldVersions *held)
{
    guint n = 0;

    for (guint i = 0; i < held->versions->len; i++)
        n += g_hash_table_size(((HeldVersion *)g_ptr_array_index(held->versions, i))->files);
    return n;
}

/* The one that was asked for first. */
static void let_one_go(HeldVersions *held)
{
    guint first = 0;

    for (guint i = 1; i < held->versions->len; i++) {
        const HeldVersion *const version = g_ptr_array_index(held->versions, i);

        if (version->asked_ms <
            ((const HeldVersion *)g_ptr_array_index(held->versions, first))->asked_ms)
            first = i;
    }
    g_ptr_array_remove_index_fast(held->versions, first);
}

static void tell_not_held(HeldVersions *held, uint64_t number, guint n_files)
{
    if (!held->has_told)
        g_warning("version %" G_GUINT64_FORMAT
                  " in %s has %u files, and this process keeps %u open "
                  "at most: if the stream removes the version while a follower fetches it, the "
                  "follower gets another one. Have it keep more versions, or raise ulimit -n to "
                  "%u",
                  number, held->directory, n_files, held->most_files, 2 * n_files);
    held->has_told = true;
}

void held_versions_hold(HeldVersions *held, const ListedVersion *listed, int64_t now_ms)
{
    if (find_version(held, listed->number, listed->seed) != NULL)
        return;
    g_autofree char *folder = snapshot_folder_rows(held->directory, listed->number, listed->seed);
    const guint n_files = count_names(folder);
    HeldVersion *version;

    if (n_files > held->most_files) {
        tell_not_held(held, listed->number, n_files);
        return;
    }
    while (held->versions->len > 0 && count_files(held) + n_files > held->most_files)
        let_one_go(held);
    version = g_new(HeldVersion, 1);
    *version = (HeldVersion){
        .listed = *listed,
        .asked_ms = now_ms,
        .files = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, close_file),
    };
    if (open_files(folder, version->files))
        g_ptr_array_add(held->versions, version);
    else
        free_version(version);
}

/* -1: there is none of that name. */
static int find_file(const HeldVersion *version, const char *path)
{
    gpointer fd;

    return g_hash_table_lookup_extended(version->files, strrchr(path, '/') + 1, NULL, &fd)
               ? GPOINTER_TO_INT(fd)
               : -1;
}

int held_versions_find(HeldVersions *held, const StreamMessage *asked, int64_t now_ms)
{
    HeldVersion *const version = find_version(held, asked->number, asked->seed);
    int fd;

    if (version == NULL)
        return -1;
    version->asked_ms = now_ms;
    if (asked->table == STREAM_MANIFEST)
        return find_file(version, "/" MANIFEST_NAME);

    g_autofree char *whole = snapshot_folder_part("", asked->table, asked->part);
    g_autofree char *changes =
        snapshot_folder_changes("", asked->table, asked->part, version->listed.base_seed);

    fd = find_file(version, whole);
    return fd >= 0 ? fd : find_file(version, changes);
}

void held_versions_tidy(HeldVersions *held, int64_t now_ms)
{
    for (guint i = held->versions->len; i-- > 0;)
        if (now_ms - ((HeldVersion *)g_ptr_array_index(held->versions, i))->asked_ms >= HELD_MS)
            g_ptr_array_remove_index_fast(held->versions, i);
}
