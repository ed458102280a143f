/* The caches of a dataset's inputs: looked for when it is opened, made where they are missing.
 *
 * If the file system has locks, processes that want the same cache at the same time make it once.
 * The process that makes it holds a lock on the input; a process that has waited for the lock looks
 * for the cache again. The lock belongs to the process, so it is released when the process ends.
 *
 * Runs on the thread that opens the dataset, and on threads of its own, which parse: `next` deals
 * out the blocks' numbers, the lock guards the first error. */
#include "io/data/dataset_state.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "io/data/cache_writer.h"
#include "io/data/data_spec.h"

#define EXTENSION ".rubato-cache"
#define THREADS_MAX 8

/* ---- which cache ---- */

static void add_file(GString *text, const char *path)
{
    struct stat status;

    if (path != NULL && stat(path, &status) == 0)
        g_string_append_printf(text, "|%s %" G_GINT64_FORMAT " %" G_GINT64_FORMAT ".%09ld", path,
                               (gint64)status.st_size, (gint64)status.st_mtim.tv_sec,
                               status.st_mtim.tv_nsec);
}

/* Everything but the input itself that decides what its blocks hold. */
static uint64_t digest_options(const RubatoDataset *dataset)
{
    g_autofree char *options = data_spec_describe(dataset->spec);
    g_autoptr(GString) text = g_string_new(RUBATO_VERSION "|");

    g_string_append_printf(text, "%s|%s", dataset->parser->ops->name, options);
    add_file(text, dataset->spec->labels_path);
    for (uint32_t i = 0;
         row_parser_learns(dataset->parser) != ROW_LEARNS_NOTHING && i < dataset->n_parts; i++)
        add_file(text, input_path(dataset->parts[i].input));
    return XXH3_64bits(text->str, text->len);
}

static CacheKey key_of(const Part *part, uint64_t options)
{
    return (CacheKey){ .input_bytes = input_size(part->input),
                       .input_modified_ns = input_modified_ns(part->input),
                       .options = options };
}

/* The cache is beside the input. In a folder for all caches, its name has a digest of the input's
 * path. */
static char *path_of(const RubatoDataset *dataset, const Part *part)
{
    const char *path = input_path(part->input);

    if (dataset->spec->cache_directory == NULL)
        return g_strconcat(path, EXTENSION, NULL);
    g_autofree char *absolute = g_canonicalize_filename(path, NULL);
    g_autofree char *base = g_path_get_basename(path);
    g_autofree char *name = g_strdup_printf("%s-%016" G_GINT64_MODIFIER "x" EXTENSION, base,
                                            (uint64_t)XXH3_64bits(absolute, strlen(absolute)));
    return g_build_filename(dataset->spec->cache_directory, name, NULL);
}

static CacheFile *open_cache(RubatoDataset *dataset, const Part *part, uint64_t options)
{
    const CacheKey key = key_of(part, options);
    g_autofree char *path = path_of(dataset, part);
    CacheFile *cache = cache_file_open(path, &key, dataset->spec->memory_bytes);

    if (cache == NULL)
        return NULL;
    /* if there are more bad rows than allowed, parsing again says where one is */
    const uint64_t n_bad = cache_file_summary(cache)->n_bad_rows;
    const uint64_t before = atomic_load_explicit(&dataset->bad_rows.n, memory_order_relaxed);
    if (n_bad > dataset->bad_rows.max - MIN(before, dataset->bad_rows.max))
        g_clear_pointer(&cache, cache_file_unref);
    else
        atomic_store_explicit(&dataset->bad_rows.n, before + n_bad, memory_order_relaxed);
    return cache;
}

bool dataset_open_caches(RubatoDataset *dataset)
{
    const uint64_t options = digest_options(dataset);
    bool all = true;

    for (uint32_t i = 0; i < dataset->n_parts; i++) {
        dataset->parts[i].cache = open_cache(dataset, &dataset->parts[i], options);
        all &= dataset->parts[i].cache != NULL;
    }
    return all;
}

/* ---- making one ---- */

typedef struct {
    RubatoDataset *dataset;
    Part *part;
    CacheWriter *writer;
    _Atomic uint64_t next; /* block */
    _Atomic bool stop;

    pthread_mutex_t lock;
    /* guarded by lock */
    uint64_t n_blocks;   /* the first number that is not there */
    GError *parse_error; /* the first */
    GError *write_error;
} Making;

