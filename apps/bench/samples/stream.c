/* Samples of a model that streams: a worker adds so many rows a second to a table, versions of it
 * flow out one after the other, and a follower of another thread reads them.
 *
 * Each Add also sets a key of a small table to its time, and no other Add the same key, until the
 * keys begin again. The follower looks at these after each version: what is new there came with the
 * Adds of that time. So each Add is counted once, from its call to when it can be read.
 *
 * A worker cannot be paced by the bench's own engine, so one of its own runs on a thread of its
 * own. */
#include <arpa/inet.h>
#include <math.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "apps/bench/bench.h"
#include "apps/bench/samples/samples.h"
#include "apps/bench/samples/snapshot_folders.h"

#include <rubato/mix.h>

enum {
    WIDTH = 8,
    N_KEYS = 1000,     /* of an Add */
    N_TIMES = 4096,    /* keys of the small table */
    N_TABLE = 1000000, /* rows of the table */
};

#define TABLE "model"
#define TIMES "times"
#define EVERY_S 0.005
#define FULL_EVERY 5000 /* so none but the first has all rows, which takes longer */
#define SECONDS 2
#define LEAST_RATE 0.95

typedef struct {
    double rows_per_s, seconds;
    bool is_zmq; /* over ZeroMQ, else by files */
    char *directory, *uri, *followed;
    double counts_from;  /* the follower's: when it had the first version */
    _Atomic bool ends;   /* the follower's thread */
    GArray *lags;        /* of double: seconds; the follower's */
    double back_s;       /* how long going back took */
    uint64_t n_versions; /* applied in order */
    uint64_t n_rows;     /* added */
    double added_s;      /* in so many seconds */
    GError *error;       /* the engine's thread */
    GError *fault;       /* the follower's thread */
} Streaming;

/* ---- the worker ---- */

static bool add(RubatoKVTable *table, RubatoKVTable *times, uint64_t number, GError **error)
{
    static const float deltas[N_KEYS * WIDTH];
    const RubatoKey time_key = number % N_TIMES;
    RubatoKey keys[N_KEYS];
    const double now = bench_now();

    for (size_t i = 0; i < N_KEYS; i++)
        keys[i] = rubato_mix64(number * N_KEYS + i) % N_TABLE;
    /* the rule of the small table keeps the newest value */
    return rubato_kv_table_add(table, keys, N_KEYS, deltas, error) &&
           rubato_kv_table_add(times, &time_key, 1, &now, error);
}

static bool add_on(RubatoWorker *worker, void *user_data, GError **error)
{
    Streaming *const it = user_data;
    g_autoptr(RubatoKVTable) table = rubato_worker_open_kv_table(worker, TABLE, RUBATO_F32, error);
    g_autoptr(RubatoKVTable) times = rubato_worker_open_kv_table(worker, TIMES, RUBATO_F64, error);
    const double begin = bench_now();
    double now = begin;
    uint64_t number = 0;

    if (table == NULL || times == NULL)
        return false;
    for (; now - begin < it->seconds; now = bench_now()) {
        const double due = begin + (double)number * N_KEYS / it->rows_per_s;

        if (now < due) {
            g_usleep((gulong)((due - now) * G_USEC_PER_SEC));
            continue;
        }
        if (!add(table, times, number, error))
            return false;
        number++;
    }
    it->n_rows = number * N_KEYS;
    it->added_s = now - begin;
    return true;
}

/* ---- the follower ---- */

static bool note_lags(Streaming *it, RubatoFollower *follower, double *seen, GError **error)
{
    static double times[N_TIMES];
    RubatoKey keys[N_TIMES];

    for (size_t i = 0; i < N_TIMES; i++)
        keys[i] = i;
    if (!rubato_follower_get(follower, TIMES, keys, N_TIMES, times, NULL, NULL, error))
        return false;
    const double now = bench_now();
    for (size_t i = 0; i < N_TIMES; i++) {
        const double lag = now - times[i];

        if (times[i] > seen[i] && times[i] > it->counts_from)
            g_array_append_val(it->lags, lag);
        seen[i] = times[i];
    }
    return true;
}

static bool follow_on(Streaming *it, RubatoFollower *follower, GError **error)
{
    g_autofree double *seen = g_new0(double, N_TIMES);
    RubatoFollowed followed;
    uint64_t newest;
    double began;

    while (!atomic_load(&it->ends)) {
        if (!rubato_follower_advance(follower, 0.05, &followed, error))
            return false;
        it->n_versions += followed == RUBATO_FOLLOWED_NEXT;
        if (followed == RUBATO_FOLLOWED_ANEW)
            it->counts_from = bench_now();
        if (followed != RUBATO_FOLLOWED_NOTHING && !note_lags(it, follower, seen, error))
            return false;
    }
    newest = rubato_follower_version(follower, NULL);
    began = bench_now();
    if (newest > 1 && !rubato_follower_go_to(follower, newest - MIN(newest - 1, 32), error))
        return false;
    it->back_s = bench_now() - began;
    return true;
}

static void *follow(void *data)
{
    Streaming *const it = data;
    const RubatoFollowerSpec spec = { .uri = it->followed };
    g_autoptr(RubatoFollower) follower = rubato_follower_new(&spec, &it->fault);

    if (follower != NULL)
        (void)follow_on(it, follower, &it->fault); /* a failure is in fault */
    return NULL;
}

/* ---- a sample ---- */

