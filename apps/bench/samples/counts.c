/* Samples that are not times: the longest stall, messages, bytes. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "apps/bench/bench.h"
#include "apps/bench/limits/limits.h"
#include "apps/bench/samples/samples.h"

/* Returns where the value is; NULL: there is no room for it. */
static BenchDetail *find_detail(Bench *bench, const char *name)
{
    BenchDetails *details = bench->details;
    size_t i = 0;

    while (i < details->n && details->at[i].name != name)
        i++;
    if (i == details->n && details->n < BENCH_MAX_DETAILS)
        details->at[details->n++] = (BenchDetail){ name, 0 };
    return i < BENCH_MAX_DETAILS ? &details->at[i] : NULL;
}

static void detail(Bench *bench, const char *name, double value)
{
    BenchDetail *const found = find_detail(bench, name);

    if (found != NULL)
        found->value = value;
}

/* The largest of all samples. */
static void detail_most(Bench *bench, const char *name, double value)
{
    BenchDetail *const found = find_detail(bench, name);

    if (found != NULL)
        found->value = MAX(found->value, value);
}

/* ---- how long a growing table holds a request up ---- */

enum { GROWTH_KEYS = 100 };

/* Of hash storage with one value in a row: see the case memory-hash. */
#define GROWTH_ROW_BYTES ((size_t)24)

/* How long the longest request took: by the clock, and of its thread's processor time. The thread
 * handles its requests itself. So the second says what the table does, and the kernel for its
 * memory; the first has what the kernel gives to others meanwhile, too. */
typedef struct {
    double wall, processor;
} Longest;

static void note_longest(Longest *longest, double wall, double processor)
{
    longest->wall = MAX(longest->wall, wall);
    longest->processor = MAX(longest->processor, processor);
}

static double processor_time(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time); /* a clock that each thread has */
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Adds to the rows from *row on, each followed by a Get. */
static bool add_rows(Bench *bench, size_t n, uint64_t *row, Longest *longest, GError **error)
{
    RubatoKey keys[GROWTH_KEYS];
    float value;

    *longest = (Longest){ 0 };
    for (size_t i = 0; i < n; i++) {
        double began, began_processor;

        for (size_t k = 0; k < GROWTH_KEYS; k++)
            keys[k] = bench_key(bench->what, (*row)++);
        began_processor = processor_time();
        began = bench_now();
        if (!rubato_kv_table_add(bench->table, keys, GROWTH_KEYS, bench->values, error) ||
            !rubato_kv_table_get(bench->table, keys, 1, &value, error))
            return false;
        note_longest(longest, bench_now() - began, processor_time() - began_processor);
    }
    return true;
}

/* The longest first access to a page of as much bare memory as so many requests fill: no table can
 * grow without it. */
static Longest access_pages(Bench *bench, size_t n)
{
    const size_t n_bytes = MAX(n * GROWTH_KEYS * GROWTH_ROW_BYTES, RAW_PAGE_BYTES);
    unsigned char *const memory = raw_allocate(bench, n_bytes);
    Longest longest = { 0 };

    for (size_t at = 0; at < n_bytes; at += RAW_PAGE_BYTES) {
        const double began_processor = processor_time(), began = bench_now();

        memory[at] = 1;
        clobber(memory);
        note_longest(&longest, bench_now() - began, processor_time() - began_processor);
    }
    raw_free(bench);
    return longest;
}

bool sample_growth(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    uint64_t old_row = bench->next_row;
    Longest growing, later;

    if (!add_rows(bench, n, &bench->next_row, &growing, error) ||
        !add_rows(bench, n, &old_row, &later, error))
        return false;
    const Longest bare = access_pages(bench, n);

    sample->own = growing.wall;
    sample->limit = bare.wall;
    detail(bench, "us once the keys are there", later.wall * 1e6);
    detail_most(bench, "us of processor time at most", growing.processor * 1e6);
    detail_most(bench, "of that once the keys are there", later.processor * 1e6);
    detail_most(bench, "of the limit's", bare.processor * 1e6);
    detail(bench, "rows at last", (double)bench->next_row);
    return true;
}

