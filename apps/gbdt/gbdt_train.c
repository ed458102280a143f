/* rubato-gbdt: how trees grow, on the workers.
 *
 * Each worker keeps the bins of its rows. Trees grow level by level. For the nodes of a level each
 * worker adds the histograms of its rows to a table; the servers find the best splits where the
 * histograms are (gbdt_split.h), and all workers get these. Worker 0 adds the nodes to the table of
 * trees. A round is a tree for each score of a row. */
#include "apps/gbdt/gbdt_job.h"

#include <math.h>
#include <string.h>

/* ---- the rows ---- */

bool gbdt_read_share(RubatoWorker *worker, void *user_data, GError **error)
{
    const RubatoReaderOptions options = { .epochs = 1, .batch_rows = 1024 };
    GbdtJob *job = user_data;
    GbdtShare *share = &job->shares[rubato_worker_rank(worker)];

    if (!app_dense_read(&share->dense,
                        rubato_worker_open_reader(worker, job->rows.train, &options, error),
                        job->bins.n_columns, NAN, app_rows_scaling(&job->rows), error))
        return false;
    const RubatoBatch labels = { .n_rows = share->dense.n_rows, .label = share->dense.labels };
    if (!app_loss_check(&job->loss, job->rows.train, &labels, error) ||
        !gbdt_rows_init(&share->rows, &share->dense, &job->bins, app_loss_n_scores(&job->loss),
                        1u << job->depth, error))
        return false;
    for (size_t row = 0; row < share->rows.n_rows; row++) {
        float *label = &share->rows.labels[row];

        if (job->loss.kind == APP_LOSS_SOFTMAX)
            *label = (float)app_loss_class_of(&job->loss, *label);
    }
    return true;
}

/* What trees that were there before say of the rows, with the same bits as if they had just grown;
 * the values are not needed any more. */
static bool begin_scores(GbdtJob *job, GbdtShare *share, GError **error)
{
    const uint32_t n_scores = share->rows.n_scores;
    g_auto(GbdtForest) forest = { 0 };

    if (!gbdt_read_forest(job, &forest, error))
        return false;
    for (size_t row = 0; row < share->rows.n_rows; row++) {
        double *const scores = share->rows.scores + row * n_scores;

        for (uint32_t k = 0; k < n_scores; k++)
            scores[k] = app_loss_start(&job->loss);
        gbdt_forest_score(&forest, share->dense.values + row * share->dense.n_columns, n_scores,
                          scores);
    }
    app_dense_clear(&share->dense);
    share->is_scored = true;
    return true;
}

/* ---- gradients ---- */

typedef struct {
    double loss;
    uint64_t n_right;
} Tally;

static GbdtPair fixed(double g, double h, double scale)
{
    return (GbdtPair){ (int64_t)rint(g * scale), (int64_t)rint(h * scale) };
}

static void take_row(const GbdtJob *job, GbdtRows *rows, size_t row, Tally *tally)
{
    const float score = (float)rows->scores[row], label = rows->labels[row];
    float slope;

    tally->loss += (double)app_loss_of(&job->loss, score, label, &slope);
    tally->n_right += app_loss_is_right(&job->loss, score, label);
    /* of the logistic loss the slope is p − 1 or p, with the other's probability in it */
    const double g = (double)slope;
    const double h = job->loss.kind == APP_LOSS_SQUARED ? 1 : fabs(g) * (1 - fabs(g));
    rows->pairs[row] = fixed(g, h, job->scale);
}

static void take_row_of_classes(GbdtRows *rows, size_t row, double scale, Tally *tally)
{
    const uint32_t n = rows->n_scores, label = (uint32_t)rows->labels[row];
    const double *scores = rows->scores + row * n;
    uint32_t best = 0;
    double sum = 0;

    for (uint32_t k = 1; k < n; k++)
        if (scores[k] > scores[best])
            best = k;
    for (uint32_t k = 0; k < n; k++)
        sum += (double)expf((float)(scores[k] - scores[best]));
    for (uint32_t k = 0; k < n; k++) {
        const double p = (double)expf((float)(scores[k] - scores[best])) / sum;

        rows->pairs[k * rows->n_rows + row] =
            fixed(p - (k == label), MAX(2 * p * (1 - p), 1e-6), scale);
    }
    tally->loss += log(sum) + scores[best] - scores[label];
    tally->n_right += best == label;
}

static Tally take_gradients(const GbdtJob *job, GbdtRows *rows)
{
    Tally tally = { 0 };

    for (size_t row = 0; row < rows->n_rows; row++)
        if (job->loss.kind == APP_LOSS_SOFTMAX)
            take_row_of_classes(rows, row, job->scale, &tally);
        else
            take_row(job, rows, row, &tally);
    return tally;
}

/* ---- a tree ---- */

/* A worker's tables and memory. */
typedef struct {
    GbdtJob *job;
    RubatoWorker *worker;
    AppWorker *self;
    GbdtShare *share;
    RubatoKVTable *histograms, *trees;
    GBytes *terms;
    bool leads, is_last; /* worker 0; the last one, which calls for the splits */
    uint32_t *slots;     /* of the present level, that have rows */
    RubatoKey *keys;     /* the same, for the table */
    int64_t *packed;     /* their histograms, one after the other */
    int64_t *heads;      /* by slot */
    GArray *nodes;       /* of the tree: rows of the table of trees */
    GArray *node_keys;
} Trainer;

