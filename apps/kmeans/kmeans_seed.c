/* The first centres, by tasks of their own under "bsp", so that the same seed gives the same
 * centres under every model.
 *
 * plus-plus takes one row after another, each with a probability that grows with its squared
 * distance to those taken before (D. Arthur, S. Vassilvitskii: k-means++, SODA 2007). parallel
 * takes about 2 k rows at a time in a few rounds, and then k of these candidates, weighed by how
 * many rows each is near to (B. Bahmani and others: Scalable k-means++, VLDB 2012).
 *
 * Each round is one clock: workers add to a table of masses, and the rows that were taken to a
 * table of candidates. */
#include "apps/kmeans/kmeans_job.h"

#include <math.h>
#include <rubato/mix.h>
#include <string.h>

#define MASSES "seed-masses"
#define CANDIDATES "seed-candidates"
#define WEIGHTS "seed-weights"

#define N_ROUNDS 5     /* of parallel */
#define OVERSAMPLING 2 /* candidates of a round, for each cluster */
#define N_REFINEMENTS 10

/* A row of masses for each round, a value for each worker. */
typedef struct {
    KmeansJob *job;
    RubatoWorker *worker;
    uint32_t rank, n_workers;
    RubatoKVTable *masses, *candidates;
    const AppDense *rows;
    float *distance; /* of each row: squared, to the nearest candidate so far */
    double *mass;    /* n_workers */
    uint64_t round;
} Seeder;

/* From 0 to 1; the same for the same numbers. */
static double draw(uint64_t seed, uint64_t stream, uint64_t i)
{
    const uint64_t bits =
        rubato_mix64(rubato_mix64(seed + 1) ^ rubato_mix64(stream + 1) ^ rubato_mix64(~(i + 1)));

    return (double)(bits >> 11) * 0x1p-53;
}

/* Tells this worker's mass, and learns all of them; their sum is *total. */
static bool share_mass(Seeder *seeder, double own, double *total, GError **error)
{
    memset(seeder->mass, 0, seeder->n_workers * sizeof *seeder->mass);
    seeder->mass[seeder->rank] = own;
    if (!rubato_kv_table_add_range(seeder->masses, seeder->round, 1, seeder->mass, error) ||
        !rubato_kv_table_clock(seeder->masses, error) ||
        !rubato_kv_table_get_range(seeder->masses, seeder->round, 1, seeder->mass, error))
        return false;
    seeder->round++;
    *total = 0;
    for (uint32_t i = 0; i < seeder->n_workers; i++)
        *total += seeder->mass[i];
    return true;
}

/* After n candidates from `first` on were shared: how near the rows are now. */
static bool learn_distances(Seeder *seeder, uint64_t first, uint32_t n, GError **error)
{
    const uint32_t n_columns = seeder->job->n_columns;
    const size_t n_rows = seeder->rows->n_rows;
    g_autofree uint32_t *nearest = g_new(uint32_t, n_rows + 1);
    g_autofree float *distance = g_new(float, n_rows + 1);
    KmeansCentres centres;

    if (n == 0)
        return true;
    kmeans_centres_init(&centres, n, n_columns);
    const bool good =
        rubato_kv_table_get_range(seeder->candidates, first, n, centres.values, error);
    if (good) {
        kmeans_centres_update(&centres);
        kmeans_classify(&centres, seeder->rows->values, n_rows, nearest, distance);
        for (size_t i = 0; i < n_rows; i++)
            seeder->distance[i] = MIN(seeder->distance[i], distance[i]);
    }
    kmeans_centres_clear(&centres);
    return good;
}

static double sum_of(const float *values, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (double)values[i];
    return sum;
}

/* The place at which a running sum of masses goes past `mark`: the last with any mass if none
 * does. */
static size_t find_place(const float *masses, size_t n, double mark)
{
    size_t place = n;
    double sum = 0;

    for (size_t i = 0; i < n && (place == n || sum <= mark); i++) {
        sum += (double)masses[i];
        if (masses[i] > 0)
            place = i;
    }
    return place;
}

