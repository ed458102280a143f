/* Samples of snapshots: a table of n rows of 16 f32 is written and restored, beside a plain file of
 * as many bytes that is written and synchronised with the disk, or read. What any program reaches
 * that reads the file twice, as restoring does, or once, and copies it to rows is told in words.
 *
 * A worker cannot take a snapshot, so an engine of its own runs on a thread of its own. */
#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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
    BenchDetails *details;
} Snapshots;

static size_t size_of(const Snapshots *snapshots)
{
    return snapshots->n_rows * WIDTH * sizeof(float);
}

/* Its rows have never been written. */
static RubatoEngine *make_new_engine(const Snapshots *snapshots, GError **error)
{
    const RubatoTableSpec spec = { .name = "snapshot",
                                   .width = WIDTH,
                                   .n_keys = snapshots->n_rows };
    g_autoptr(RubatoEngine) engine =
        rubato_engine_new(&(RubatoEngineConfig){ .servers = 1 }, error);

    if (engine == NULL || !rubato_engine_create_table(engine, &spec, error))
        return NULL;
    return g_steal_pointer(&engine);
}

static RubatoEngine *make_engine(const Snapshots *snapshots, GError **error)
{
    g_autofree float *rows = g_new(float, ROWS_AT_ONCE *WIDTH);
    g_autoptr(RubatoEngine) engine = make_new_engine(snapshots, error);

    for (size_t i = 0; i < (size_t)ROWS_AT_ONCE * WIDTH; i++)
        rows[i] = (float)i / 7;
    if (engine == NULL)
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

/* ---- bare threads that restore ---- */

typedef struct {
    const char *path;
    size_t first, n; /* the bytes of this thread */
    unsigned n_reads;
    char *rows; /* all bytes are copied there in the last reading */
    bool ok;
} BareShare;

static void *restore_share(void *data)
{
    BareShare *const share = data;
    const int fd = open(share->path, O_RDONLY | O_CLOEXEC);
    g_autofree char *buffer = g_malloc(PLAIN_BYTES);

    share->ok = fd >= 0;
    for (unsigned i = 1; i <= share->n_reads; i++)
        for (size_t done = 0; done < share->n && share->ok;) {
            const size_t at = share->first + done, most = MIN(share->n - done, PLAIN_BYTES);
            const ssize_t some = pread(fd, buffer, most, (off_t)at);

            share->ok = some > 0;
            if (share->ok && i == share->n_reads)
                memcpy(share->rows + at, buffer, (size_t)some);
            done += share->ok ? (size_t)some : 0;
        }
    if (fd >= 0)
        close(fd);
    return NULL;
}

/* As many threads as restoring has read a share each. 0: it could not be done. */
static double restore_bare(const char *path, char *rows, size_t n_bytes, unsigned n_reads)
{
    enum { MOST_THREADS = 4 };
    const unsigned n_processors = g_get_num_processors();
    const unsigned n_threads = CLAMP(n_processors, 1, MOST_THREADS);
    const size_t n_each = n_bytes / n_threads;
    const double began = bench_now();
    BareShare shares[MOST_THREADS];
    GThread *threads[MOST_THREADS];
    bool ok = true;

    for (unsigned i = 0; i < n_threads; i++) {
        const size_t n = i + 1 < n_threads ? n_each : n_bytes - i * n_each;

        shares[i] = (BareShare){ path, i * n_each, n, n_reads, rows, false };
        threads[i] = g_thread_new("bare", restore_share, &shares[i]);
    }
    for (unsigned i = 0; i < n_threads; i++) {
        g_thread_join(threads[i]);
        ok &= shares[i].ok;
    }
    return ok ? (double)n_bytes / (bench_now() - began) : 0;
}

static void note_bare(const Snapshots *snapshots, const char *path)
{
    const size_t n_bytes = size_of(snapshots);
    char *const rows =
        mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    double twice;

    if (rows == MAP_FAILED)
        return;
    (void)madvise(rows, n_bytes, MADV_HUGEPAGE); /* as tables have */
    memset(rows, 0, n_bytes);                    /* in memory now */
    twice = restore_bare(path, rows, n_bytes, 2);
    bench_note_mean(snapshots->details, 0, "bytes/s by bare threads that read it twice", twice);
    bench_note_mean(snapshots->details, 1, "times what these reach",
                    twice > 0 ? snapshots->sample->own / twice : 0);
    bench_note_mean(snapshots->details, 2, "bytes/s by those that read it once",
                    restore_bare(path, rows, n_bytes, 1));
    munmap(rows, n_bytes);
}

/* ---- the samples ---- */

static bool pass_own(RubatoEngine *engine, const Snapshots *snapshots, Measured measured,
                     GError **error)
{
    const RubatoSnapshotSpec written = { .directory = snapshots->directory };
    const RubatoRestoreSpec restored = { .directory = snapshots->directory };

    return measured == MEASURED_WRITE ? rubato_engine_snapshot(engine, &written, NULL, error)
                                      : rubato_engine_restore(engine, &restored, NULL, error);
}

/* A program that goes on from a snapshot restores into tables that it has just made. */
static bool note_new(const Snapshots *snapshots, GError **error)
{
    g_autoptr(RubatoEngine) engine = make_new_engine(snapshots, error);
    const double began = bench_now();

    if (engine == NULL || !pass_own(engine, snapshots, MEASURED_RESTORE, error))
        return false;
    bench_note_mean(snapshots->details, 3, "bytes/s into a table that was just made",
                    (double)size_of(snapshots) / (bench_now() - began));
    return true;
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
    if (snapshots->measured == MEASURED_WRITE)
        return true;
    note_bare(snapshots, plain);
    return note_new(snapshots, error);
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

static bool take_sample(Bench *bench, size_t n, Measured measured, BenchSample *sample,
                        GError **error)
{
    Snapshots snapshots = {
        .n_rows = n, .measured = measured, .sample = sample, .details = bench->details
    };

    return snapshot_folder_use(measure, &snapshots, error);
}

bool sample_snapshot_write(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    return take_sample(bench, n, MEASURED_WRITE, sample, error);
}

bool sample_snapshot_restore(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    return take_sample(bench, n, MEASURED_RESTORE, sample, error);
}