static void fail(Making *making, GError **kind, GError *error)
{
    pthread_mutex_lock(&making->lock);
    if (*kind == NULL)
        *kind = g_steal_pointer(&error);
    pthread_mutex_unlock(&making->lock);
    g_clear_error(&error);
    /* relaxed: the threads are joined before it is read */
    atomic_store_explicit(&making->stop, true, memory_order_relaxed);
}

static void *parse_blocks(void *user)
{
    Making *making = user;
    BlockScratch scratch;

    block_scratch_init(&scratch);
    while (!atomic_load_explicit(&making->stop, memory_order_relaxed)) {
        const uint64_t number = atomic_fetch_add_explicit(&making->next, 1, memory_order_relaxed);
        g_autoptr(DataBlock) block = NULL;
        GError *error = NULL;
        bool again;

        if (!dataset_parse_block(making->dataset, making->part, number, &scratch, &block, &again,
                                 &error)) {
            fail(making, &making->parse_error, error);
            break;
        }
        if (block == NULL) {
            pthread_mutex_lock(&making->lock);
            making->n_blocks = MIN(making->n_blocks, number);
            pthread_mutex_unlock(&making->lock);
            break;
        }
        if (!cache_writer_add(making->writer, number, block, &error)) {
            fail(making, &making->write_error, error);
            break;
        }
    }
    block_scratch_clear(&scratch);
    return NULL;
}

static void parse_all(Making *making)
{
    const long n_processors = sysconf(_SC_NPROCESSORS_ONLN);
    const long n_threads = CLAMP(n_processors, 1, THREADS_MAX);
    pthread_t threads[THREADS_MAX];
    long n_started = 0;

    /* this thread is one of them */
    while (n_started + 1 < n_threads &&
           pthread_create(&threads[n_started], NULL, parse_blocks, making) == 0)
        n_started++;
    parse_blocks(making);
    for (long i = 0; i < n_started; i++)
        pthread_join(threads[i], NULL);
}

/* *write_error says why there is no cache, if the cache could not be written. */
static bool make_cache(RubatoDataset *dataset, Part *part, uint64_t options, GError **write_error,
                       GError **error)
{
    const CacheKey key = key_of(part, options);
    g_autofree char *path = path_of(dataset, part);
    g_autoptr(CacheWriter) writer = cache_writer_new(path, &key, write_error);
    Making making = { .dataset = dataset, .part = part, .writer = writer, .n_blocks = UINT64_MAX };

    if (writer == NULL)
        return true;
    pthread_mutex_init(&making.lock, NULL);
    parse_all(&making);
    pthread_mutex_destroy(&making.lock);
    if (making.parse_error != NULL) {
        g_clear_error(&making.write_error);
        g_propagate_error(error, making.parse_error);
        return false;
    }
    if (making.write_error != NULL)
        g_propagate_error(write_error, making.write_error);
    else if (cache_writer_finish(writer, making.n_blocks, write_error))
        part->cache = cache_file_open(path, &key, dataset->spec->memory_bytes);
    return true;
}

/* Waits until no other process makes this cache. Returns what holds the lock, -1 where there are no
 * locks. */
static int lock_input(const Part *part)
{
    const char *path = input_path(part->input);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        g_message("%s: waiting for another process that makes its cache", path);
        (void)flock(fd, LOCK_EX); /* if this fails, both make it */
    }
    return fd;
}

static void unlock_input(int fd)
{
    if (fd >= 0)
        close(fd);
}

bool dataset_make_caches(RubatoDataset *dataset, GError **error)
{
    const uint64_t options = digest_options(dataset);
    g_autoptr(GError) write_error = NULL;
    bool ok = true;

    for (uint32_t i = 0; ok && write_error == NULL && i < dataset->n_parts; i++) {
        Part *part = &dataset->parts[i];
        int lock;

        if (part->cache != NULL)
            continue;
        lock = lock_input(part);
        part->cache = open_cache(dataset, part, options);
        if (part->cache == NULL)
            ok = make_cache(dataset, part, options, &write_error, error);
        unlock_input(lock);
    }
    if (ok && write_error != NULL)
        g_message("%s; going on without a cache", write_error->message);
    return ok;
}