/* Shares row `place` of this worker as a candidate. */
static bool give(Seeder *seeder, uint64_t candidate, size_t place, GError **error)
{
    return rubato_kv_table_add_range(seeder->candidates, candidate, 1,
                                     seeder->rows->values + place * seeder->rows->n_columns, error);
}

static bool refuse_few(uint64_t n, const KmeansJob *job, GError **error)
{
    return app_refuse(
        error, "--clusters %d: the rows to train on have only %" G_GUINT64_FORMAT " different ones",
        job->n_clusters, n);
}

static void fill(Seeder *seeder, float value)
{
    for (size_t i = 0; i < seeder->rows->n_rows; i++)
        seeder->distance[i] = value;
}

/* The worker whose row is drawn by a mark among all masses; *before gets the masses before its
 * own. */
static uint32_t find_owner(const Seeder *seeder, double mark, double *before)
{
    uint32_t owner = 0;
    double sum = 0;

    for (uint32_t i = 0; i < seeder->n_workers && sum <= mark; i++)
        if (seeder->mass[i] > 0) {
            owner = i;
            *before = sum;
            sum += seeder->mass[i];
        }
    return owner;
}

/* One more candidate, which is drawn among all rows by their distances; the first one evenly. */
static bool take_one(Seeder *seeder, uint64_t candidate, GError **error)
{
    const size_t n_rows = seeder->rows->n_rows;
    double total, before = 0;

    if (candidate == 0)
        fill(seeder, 1);
    if (!share_mass(seeder, sum_of(seeder->distance, n_rows), &total, error))
        return false;
    if (!(total > 0))
        return refuse_few(candidate, seeder->job, error);
    const double mark = draw(seeder->job->app.seed, 0, candidate) * total;
    const uint32_t owner = find_owner(seeder, mark, &before);
    if (owner == seeder->rank &&
        !give(seeder, candidate, find_place(seeder->distance, n_rows, mark - before), error))
        return false;
    if (candidate == 0)
        fill(seeder, INFINITY);
    return rubato_kv_table_clock(seeder->candidates, error) &&
           learn_distances(seeder, candidate, 1, error);
}

static bool seed_plus_plus(Seeder *seeder, uint64_t *n_candidates, GError **error)
{
    *n_candidates = (uint64_t)seeder->job->n_clusters;
    for (uint64_t i = 0; i < *n_candidates; i++)
        if (!take_one(seeder, i, error))
            return false;
    return true;
}

/* ---- parallel ---- */

/* The rows that this worker draws in a round: *places gets them. (*places: transfer full) */
static size_t draw_many(const Seeder *seeder, double total, size_t **places)
{
    const double most = OVERSAMPLING * (double)seeder->job->n_clusters / total;
    const uint64_t stream = seeder->round * seeder->n_workers + seeder->rank + 1;
    size_t n = 0;

    *places = g_new(size_t, seeder->rows->n_rows + 1);
    for (size_t i = 0; i < seeder->rows->n_rows; i++)
        if (draw(seeder->job->app.seed, stream, i) < most * (double)seeder->distance[i])
            (*places)[n++] = i;
    return n;
}

static bool take_many(Seeder *seeder, uint64_t *n_candidates, GError **error)
{
    g_autofree size_t *places = NULL;
    double total, n_new;

    if (!share_mass(seeder, sum_of(seeder->distance, seeder->rows->n_rows), &total, error))
        return false;
    const size_t n = total > 0 ? draw_many(seeder, total, &places) : 0;
    if (!share_mass(seeder, (double)n, &n_new, error))
        return false;
    uint64_t at = *n_candidates;
    for (uint32_t i = 0; i < seeder->rank; i++)
        at += (uint64_t)seeder->mass[i];
    for (size_t i = 0; i < n; i++)
        if (!give(seeder, at + i, places[i], error))
            return false;
    if (!rubato_kv_table_clock(seeder->candidates, error) ||
        !learn_distances(seeder, *n_candidates, (uint32_t)n_new, error))
        return false;
    *n_candidates += (uint64_t)n_new;
    return true;
}

