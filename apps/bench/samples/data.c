/* Samples of reading training data: a file of made-up rows, once by Rubato, once without it. */
#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <string.h>
#include <unistd.h>

#include "apps/bench/bench.h"
#include "apps/bench/limits/limits.h"
#include "apps/bench/samples/samples.h"

#define CACHE_EXTENSION ".rubato-cache"
#define READ_BYTES ((size_t)1024 * 1024)

typedef void (*AppendRow)(GString *text, GRand *random);

/* Fourteen of 123 indices, each with the value 1: about 70 bytes. */
static void append_libsvm_row(GString *text, GRand *random)
{
    static const gint32 group_ends[] = { 6, 14, 19, 35, 42, 57, 63, 68, 73, 75, 78, 80, 83, 124 };
    gint32 from = 1;

    g_string_append(text, g_rand_int_range(random, 0, 4) == 0 ? "+1" : "-1");
    for (size_t i = 0; i < G_N_ELEMENTS(group_ends); i++) {
        g_string_append_printf(text, " %d:1", g_rand_int_range(random, from, group_ends[i]));
        from = group_ends[i];
    }
    g_string_append_c(text, '\n');
}

static const char *const categorical_columns[] = { "2", "4", "6", "7", "8", "9", "10", "14", NULL };

/* A label, then numbers and categories by turns: about 45 bytes. */
static void append_csv_row(GString *text, GRand *random)
{
    static const gint32 limits[] = { 2, 90, 9, 1000000, 16, 16, 7, 14, 6, 5, 2, 100, 10, 99, 41 };

    for (size_t i = 0; i < G_N_ELEMENTS(limits); i++)
        g_string_append_printf(text, "%s%d", i == 0 ? "" : ",",
                               g_rand_int_range(random, 0, limits[i]));
    g_string_append_c(text, '\n');
}

/* Twenty fields, each with 50,000 indices of which the small ones are the frequent: about 230
 * bytes. */
static void append_libffm_row(GString *text, GRand *random)
{
    g_string_append(text, g_rand_boolean(random) ? "1" : "0");
    for (int field = 0; field < 20; field++) {
        const double place = g_rand_double(random);

        g_string_append_printf(text, " %d:%d:1", field,
                               field * 50000 + (int)(50000 * place * place * place));
    }
    g_string_append_c(text, '\n');
}

/* Makes the file of n rows, once. */
static bool make_file(Bench *bench, size_t n, AppendRow append, GError **error)
{
    g_autoptr(GRand) random = NULL;
    g_autoptr(GString) text = NULL;
    int fd;

    if (bench->data_path != NULL)
        return true;
    fd = g_file_open_tmp("rubato-bench-XXXXXX", &bench->data_path, error);
    if (fd < 0)
        return false;
    close(fd);
    random = g_rand_new_with_seed(1);
    text = g_string_new(NULL);
    for (size_t i = 0; i < n; i++)
        append(text, random);
    return g_file_set_contents(bench->data_path, text->str, (gssize)text->len, error);
}

void data_close(Bench *bench)
{
    if (bench->data_path != NULL) {
        g_autofree char *cache = g_strconcat(bench->data_path, CACHE_EXTENSION, NULL);

        g_unlink(bench->data_path);
        g_unlink(cache);
    }
    g_clear_pointer(&bench->data_path, g_free);
}

typedef void (*Look)(const char *bytes, size_t size);

/* Goes from newline to newline. */
static void find_lines(const char *bytes, size_t size)
{
    const char *const end = bytes + size;
    size_t n_lines = 0;

    for (const char *at = bytes; (at = memchr(at, '\n', (size_t)(end - at))) != NULL; at++)
        n_lines++;
    clobber(&n_lines);
}

/* Reads the file and passes each piece to a function, which may be NULL. Returns its size, 0 if it
 * cannot be read. */
static size_t scan_file(const char *path, char *buffer, Look look)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t size = 0;
    ssize_t n;

    if (fd < 0)
        return 0;
    while ((n = read(fd, buffer, READ_BYTES)) > 0) {
        if (look != NULL)
            look(buffer, (size_t)n);
        size += (size_t)n;
    }
    close(fd);
    return n < 0 ? 0 : size;
}

static bool sample_parse(Bench *bench, const RubatoDataSpec *spec, BenchSample *sample,
                         GError **error)
{
    const char *const paths[] = { bench->data_path, NULL };
    RubatoDataSpec with_paths = *spec;
    g_autoptr(RubatoRows) rows = NULL;
    g_autofree char *buffer = g_malloc(READ_BYTES);
    double began = bench_now(), middle;
    size_t size;

    with_paths.paths = paths;
    rows = rubato_dataset_load(&with_paths, error);
    if (rows == NULL)
        return false;
    middle = bench_now();
    size = scan_file(bench->data_path, buffer, find_lines);
    if (size == 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be read: %s",
                    bench->data_path, g_strerror(errno));
        return false;
    }
    sample->own = (double)size / (middle - began);
    sample->limit = (double)size / (bench_now() - middle);
    return true;
}

bool sample_parse_libsvm(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    return make_file(bench, n, append_libsvm_row, error) &&
           sample_parse(bench, &(RubatoDataSpec){ .format = "libsvm" }, sample, error);
}

bool sample_parse_csv(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    return make_file(bench, n, append_csv_row, error) &&
           sample_parse(
               bench,
               &(RubatoDataSpec){ .format = "csv", .categorical_columns = categorical_columns },
               sample, error);
}

/* Reads n rows by one reader and does nothing with the batches. */
static bool sample_read(Bench *bench, size_t n, RubatoDataCache cache, BenchSample *sample,
                        GError **error)
{
    const char *const paths[] = { bench->data_path, NULL };
    const RubatoDataSpec spec = { .paths = paths, .format = "libffm", .cache = cache };
    const RubatoReaderOptions options = { .batch_rows = 256, .shuffle = true };
    g_autofree char *path =
        g_strconcat(bench->data_path, cache == RUBATO_DATA_CACHE_KEEP ? CACHE_EXTENSION : "", NULL);
    g_autofree char *buffer = g_malloc(READ_BYTES);
    g_autoptr(RubatoBatch) batch = NULL;
    g_autoptr(RubatoDataset) dataset = rubato_dataset_open(&spec, error);
    double began, middle;

    if (dataset == NULL)
        return false;
    began = bench_now();
    g_autoptr(RubatoReader) reader = rubato_dataset_open_reader(dataset, &options, error);
    while (reader != NULL && rubato_reader_next(reader, &batch, error))
        clobber(batch);
    if (reader == NULL || rubato_reader_failed(reader))
        return false;
    middle = bench_now();
    if (scan_file(path, buffer, cache == RUBATO_DATA_CACHE_KEEP ? NULL : find_lines) == 0) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: cannot be read: %s", path,
                    g_strerror(errno));
        return false;
    }
    sample->own = (double)n / (middle - began);
    sample->limit = (double)n / (bench_now() - middle);
    return true;
}

bool sample_read_text(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    return make_file(bench, n, append_libffm_row, error) &&
           sample_read(bench, n, RUBATO_DATA_CACHE_NONE, sample, error);
}

bool sample_read_cache(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    return make_file(bench, n, append_libffm_row, error) &&
           sample_read(bench, n, RUBATO_DATA_CACHE_KEEP, sample, error);
}