static void add_node(Trainer *trainer, uint64_t tree, uint32_t node, float column, float cut,
                     float missing_left, float value)
{
    const float row[GBDT_NODE_WIDTH] = { column, cut, missing_left, value };
    const RubatoKey key = gbdt_node_key(tree, node);

    g_array_append_vals(trainer->nodes, row, GBDT_NODE_WIDTH);
    g_array_append_val(trainer->node_keys, key);
}

/* A node that is not split any more: its rows get its value. */
static void end_node(Trainer *trainer, uint64_t tree, uint32_t level, uint32_t slot, int64_t g,
                     int64_t h)
{
    const GbdtJob *job = trainer->job;
    const double unit = 1 / job->scale;
    const double value = -job->app.learning_rate * (double)g * unit /
                         ((double)h * unit + job->terms.l2 + G_MINDOUBLE);

    add_node(trainer, tree, (1u << level) + slot, 0, 0, 0, (float)value);
    gbdt_rows_add(&trainer->share->rows, slot, (uint32_t)(tree % trainer->share->rows.n_scores),
                  (float)value);
}

/* Sums the histograms of n slots over all workers, and learns their splits. */
static bool find_splits(Trainer *trainer, size_t n, GError **error)
{
    const size_t width = trainer->share->rows.histogram_width;
    gsize n_terms;
    const void *terms = g_bytes_get_data(trainer->terms, &n_terms);
    RubatoHandlerCall call = { .table = GBDT_HISTOGRAMS,
                               .handler = GBDT_SPLIT,
                               .arguments = terms,
                               .n_argument_bytes = n_terms,
                               .scope = RUBATO_SCOPE_KEYS,
                               .keys = trainer->keys,
                               .n_keys = n };
    g_autoptr(GBytes) result = NULL;

    for (size_t i = 0; i < n; i++) {
        trainer->keys[i] = trainer->slots[i];
        memcpy(trainer->packed + i * width,
               trainer->share->rows.histograms + trainer->slots[i] * width,
               width * sizeof *trainer->packed);
    }
    if (!rubato_kv_table_add(trainer->histograms, trainer->keys, n, trainer->packed, error) ||
        (trainer->is_last && !rubato_worker_call_handler(trainer->worker, &call, NULL, error)) ||
        !rubato_kv_table_clock(trainer->histograms, error))
        return false;
    call.handler = GBDT_HEADS;
    call.arguments = NULL;
    call.n_argument_bytes = 0;
    if (!rubato_worker_call_handler(trainer->worker, &call, &result, error))
        return false;
    RubatoByteReader reader = rubato_byte_reader_of(result);
    for (size_t i = 0; i < n; i++) {
        const uint64_t slot = rubato_read_u64(&reader);
        int64_t *head = trainer->heads + (slot & ((1u << GBDT_DEPTH_MAX) - 1)) * GBDT_HEAD;

        for (size_t j = 0; j < GBDT_HEAD; j++)
            head[j] = rubato_read_i64(&reader);
    }
    return rubato_byte_reader_finish(&reader, "the splits", error);
}

/* The slots of the next level that have rows, from those of this one. Nodes that are not split end
 * here. */
static size_t descend(Trainer *trainer, uint64_t tree, uint32_t level, size_t n)
{
    const GbdtBins *bins = &trainer->job->bins;
    g_autofree uint32_t *slots = g_memdup2(trainer->slots, n * sizeof *slots);
    size_t n_next = 0;

    for (size_t i = 0; i < n; i++) {
        const int64_t *head = trainer->heads + (size_t)slots[i] * GBDT_HEAD;
        const int64_t column = head[GBDT_COLUMN];

        if (column < 0) {
            end_node(trainer, tree, level, slots[i], head[GBDT_G], head[GBDT_H]);
            continue;
        }
        add_node(trainer, tree, (1u << level) + slots[i], (float)(column + 1),
                 bins->cuts[column][head[GBDT_BIN] - 1], (float)head[GBDT_MISSING_LEFT], 0);
        trainer->slots[n_next++] = 2 * slots[i];
        trainer->slots[n_next++] = 2 * slots[i] + 1;
    }
    return n_next;
}

/* The last level's nodes are leaves, whose sums their parents' heads say. */
static void end_level(Trainer *trainer, uint64_t tree, uint32_t level, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t slot = trainer->slots[i];
        const int64_t *head = trainer->heads + (size_t)(slot / 2) * GBDT_HEAD;
        const bool left = slot % 2 == 0;

        end_node(trainer, tree, level, slot,
                 left ? head[GBDT_LEFT_G] : head[GBDT_G] - head[GBDT_LEFT_G],
                 left ? head[GBDT_LEFT_H] : head[GBDT_H] - head[GBDT_LEFT_H]);
    }
}