/* ---- how long sweeps of expired rows hold a request up ---- */

enum {
    GETS_BETWEEN = 1000, /* two looks at how many rows there are */
    SWEEP_S = 120,       /* a sweep takes some seconds */
};

/* Gets one after the other, until sweeps have removed all rows; the longest that one took. */
static bool get_while_swept(Bench *bench, double *longest, GError **error)
{
    const double began = bench_now();
    const RubatoKey key = bench_key(bench->what, 0);
    RubatoTableStats stats = { .n_rows = 1 };
    float value;

    *longest = 0;
    while (stats.n_rows > 0) {
        for (int i = 0; i < GETS_BETWEEN; i++) {
            const double before = bench_now();

            if (!rubato_kv_table_get(bench->table, &key, 1, &value, error))
                return false;
            const double took = bench_now() - before;
            *longest = MAX(*longest, took);
        }
        if (!rubato_engine_table_stats(bench->engine, "bench", &stats, error))
            return false;
        if (bench_now() - began > SWEEP_S) {
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                        "%" G_GUINT64_FORMAT " expired rows are still there after %d s",
                        stats.n_rows, SWEEP_S);
            return false;
        }
    }
    return true;
}

bool sample_expiry(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    Longest longest_add;
    RubatoTableStats full, empty;
    size_t resident;

    if (!add_rows(bench, n, &bench->next_row, &longest_add, error) ||
        !rubato_engine_table_stats(bench->engine, "bench", &full, error))
        return false;
    resident = bench_resident_bytes(0);
    for (uint32_t i = 0; i <= bench->what->table.expire_after; i++)
        if (!rubato_kv_table_clock(bench->table, error))
            return false;
    if (!get_while_swept(bench, &sample->own, error) ||
        !rubato_engine_table_stats(bench->engine, "bench", &empty, error))
        return false;
    sample->limit = 0;
    detail(bench, "rows that expired", (double)full.n_rows);
    detail(bench, "megabytes of the table with them", (double)full.n_bytes / 1e6);
    detail(bench, "... and without", (double)empty.n_bytes / 1e6);
    detail(bench, "resident megabytes of the process with them", (double)resident / 1e6);
    detail(bench, "... then without", (double)bench_resident_bytes(0) / 1e6);
    return true;
}

/* ---- messages between nodes ---- */

/* The messages between two nodes, in both directions. */
static RubatoMessageCounts crossed(const RubatoEngineStats *stats)
{
    return (RubatoMessageCounts){ .gets = stats->sent.gets + stats->received.gets,
                                  .adds = stats->sent.adds + stats->received.adds,
                                  .clocks = stats->sent.clocks + stats->received.clocks,
                                  .replies = stats->sent.replies + stats->received.replies };
}

bool sample_messages(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    const uint32_t n_nodes = rubato_engine_n_nodes(bench->engine);
    RubatoEngineStats before, after;
    RubatoMessageCounts first, last;
    bool ok;

    if (!rubato_worker_barrier(bench->worker, error))
        return false;
    rubato_engine_stats(bench->engine, &before);
    ok = rubato_worker_barrier(bench->worker, error) && iterate(bench, n, error) &&
         rubato_worker_barrier(bench->worker, error);
    if (!ok || rubato_worker_rank(bench->worker) != 0)
        return ok;
    rubato_engine_stats(bench->engine, &after);
    first = crossed(&before);
    last = crossed(&after);
    sample->own = (double)(last.clocks - first.clocks) / (double)n;
    sample->limit = n_nodes * (n_nodes - 1);
    detail(bench, "Gets", (double)(last.gets - first.gets) / (double)n);
    detail(bench, "Adds", (double)(last.adds - first.adds) / (double)n);
    detail(bench, "replies", (double)(last.replies - first.replies) / (double)n);
    detail(bench, "packets",
           (double)(after.packets_sent + after.packets_received - before.packets_sent -
                    before.packets_received) /
               (double)n);
    detail(bench, "kilobytes",
           (double)(after.bytes_sent + after.bytes_received - before.bytes_sent -
                    before.bytes_received) /
               (double)n / 1e3);
    return true;
}

