/* Samples of snapshots of changes: a table of n rows of 16 f32 has a full one; then a tenth of its
 * rows is added to, at random, and a second one has those.
 *
 * A worker cannot take a snapshot, so an engine of its own runs on a thread of its own. */
#include "apps/bench/bench.h"
#include "apps/bench/samples/samples.h"
#include "apps/bench/samples/snapshot_folders.h"

enum { WIDTH = 16, ROWS_AT_ONCE = 4096, OF_ALL = 10 /* one row of so many is added to */ };

typedef enum {
    MEASURED_BYTES,
    MEASURED_SECONDS,
} Measured;

typedef struct {
    size_t n_rows;
    Measured measured;
    const char *directory;
    BenchSample *sample;
} Increments;

/* Adds to each row of the keys below n_rows, or to n_rows / OF_ALL of them. */
static bool add_to(RubatoEngine *engine, size_t n_rows, bool all, GError **error)
{
    const size_t n_added = all ? n_rows : n_rows / OF_ALL;
    g_autofree RubatoKey *keys = g_new(RubatoKey, ROWS_AT_ONCE);
    g_autofree float *rows = g_new(float, ROWS_AT_ONCE *WIDTH);
    g_autoptr(GRand) random = g_rand_new_with_seed(7);

    for (size_t i = 0; i < (size_t)ROWS_AT_ONCE * WIDTH; i++)
        rows[i] = (float)i / 7;
    for (size_t first = 0; first < n_added; first += ROWS_AT_ONCE) {
        const size_t n = MIN(ROWS_AT_ONCE, n_added - first);

        /* One key of each run of OF_ALL, so that none comes twice. */
        for (size_t i = 0; i < n; i++)
            keys[i] = all ? first + i
                          : (first + i) * OF_ALL + (RubatoKey)g_rand_int_range(random, 0, OF_ALL);
        if (!rubato_engine_add(engine, "rows", keys, n, rows, error))
            return false;
    }
    return true;
}

/* Takes one, and says how long it took, or how many bytes it has. */
static bool take(RubatoEngine *engine, const Increments *increments, double *figure, GError **error)
{
    const RubatoSnapshotSpec spec = { .directory = increments->directory, .full_every = 2 };
    const double began = bench_now();
    uint64_t number;

    if (!rubato_engine_snapshot(engine, &spec, &number, error))
        return false;
    *figure = bench_now() - began;
    if (increments->measured == MEASURED_SECONDS)
        return true;
    g_autoptr(RubatoSnapshot) snapshot = rubato_snapshot_open(increments->directory, number, error);
    if (snapshot == NULL)
        return false;
    *figure = (double)rubato_snapshot_find_table(snapshot, "rows")->n_bytes;
    return true;
}

static bool measure(const char *directory, void *data, GError **error)
{
    Increments *const increments = data;
    const RubatoTableSpec spec = { .name = "rows", .width = WIDTH, .n_keys = increments->n_rows };
    g_autoptr(RubatoEngine) engine =
        rubato_engine_new(&(RubatoEngineConfig){ .servers = 1 }, error);

    increments->directory = directory;
    return engine != NULL && rubato_engine_create_table(engine, &spec, error) &&
           add_to(engine, increments->n_rows, /* all= */ true, error) &&
           take(engine, increments, &increments->sample->limit, error) &&
           add_to(engine, increments->n_rows, /* all= */ false, error) &&
           take(engine, increments, &increments->sample->own, error);
}

static bool take_sample(size_t n, Measured measured, BenchSample *sample, GError **error)
{
    Increments increments = { .n_rows = n, .measured = measured, .sample = sample };

    return snapshot_folder_use(measure, &increments, error);
}

bool sample_snapshot_increment_bytes(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    (void)bench;
    return take_sample(n, MEASURED_BYTES, sample, error);
}

bool sample_snapshot_increment_time(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    (void)bench;
    return take_sample(n, MEASURED_SECONDS, sample, error);
}