/* Until there are enough candidates; then there is a place where none can be drawn any more. */
static bool seed_parallel(Seeder *seeder, uint64_t *n_candidates, GError **error)
{
    const uint64_t n_clusters = (uint64_t)seeder->job->n_clusters;

    if (!take_one(seeder, 0, error))
        return false;
    *n_candidates = 1;
    for (unsigned round = 0; round < N_ROUNDS; round++)
        if (!take_many(seeder, n_candidates, error))
            return false;
    for (; *n_candidates < n_clusters; ++*n_candidates)
        if (!take_one(seeder, *n_candidates, error))
            return false;
    return true;
}

/* How many rows each candidate is nearest to, over all workers. */
static bool weigh(Seeder *seeder, const KmeansCentres *candidates, double *weights, GError **error)
{
    const size_t n_rows = seeder->rows->n_rows;
    g_autofree uint32_t *nearest = g_new(uint32_t, n_rows + 1);
    g_autofree float *distance = g_new(float, n_rows + 1);
    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(seeder->worker, WEIGHTS, RUBATO_F64, error);
    const size_t n = candidates->n_clusters;

    if (table == NULL)
        return false;
    kmeans_classify(candidates, seeder->rows->values, n_rows, nearest, distance);
    for (size_t i = 0; i < n_rows; i++)
        weights[nearest[i]]++;
    return rubato_kv_table_add_range(table, 0, n, weights, error) &&
           rubato_kv_table_clock(table, error) &&
           rubato_kv_table_get_range(table, 0, n, weights, error);
}

/* ---- k of the candidates ---- */

/* A centre is drawn among candidates as rows were before. */
static void draw_centres(const KmeansJob *job, const KmeansCentres *candidates,
                         const double *weights, KmeansCentres *centres)
{
    const size_t n = candidates->n_clusters, n_columns = centres->n_columns;
    g_autofree float *distance = g_new(float, n), *mass = g_new(float, n), *next = g_new(float, n);
    g_autofree uint32_t *nearest = g_new(uint32_t, n);
    KmeansCentres one;

    for (size_t i = 0; i < n; i++)
        distance[i] = 1;
    kmeans_centres_init(&one, 1, centres->n_columns);
    for (uint32_t c = 0; c < centres->n_clusters; c++) {
        for (size_t i = 0; i < n; i++)
            mass[i] = (float)weights[i] * distance[i];
        const double mark = draw(job->app.seed, UINT32_MAX, c) * sum_of(mass, n);
        const size_t place = find_place(mass, n, mark) % n;

        memcpy(one.values, candidates->values + place * n_columns, n_columns * sizeof(float));
        memcpy(centres->values + c * n_columns, one.values, n_columns * sizeof(float));
        kmeans_centres_update(&one);
        kmeans_classify(&one, candidates->values, n, nearest, next);
        for (size_t i = 0; i < n; i++)
            distance[i] = c == 0 ? next[i] : MIN(distance[i], next[i]);
    }
    kmeans_centres_clear(&one);
    kmeans_centres_update(centres);
}

static void refine(const KmeansCentres *candidates, const double *weights, KmeansCentres *centres)
{
    const size_t n = candidates->n_clusters, n_columns = centres->n_columns;
    const size_t width = KMEANS_SUM_WIDTH(n_columns);
    g_autofree double *sums = g_new(double, centres->n_clusters *width);
    g_autofree float *distance = g_new(float, n);
    g_autofree uint32_t *nearest = g_new(uint32_t, n);

    for (unsigned round = 0; round < N_REFINEMENTS; round++) {
        memset(sums, 0, centres->n_clusters * width * sizeof *sums);
        kmeans_classify(centres, candidates->values, n, nearest, distance);
        for (size_t i = 0; i < n; i++) {
            double *sum = sums + nearest[i] * width;

            sum[0] += weights[i];
            for (size_t j = 0; j < n_columns; j++)
                sum[1 + j] += weights[i] * (double)candidates->values[i * n_columns + j];
        }
        kmeans_centres_follow(centres, sums, NULL);
    }
}