/* ---- iterations on several nodes, and what they send ---- */

static uint64_t count_sent(const RubatoMessageCounts *sent)
{
    return sent->gets + sent->adds + sent->clocks + sent->announcements + sent->fences +
           sent->others + sent->replies + sent->controls;
}

enum { SENT_MESSAGES, SENT_CLOCKS, SENT_PACKETS, SENT_BYTES, N_SENT };

/* What this node has sent between two counts, in each of n iterations. */
static void count_between(const RubatoEngineStats *before, const RubatoEngineStats *after, size_t n,
                          double *row)
{
    row[SENT_MESSAGES] = (double)(count_sent(&after->sent) - count_sent(&before->sent));
    row[SENT_CLOCKS] = (double)(after->sent.clocks - before->sent.clocks);
    row[SENT_PACKETS] = (double)(after->packets_sent - before->packets_sent);
    row[SENT_BYTES] = (double)(after->bytes_sent - before->bytes_sent);
    for (size_t i = 0; i < N_SENT; i++)
        row[i] /= (double)n;
}

/* Collects what each node has sent in table BENCH_SENT_TABLE, and says the mean of all. */
static bool tell_sent(Bench *bench, const double *row, GError **error)
{
    const uint32_t n_nodes = rubato_engine_n_nodes(bench->engine);
    const RubatoKey key = rubato_worker_rank(bench->worker);
    g_autofree double *rows = g_new(double, (size_t)n_nodes *N_SENT);
    double sums[N_SENT] = { 0 };
    g_autoptr(RubatoKVTable) sent =
        rubato_worker_open_kv_table(bench->worker, BENCH_SENT_TABLE, RUBATO_F64, error);

    /* once a Get has seen the row, it is there for all */
    if (sent == NULL || !rubato_kv_table_add(sent, &key, 1, row, error) ||
        !rubato_kv_table_get(sent, &key, 1, rows, error) ||
        !rubato_worker_barrier(bench->worker, error) ||
        !rubato_kv_table_get_range(sent, 0, n_nodes, rows, error))
        return false;
    for (size_t i = 0; i < (size_t)n_nodes * N_SENT; i++)
        sums[i % N_SENT] += rows[i] / n_nodes;
    detail(bench, "messages that a node sends in an iteration", sums[SENT_MESSAGES]);
    detail(bench, "clocks among them", sums[SENT_CLOCKS]);
    detail(bench, "packets", sums[SENT_PACKETS]);
    detail(bench, "bytes", sums[SENT_BYTES]);
    detail(bench, "clocks of node 0", rows[SENT_CLOCKS]);
    return true;
}

bool sample_mixed(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    const BenchCase *what = bench->what;
    const double n_workers = rubato_worker_n_workers(bench->worker);
    RubatoEngineStats before, after;
    double began, seconds, row[N_SENT];

    if (!rubato_worker_barrier(bench->worker, error))
        return false;
    rubato_engine_stats(bench->engine, &before);
    began = bench_now();
    if (!what->run(bench, n, error) || !rubato_worker_barrier(bench->worker, error))
        return false;
    seconds = bench_now() - began;
    rubato_engine_stats(bench->engine, &after);
    count_between(&before, &after, n, row);
    if (!tell_sent(bench, row, error))
        return false;
    if (rubato_worker_rank(bench->worker) == 0)
        *sample =
            (BenchSample){ n_workers * (double)n / seconds, (double)n / what->run_limit(bench, n) };
    return true;
}

/* Bytes of the differences between neighbours, as varints of seven bits a byte. */
static double varint_bytes(const RubatoKey *keys, size_t n)
{
    size_t n_bytes = 0;

    for (size_t i = 0; i < n; i++) {
        uint64_t difference = keys[i] - (i == 0 ? 0 : keys[i - 1]);

        do
            n_bytes++;
        while ((difference >>= 7) != 0);
    }
    return (double)n_bytes;
}

