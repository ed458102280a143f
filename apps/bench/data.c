/* Samples of reading training data: a file of made-up rows, once by Rubato, once by bare means. */
#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <string.h>
#include <unistd.h>

#include "apps/bench/bench.h"

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
    if (bench->data_path != NULL)
        g_unlink(bench->data_path);
    g_clear_pointer(&bench->data_path, g_free);
}

/* Reads the file and goes from newline to newline; its size, 0 where it cannot be read. */
static size_t scan_file(const char *path, char *buffer)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t size = 0, n_lines = 0;
    ssize_t n;

    if (fd < 0)
        return 0;
    while ((n = read(fd, buffer, READ_BYTES)) > 0) {
        const char *const end = buffer + n;

        for (const char *at = buffer; (at = memchr(at, '\n', (size_t)(end - at))) != NULL; at++)
            n_lines++;
        size += (size_t)n;
    }
    close(fd);
    clobber(&n_lines);
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
    size = scan_file(bench->data_path, buffer);
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