static bool stream(Streaming *it, GError **error)
{
    const char *const tables[] = { TABLE, TIMES, NULL };
    const RubatoTaskStream stream_spec = {
        .uri = it->uri, .every_s = EVERY_S, .full_every = FULL_EVERY, .keep = FULL_EVERY
    };
    const RubatoTask task = { .name = "stream",
                              .run = add_on,
                              .user_data = it,
                              .tables = tables,
                              .workers_per_node = 1,
                              .stream = &stream_spec };
    const RubatoTableSpec model = {
        .name = TABLE, .width = WIDTH, .n_keys = N_TABLE, .model = "asp"
    };
    const RubatoTableSpec times = {
        .name = TIMES, .dtype = RUBATO_F64, .n_keys = N_TIMES, .update = "assign", .model = "asp"
    };
    g_autoptr(RubatoEngine) engine =
        rubato_engine_new(&(RubatoEngineConfig){ .servers = 1 }, error);

    return engine != NULL && rubato_engine_create_table(engine, &model, error) &&
           rubato_engine_create_table(engine, &times, error) &&
           rubato_engine_run(engine, &task, error);
}

/* A socket that is bound to a loopback port; *port 0: any. -1: it is taken. */
static int bind_port(unsigned *port)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)*port) };
    socklen_t size = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd >= 0 && bind(fd, (const struct sockaddr *)&at, sizeof at) == 0 &&
        getsockname(fd, (struct sockaddr *)&at, &size) == 0) {
        *port = ntohs(at.sin_port);
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

/* A port that is free now, as is the next one; 0 if none was found. */
static unsigned find_ports(void)
{
    for (int i = 0; i < 50; i++) {
        unsigned port = 0, next;
        const int first = bind_port(&port);

        next = port + 1;
        const int second = first >= 0 && next <= UINT16_MAX ? bind_port(&next) : -1;
        if (first >= 0)
            close(first);
        if (second < 0)
            continue;
        close(second);
        return port;
    }
    return 0;
}

static void name_stream(Streaming *it)
{
    if (it->is_zmq) {
        it->followed = g_strdup_printf("zmq:tcp://127.0.0.1:%u", find_ports());
        it->uri = g_strdup_printf("%s?directory=%s", it->followed, it->directory);
    } else {
        it->followed = g_strconcat("file:", it->directory, NULL);
        it->uri = g_strdup(it->followed);
    }
}

static void *run(void *data)
{
    Streaming *const it = data;

    (void)stream(it, &it->error); /* a failure is in error */
    return NULL;
}

static bool take(Streaming *it, GError **error)
{
    GThread *engine, *follower;

    it->directory = g_dir_make_tmp("rubato-bench-XXXXXX", error);
    if (it->directory == NULL)
        return false;
    name_stream(it);
    it->lags = g_array_new(FALSE, FALSE, sizeof(double));
    follower = g_thread_new("follower", follow, it);
    engine = g_thread_new("engine", run, it);
    g_thread_join(engine);
    atomic_store(&it->ends, true);
    g_thread_join(follower);
    snapshot_folder_remove_all(it->directory);
    g_free(it->directory);
    g_free(it->uri);
    g_free(it->followed);
    if (it->error == NULL && it->fault == NULL)
        return true;
    g_propagate_error(error, it->error != NULL ? it->error : g_steal_pointer(&it->fault));
    g_clear_error(&it->fault);
    return false;
}

static gint compare_lags(gconstpointer left, gconstpointer right)
{
    const double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

static double quantile(GArray *lags, double share)
{
    if (lags->len == 0)
        return (double)NAN;
    g_array_sort(lags, compare_lags);
    return g_array_index(lags, double, (guint)(share * (lags->len - 1)));
}

/* A worker that could not add as many rows as it should makes the sample fail: its lags would be
 * those of another load. */
static bool check_rate(const Streaming *it, GError **error)
{
    const double rate = (double)it->n_rows / it->added_s;

    if (rate >= LEAST_RATE * it->rows_per_s && it->lags->len > 0)
        return true;
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_TIMEOUT,
                "a worker has added %.0f rows a second instead of %.0f, and %u of its Adds were "
                "seen in %" G_GUINT64_FORMAT " versions",
                rate, it->rows_per_s, it->lags->len, it->n_versions);
    return false;
}

/* n rows a second. */
static bool take_sample(size_t n, bool is_zmq, Streaming *it, GError **error)
{
    *it = (Streaming){ .rows_per_s = (double)n, .seconds = SECONDS, .is_zmq = is_zmq };
    if (!take(it, error))
        return false;
    if (check_rate(it, error))
        return true;
    g_array_unref(it->lags);
    return false;
}

static bool sample_lag(size_t n, bool is_zmq, BenchSample *sample, GError **error)
{
    Streaming it;

    if (!take_sample(n, is_zmq, &it, error))
        return false;
    sample->own = quantile(it.lags, 0.99);
    sample->limit = quantile(it.lags, 0.5);
    g_array_unref(it.lags);
    return true;
}

bool sample_stream_lag(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    (void)bench;
    return sample_lag(n, /* is_zmq= */ false, sample, error);
}

bool sample_stream_lag_zmq(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    (void)bench;
    return sample_lag(n, /* is_zmq= */ true, sample, error);
}

bool sample_stream_back(Bench *bench, size_t n, BenchSample *sample, GError **error)
{
    Streaming it;

    (void)bench;
    if (!take_sample(n, /* is_zmq= */ false, &it, error))
        return false;
    sample->own = it.back_s;
    sample->limit = 0;
    g_array_unref(it.lags);
    return true;
}