/* A Get asks with keys alone. */
bool sample_key_bytes(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    const double n_keys = (double)bench->what->n_keys;
    RubatoEngineStats before, after;

    rubato_engine_stats(bench->engine, &before);
    if (!get_keys(bench, n, error))
        return false;
    rubato_engine_stats(bench->engine, &after);
    sample->own = (double)(after.bytes_sent - before.bytes_sent) / ((double)n * n_keys);
    sample->limit = varint_bytes(bench->keys, bench->what->n_keys) / n_keys;
    return true;
}

/* ---- barriers ---- */

static bool run_barriers(const Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    double began;

    if (!rubato_worker_barrier(bench->worker, error))
        return false;
    began = bench_now();
    for (size_t i = 0; i < n; i++)
        if (!rubato_worker_barrier(bench->worker, error))
            return false;
    sample->own = (bench_now() - began) / (double)n;
    return true;
}

static void run_bare_barriers(const Bench *bench, size_t n, BenchSample *sample)
{
    if (rubato_worker_rank(bench->worker) == 0)
        sample->limit = raw_barrier(rubato_worker_n_workers(bench->worker), n);
}

bool sample_barrier(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    if (!run_barriers(bench, n, sample, error))
        return false;
    run_bare_barriers(bench, n, sample);
    return true;
}

/* ---- many nodes ---- */

bool sample_nodes(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    RubatoEngineStats before, after;

    rubato_engine_stats(bench->engine, &before);
    if (!run_barriers(bench, n, sample, error))
        return false;
    rubato_engine_stats(bench->engine, &after); /* without the heartbeats of the limit's time */
    run_bare_barriers(bench, n, sample);
    if (rubato_worker_rank(bench->worker) != 0)
        return true;
    detail(bench, "ms until all nodes were started and had met", bench->start.seconds * 1e3);
    detail(bench, "ms of an empty task", bench->start.task_seconds * 1e3);
    detail(bench, "packets of the scheduler's node in a barrier",
           (double)(after.packets_sent - before.packets_sent) /
               (double)(n + 1)); /* one comes first */
    detail(bench, "resident kilobytes of the scheduler's node",
           (double)bench_resident_bytes(0) / 1e3);
    detail(bench, "of another node", (double)bench_resident_bytes(bench->start.peer_pid) / 1e3);
    return true;
}

/* ---- memory ---- */

