/* Samples of snapshots: a table of n rows of 16 f32 is written and restored, beside a plain file of
 * as many bytes that is written and synchronised with the disk, or read.
 *
 * A worker cannot take a snapshot, so an engine of its own runs on a thread of its own. */
#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "apps/bench/bench.h"
#include "apps/bench/samples/samples.h"
#include "apps/bench/samples/snapshot_folders.h"

enum { WIDTH = 16, ROWS_AT_ONCE = 4096, PLAIN_BYTES = 1 << 20 };

typedef enum {
    MEASURED_WRITE,
    MEASURED_RESTORE,
} Measured;

typedef struct {
    size_t n_rows;
    Measured measured;
    const char *directory;
    BenchSample *sample;
} Snapshots;

static size_t size_of(const Snapshots *snapshots)
{
    return snapshots->n_rows * WIDTH * sizeof(float);
}

static RubatoEngine *make_engine(const Snapshots *snapshots, GError **error)
{
    const RubatoTableSpec spec = { .name = "snapshot",
                                   .width = WIDTH,
                                   .n_keys = snapshots->n_rows };
    g_autofree float *rows = g_new(float, ROWS_AT_ONCE *WIDTH);
    g_autoptr(RubatoEngine) engine =
        rubato_engine_new(&(RubatoEngineConfig){ .servers = 1 }, error);

    for (size_t i = 0; i < (size_t)ROWS_AT_ONCE * WIDTH; i++)
        rows[i] = (float)i / 7;
    if (engine == NULL || !rubato_engine_create_table(engine, &spec, error))
        return NULL;
    for (size_t first = 0; first < snapshots->n_rows; first += ROWS_AT_ONCE)
        if (!rubato_engine_set_range(engine, "snapshot", first,
                                     MIN(ROWS_AT_ONCE, snapshots->n_rows - first), rows, error))
            return NULL;
    return g_steal_pointer(&engine);
}

/* Writes a plain file, or reads it. */
static bool pass_plain(const Snapshots *snapshots, const char *path, Measured measured,
                       GError **error)
{
    const bool writes = measured == MEASURED_WRITE;
    const int fd = open(path, (writes ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY) | O_CLOEXEC, 0666);
    g_autofree char *buffer = g_malloc(PLAIN_BYTES);
    bool ok = fd >= 0;

    memset(buffer, 7, PLAIN_BYTES);
    for (size_t left = size_of(snapshots); ok && left > 0;) {
        const size_t some = MIN(left, PLAIN_BYTES);
        const ssize_t n = writes ? write(fd, buffer, some) : read(fd, buffer, some);

        ok = n > 0;
        left -= ok ? (size_t)n : 0;
    }
    ok = ok && (!writes || fsync(fd) == 0);
    if (!ok)
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s: %s", path, g_strerror(errno));
    if (fd >= 0)
        close(fd);
    return ok;
}

static bool pass_own(RubatoEngine *engine, const Snapshots *snapshots, Measured measured,
                     GError **error)
{
    const RubatoSnapshotSpec written = { .directory = snapshots->directory };
    const RubatoRestoreSpec restored = { .directory = snapshots->directory };

    return measured == MEASURED_WRITE ? rubato_engine_snapshot(engine, &written, NULL, error)
                                      : rubato_engine_restore(engine, &restored, NULL, error);
}

static bool measure_passes(RubatoEngine *engine, const Snapshots *snapshots, GError **error)
{
    g_autofree char *plain = g_build_filename(snapshots->directory, "plain", NULL);

    for (Measured pass = MEASURED_WRITE; pass <= snapshots->measured; pass++) {
        const double began = bench_now();

        if (!pass_own(engine, snapshots, pass, error))
            return false;
        const double middle = bench_now();
        if (!pass_plain(snapshots, plain, pass, error))
            return false;
        snapshots->sample->own = (double)size_of(snapshots) / (middle - began);
        snapshots->sample->limit = (double)size_of(snapshots) / (bench_now() - middle);
    }
    return true;
}

static bool measure(const char *directory, void *data, GError **error)
{
    Snapshots *const snapshots = data;

    snapshots->directory = directory;
    g_autoptr(RubatoEngine) engine = make_engine(snapshots, error);
    return engine != NULL && measure_passes(engine, snapshots, error);
}

typedef struct {
    SnapshotFolderFunc *function;
    void *data;
    char *directory;
    bool ok;
    GError *error;
} FolderUse;

static void *run(void *data)
{
    FolderUse *const use = data;

    use->ok = use->function(use->directory, use->data, &use->error);
    return NULL;
}

bool snapshot_folder_use(SnapshotFolderFunc *function, void *data, GError **error)
{
    FolderUse use = { .function = function, .data = data };

    use.directory = g_dir_make_tmp("rubato-bench-XXXXXX", error);
    if (use.directory == NULL)
        return false;
    g_thread_join(g_thread_new("snapshots", run, &use));
    snapshot_folder_remove_all(use.directory);
    g_free(use.directory);
    if (!use.ok)
        g_propagate_error(error, use.error);
    return use.ok;
}

void snapshot_folder_remove_all(const char *path)
{
    GDir *dir = g_dir_open(path, 0, NULL);

    for (const char *name; dir != NULL && (name = g_dir_read_name(dir)) != NULL;) {
        g_autofree char *entry = g_build_filename(path, name, NULL);

        snapshot_folder_remove_all(entry);
    }
    if (dir != NULL)
        g_dir_close(dir);
    (void)g_remove(path);
}

static bool take_sample(size_t n, Measured measured, BenchSample *sample, GError **error)
{
    Snapshots snapshots = { .n_rows = n, .measured = measured, .sample = sample };

    return snapshot_folder_use(measure, &snapshots, error);
}

bool sample_snapshot_write(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    (void)bench;
    return take_sample(n, MEASURED_WRITE, sample, error);
}

bool sample_snapshot_restore(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    (void)bench;
    return take_sample(n, MEASURED_RESTORE, sample, error);
}