static bool grow_tree(Trainer *trainer, uint64_t tree, GError **error)
{
    const GbdtJob *job = trainer->job;
    GbdtRows *rows = &trainer->share->rows;
    const uint32_t score = (uint32_t)(tree % rows->n_scores);
    uint32_t level = 0;
    size_t n = 1;

    g_array_set_size(trainer->nodes, 0);
    g_array_set_size(trainer->node_keys, 0);
    gbdt_rows_begin_tree(rows);
    trainer->slots[0] = 0;
    for (; level < job->depth && n > 0; level++) {
        gbdt_rows_fill(rows, &job->bins, score, level, trainer->slots, n);
        for (uint32_t slot = 0; slot < 1u << level; slot++)
            trainer->heads[(size_t)slot * GBDT_HEAD] = -1;
        if (!find_splits(trainer, n, error))
            return false;
        n = descend(trainer, tree, level, n);
        gbdt_rows_split(rows, level, trainer->heads);
    }
    end_level(trainer, tree, level, n);
    return (!trainer->leads ||
            rubato_kv_table_add(trainer->trees, (RubatoKey *)(void *)trainer->node_keys->data,
                                trainer->node_keys->len, trainer->nodes->data, error)) &&
           rubato_kv_table_clock(trainer->trees, error);
}

/* ---- training ---- */

/* Whether all workers go on: none may leave the others with a tree that lacks its rows. */
static bool agree(Trainer *trainer, bool *goes_on, GError **error)
{
    double stops = !app_worker_goes_on(trainer->self);

    if (!rubato_worker_reduce(trainer->worker, &stops, 1, RUBATO_REDUCTION_SUM, error))
        return false;
    *goes_on = stops <= 0;
    return true;
}

static bool train_rounds(Trainer *trainer, GError **error)
{
    GbdtJob *job = trainer->job;
    const App *app = &job->app;
    GbdtRows *rows = &trainer->share->rows;
    const uint32_t first = app->only_epoch > 0 ? app->only_epoch - 1 : 0;
    const uint32_t last = app->only_epoch > 0 ? app->only_epoch : app->epochs;
    bool goes_on = true;

    for (uint32_t round = first; round < last; round++) {
        if (!agree(trainer, &goes_on, error))
            return false;
        if (!goes_on)
            return true;
        const Tally tally = take_gradients(job, rows);
        for (uint32_t k = 0; k < rows->n_scores; k++)
            if (!grow_tree(trainer, (job->n_loaded + round) * rows->n_scores + k, error))
                return false;
        if (!app_worker_step(trainer->self, rows->n_rows, tally.loss, (double)tally.n_right, error))
            return false;
    }
    return true;
}

static void trainer_clear(Trainer *trainer)
{
    rubato_kv_table_free(trainer->histograms);
    rubato_kv_table_free(trainer->trees);
    g_bytes_unref(trainer->terms);
    g_free(trainer->slots);
    g_free(trainer->keys);
    g_free(trainer->packed);
    g_free(trainer->heads);
    g_array_unref(trainer->nodes);
    g_array_unref(trainer->node_keys);
}

/* Opens the tables. */
static bool trainer_open(Trainer *trainer, GError **error)
{
    RubatoWorker *worker = trainer->worker;

    trainer->histograms = rubato_worker_open_kv_table(worker, GBDT_HISTOGRAMS, RUBATO_I64, error);
    if (trainer->histograms == NULL)
        return false;
    trainer->trees = rubato_worker_open_kv_table(worker, GBDT_TREES, RUBATO_F32, error);
    return trainer->trees != NULL;
}

static GBytes *terms_of(const GbdtJob *job)
{
    g_auto(RubatoByteWriter) writer = rubato_byte_writer_new(SIZE_MAX);

    (void)gbdt_write_terms(&writer, &job->terms);
    return g_bytes_new(writer.bytes, writer.n);
}

bool gbdt_train(RubatoWorker *worker, void *user_data, GError **error)
{
    GbdtJob *job = user_data;
    GbdtShare *share = &job->shares[rubato_worker_rank(worker)];
    const size_t n_slots = (size_t)1 << job->depth;
    Trainer trainer = {
        .job = job,
        .worker = worker,
        .share = share,
        .leads = rubato_worker_rank(worker) == 0,
        .is_last = rubato_worker_rank(worker) == rubato_worker_n_workers(worker) - 1,
        .terms = terms_of(job),
        .slots = g_new0(uint32_t, n_slots),
        .keys = g_new0(RubatoKey, n_slots),
        .packed = g_new(int64_t, n_slots * share->rows.histogram_width),
        .heads = g_new0(int64_t, ((size_t)1 << GBDT_DEPTH_MAX) * GBDT_HEAD),
        .nodes = g_array_new(FALSE, FALSE, sizeof(float)),
        .node_keys = g_array_new(FALSE, FALSE, sizeof(RubatoKey)),
    };

    g_autoptr(AppWorker) self = app_worker_new(&job->app, worker, error);
    trainer.self = self;
    const bool good = self != NULL && (share->is_scored || begin_scores(job, share, error)) &&
                      trainer_open(&trainer, error) && train_rounds(&trainer, error);
    trainer_clear(&trainer);
    return good;
}