size_t bench_resident_bytes(long pid)
{
    g_autofree char *path =
        pid == 0 ? g_strdup("/proc/self/statm") : g_strdup_printf("/proc/%ld/statm", pid);
    g_autofree char *text = NULL;
    size_t n_pages = 0;

    if (!g_file_get_contents(path, &text, NULL, NULL) || sscanf(text, "%*u %zu", &n_pages) != 1)
        g_error("cannot read %s", path);
    return n_pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* The row's key counts too, if the storage has to keep it. */
bool sample_row_bytes(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    const bool hashed = !bench_is_dense(bench->what);
    RubatoTableStats stats;

    (void)n;
    if (!rubato_engine_table_stats(bench->engine, "bench", &stats, error))
        return false;
    sample->own = (double)stats.n_bytes / (double)stats.n_rows;
    sample->limit = (double)(stats.row_bytes + (hashed ? sizeof(RubatoKey) : 0));
    detail(bench, "rows", (double)stats.n_rows);
    detail(bench, "resident bytes of the process for each",
           ((double)bench_resident_bytes(0) - (double)bench->resident_before) /
               (double)stats.n_rows);
    return true;
}

/* Adds, with Gets between them: in one process after each Add; between processes, where a Get takes
 * a hundred times as long, after each thousandth. */
static bool make_requests(Bench *bench, size_t n, GError **error)
{
    const size_t n_adds = bench->what->place == BENCH_PLACE_LOCAL ? 1 : 1000;
    float value;

    for (size_t done = 0; done < n; done += n_adds + 1)
        if (!add_key(bench, n_adds, error) ||
            !rubato_kv_table_get(bench->table, bench->keys, 1, &value, error))
            return false;
    return true;
}

static size_t resident_bytes(const Bench *bench)
{
    return bench_resident_bytes(0) +
           (bench->start.peer_pid != 0 ? bench_resident_bytes(bench->start.peer_pid) : 0);
}

/* What n requests leave behind. */
static bool sample_growth_of(Bench *bench, size_t n, BenchSample *sample,
                             bool (*make)(Bench *bench, size_t n, GError **error), GError **error)
{
    const size_t before = resident_bytes(bench);
    size_t after;

    if (!make(bench, n, error))
        return false;
    after = resident_bytes(bench);
    sample->own = ((double)after - (double)before) / (double)n;
    sample->limit = 0;
    detail(bench, "resident megabytes at last", (double)after / 1e6);
    return true;
}

bool sample_resident(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    return sample_growth_of(bench, n, sample, make_requests, error);
}

/* ---- tickets that nobody waits for ---- */

static void ignore_call(RubatoTicket ticket, const GError *error, void *user_data)
{
    (void)ticket;
    (void)error;
    (void)user_data;
}

/* Adds, Gets, and both in one, in turn; every sixteenth calls back. */
static bool make_tickets(Bench *bench, size_t n, GError **error)
{
    static const RubatoRequestOptions usual, calls_back = { .callback = ignore_call };
    const RubatoKey *key = bench->keys;
    const float one = 1;

    for (size_t i = 0; i < n; i++) {
        const RubatoRequestOptions *options = i % 16 == 0 ? &calls_back : &usual;
        const RubatoTicket ticket =
            i % 3 == 0 ? rubato_kv_table_add_async(bench->table, key, 1, &one, options, error)
            : i % 3 == 1
                ? rubato_kv_table_get_async(bench->table, key, 1, bench->values, options, error)
                : rubato_kv_table_add_get_async(bench->table, key, 1, &one, bench->values, options,
                                                error);

        if (ticket == 0)
            return false;
    }
    return rubato_worker_wait_all(bench->worker, error);
}

static size_t count_descriptors(void)
{
    g_autoptr(GDir) dir = g_dir_open("/proc/self/fd", 0, NULL);
    size_t n = 0;

    while (dir != NULL && g_dir_read_name(dir) != NULL)
        n++;
    return n;
}

/* Calls of a handler on one row, each with arguments; every sixteenth calls back. */
static bool make_handler_tickets(Bench *bench, size_t n, GError **error)
{
    static const RubatoRequestOptions usual, calls_back = { .callback = ignore_call };
    const double factor = 1;
    const RubatoHandlerCall call = { .table = "bench",
                                     .handler = "scale",
                                     .arguments = &factor,
                                     .n_argument_bytes = sizeof factor,
                                     .scope = RUBATO_SCOPE_KEYS,
                                     .keys = bench->keys,
                                     .n_keys = 1 };

    for (size_t i = 0; i < n; i++)
        if (rubato_worker_call_handler_async(bench->worker, &call, NULL,
                                             i % 16 == 0 ? &calls_back : &usual, error) == 0)
            return false;
    return rubato_worker_wait_all(bench->worker, error);
}

static bool sample_tickets_of(Bench *bench, size_t n, BenchSample *sample,
                              bool (*make)(Bench *bench, size_t n, GError **error), GError **error)
{
    const size_t before = count_descriptors();

    if (!sample_growth_of(bench, n, sample, make, error))
        return false;
    detail(bench, "more descriptors", (double)count_descriptors() - (double)before);
    return true;
}

bool sample_tickets(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    return sample_tickets_of(bench, n, sample, make_tickets, error);
}

bool sample_handler_tickets(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    return sample_tickets_of(bench, n, sample, make_handler_tickets, error);
}