/* From candidates to centres, which the worker with rank 0 writes. */
static bool finish(Seeder *seeder, uint64_t n_candidates, GError **error)
{
    const KmeansJob *job = seeder->job;
    const uint32_t n_clusters = (uint32_t)job->n_clusters;
    g_autofree double *weights = g_new0(double, n_candidates);
    KmeansCentres candidates, centres;

    g_autoptr(RubatoKVTable) table =
        rubato_worker_open_kv_table(seeder->worker, KMEANS_CENTRES, RUBATO_F32, error);
    if (table == NULL)
        return false;
    kmeans_centres_init(&candidates, (uint32_t)n_candidates, job->n_columns);
    kmeans_centres_init(&centres, n_clusters, job->n_columns);
    bool good =
        rubato_kv_table_get_range(seeder->candidates, 0, n_candidates, candidates.values, error);
    if (good) {
        kmeans_centres_update(&candidates);
        memcpy(centres.values, candidates.values,
               (size_t)n_clusters * job->n_columns * sizeof(float));
        good = n_candidates == n_clusters || weigh(seeder, &candidates, weights, error);
    }
    if (good && seeder->rank == 0) {
        if (n_candidates > n_clusters) {
            draw_centres(job, &candidates, weights, &centres);
            refine(&candidates, weights, &centres);
        }
        good = rubato_kv_table_add_range(table, 0, n_clusters, centres.values, error);
    }
    kmeans_centres_clear(&candidates);
    kmeans_centres_clear(&centres);
    return good;
}

/* ---- the task ---- */

static bool seed_with(Seeder *seeder, GError **error)
{
    uint64_t n_candidates;

    return (seeder->job->seed == KMEANS_SEED_PARALLEL
                ? seed_parallel(seeder, &n_candidates, error)
                : seed_plus_plus(seeder, &n_candidates, error)) &&
           finish(seeder, n_candidates, error);
}

static bool seed(RubatoWorker *worker, void *user_data, GError **error)
{
    KmeansJob *job = user_data;
    const uint32_t n_workers = rubato_worker_n_workers(worker), rank = rubato_worker_rank(worker);

    if (!kmeans_load_share(job, worker, error))
        return false;
    const AppDense *rows = &job->shares[rank].rows;
    g_autofree float *distance = g_new(float, rows->n_rows + 1);
    g_autofree double *mass = g_new(double, n_workers);
    g_autoptr(RubatoKVTable) masses =
        rubato_worker_open_kv_table(worker, MASSES, RUBATO_F64, error);
    if (masses == NULL)
        return false;
    g_autoptr(RubatoKVTable) candidates =
        rubato_worker_open_kv_table(worker, CANDIDATES, RUBATO_F32, error);
    Seeder seeder = { .job = job,
                      .worker = worker,
                      .rank = rank,
                      .n_workers = n_workers,
                      .masses = masses,
                      .candidates = candidates,
                      .rows = rows,
                      .distance = distance,
                      .mass = mass };

    return candidates != NULL && seed_with(&seeder, error);
}

bool kmeans_seed(KmeansJob *job, GError **error)
{
    static const char *const tables[] = { MASSES, CANDIDATES, WEIGHTS, KMEANS_CENTRES, NULL };
    RubatoEngine *engine = job->app.engine;
    const RubatoTableSpec masses = {
        .name = MASSES, .dtype = RUBATO_F64, .width = job->n_shares, .model = "bsp"
    };
    const RubatoTableSpec candidates = {
        .name = CANDIDATES, .dtype = RUBATO_F32, .width = job->n_columns, .model = "bsp"
    };
    const RubatoTableSpec weights = { .name = WEIGHTS, .dtype = RUBATO_F64, .model = "bsp" };
    const RubatoTask task = {
        .name = "kmeans-seed", .run = seed, .user_data = job, .tables = tables
    };

    return app_create_table(&job->app, &masses, error) &&
           app_create_table(&job->app, &candidates, error) &&
           app_create_table(&job->app, &weights, error) &&
           rubato_engine_run(engine, &task, error) &&
           rubato_engine_drop_table(engine, MASSES, error) &&
           rubato_engine_drop_table(engine, CANDIDATES, error) &&
           rubato_engine_drop_table(engine, WEIGHTS, error);
}
