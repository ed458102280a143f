/* The fixed split: seed, epoch and ranks decide which worker reads which block, so no worker has to
 * ask.
 *
 * The blocks of all plain files are one list, which has a seeded order in each epoch and is
 * distributed round robin. Packed files can only be read from their beginning. If there are at
 * least as many as workers, each file has one reader, and the largest are assigned first; else each
 * file's blocks are distributed in their order. Nothing here depends on what one process knows and
 * another does not, such as the number of blocks of a packed file.
 *
 * Runs on the reader's thread. */
#include <string.h>

#include "io/data/deal/block_source.h"
#include "io/data/formats/text_hash.h"
#include "io/data/random.h"

#define ORDER_STREAM UINT64_C(0x626c6f636b73) /* apart from those of rows */

/* Blocks of one input: first, first + stride, … until `end` or, of a packed file, until there are
 * no more. */
typedef struct {
    uint32_t input;
    uint64_t next, stride, end;
} BlockRun;

typedef struct {
    BlockSource source;
    RubatoDataset *dataset;
    RubatoReaderOptions options;
    uint32_t rank, n_workers;
    uint32_t *reader_of; /* by input: who reads a packed one; n_workers: all of them */

    uint32_t epoch; /* the present one; it has begun */
    GArray *runs;   /* of BlockRun, this epoch's */
    guint at;       /* the present one */
} FixedSplit;

typedef struct {
    uint32_t input;
    uint64_t size;
} PackedInput;

static int compare_sizes(const void *a, const void *b)
{
    const PackedInput *left = a, *right = b;

    if (left->size != right->size)
        return left->size < right->size ? 1 : -1;
    return (left->input > right->input) - (left->input < right->input);
}

/* Assigns the largest first, each to the worker that has the least (R. Graham: Bounds on
 * multiprocessing timing anomalies, 1969). */
static void assign_packed(FixedSplit *split)
{
    const uint32_t n_inputs = dataset_n_inputs(split->dataset);
    g_autofree uint64_t *load = g_new0(uint64_t, split->n_workers);
    g_autoptr(GArray) packed = g_array_new(FALSE, FALSE, sizeof(PackedInput));

    for (uint32_t i = 0; i < n_inputs; i++) {
        const Input *input = dataset_input(split->dataset, i);

        split->reader_of[i] = split->n_workers;
        if (input_is_packed(input))
            g_array_append_val(packed, ((PackedInput){ i, input_size(input) }));
    }
    if (packed->len < split->n_workers)
        return;
    g_array_sort(packed, compare_sizes);
    for (guint i = 0; i < packed->len; i++) {
        const PackedInput *input = &g_array_index(packed, PackedInput, i);
        uint32_t least = 0;

        for (uint32_t worker = 1; worker < split->n_workers; worker++)
            if (load[worker] < load[least])
                least = worker;
        load[least] += input->size;
        split->reader_of[input->input] = least;
    }
}

static void add_plain(FixedSplit *split, Random *random)
{
    const uint32_t n_inputs = dataset_n_inputs(split->dataset);
    g_autoptr(GArray) blocks = g_array_new(FALSE, FALSE, sizeof(BlockRun));
    g_autofree uint32_t *order = NULL;

    for (uint32_t i = 0; i < n_inputs; i++) {
        Input *input = dataset_input(split->dataset, i);

        for (uint64_t block = 0; !input_is_packed(input) && block < input_n_blocks(input); block++)
            g_array_append_val(blocks, ((BlockRun){ i, block, 1, block + 1 }));
    }
    if (split->options.shuffle) {
        order = g_new(uint32_t, blocks->len + 1);
        random_order(random, order, blocks->len);
    }
    /* another worker gets the additional block in each epoch */
    for (guint i = (split->rank + split->epoch) % split->n_workers; i < blocks->len;
         i += split->n_workers)
        g_array_append_val(split->runs,
                           g_array_index(blocks, BlockRun, order != NULL ? order[i] : i));
}

/* If a packed file has a cache, its blocks may be read in any order. Each worker still has the same
 * blocks, but shuffled. */
static void add_shuffled(FixedSplit *split, const BlockRun *run, Random *random)
{
    const uint64_t n_blocks = dataset_n_blocks(split->dataset, run->input);
    const uint64_t n =
        n_blocks > run->next ? (n_blocks - run->next + run->stride - 1) / run->stride : 0;
    g_autofree uint32_t *order = g_new(uint32_t, n + 1);

    random_order(random, order, n);
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t block = run->next + order[i] * run->stride;

        g_array_append_val(split->runs, ((BlockRun){ run->input, block, 1, block + 1 }));
    }
}

static void add_packed(FixedSplit *split, Random *random)
{
    const uint32_t n_inputs = dataset_n_inputs(split->dataset);
    g_autofree uint32_t *order = g_new(uint32_t, n_inputs + 1);

    for (uint32_t i = 0; i < n_inputs; i++)
        order[i] = i;
    if (split->options.shuffle)
        random_order(random, order, n_inputs);
    /* not from the other stream, which must be the same with and without a cache */
    Random blocks = random_stream(random->state, split->rank);
    for (uint32_t i = 0; i < n_inputs; i++) {
        BlockRun run = { order[i], 0, 1, UINT64_MAX };
        const uint32_t reader = split->reader_of[order[i]];

        if (!input_is_packed(dataset_input(split->dataset, order[i])))
            continue;
        if (reader == split->n_workers) {
            run.next = (split->rank + split->epoch) % split->n_workers;
            run.stride = split->n_workers;
        } else if (reader != split->rank) {
            continue;
        }
        if (split->options.shuffle && dataset_in_any_order(split->dataset, run.input)) {
            Random own = random_stream(random_bits(&blocks), run.input);

            add_shuffled(split, &run, &own);
        } else {
            g_array_append_val(split->runs, run);
        }
    }
}

static void begin_epoch(FixedSplit *split)
{
    Random random = random_stream(split->options.seed ^ ORDER_STREAM, split->epoch);

    g_array_set_size(split->runs, 0);
    split->at = 0;
    add_plain(split, &random);
    add_packed(split, &random);
}

static bool take(BlockSource *source, BlockTicket *ticket, GError **error)
{
    FixedSplit *split = (FixedSplit *)source;

    (void)error;
    for (;;) {
        if (split->at == split->runs->len) {
            if (split->epoch + 1 >= split->options.epochs)
                return false;
            split->epoch++;
            begin_epoch(split);
            continue;
        }
        BlockRun *run = &g_array_index(split->runs, BlockRun, split->at);
        if (run->next < run->end) {
            *ticket =
                (BlockTicket){ .epoch = split->epoch, .input = run->input, .block = run->next };
            run->next += run->stride;
            return true;
        }
        split->at++;
    }
}

static void absent(BlockSource *source, const BlockTicket *ticket)
{
    FixedSplit *split = (FixedSplit *)source;
    BlockRun *run = &g_array_index(split->runs, BlockRun, split->at);

    if (run->input == ticket->input)
        run->end = MIN(run->end, ticket->block);
}

static void destroy(BlockSource *source)
{
    FixedSplit *split = (FixedSplit *)source;

    g_array_free(split->runs, TRUE);
    g_free(split->reader_of);
    rubato_dataset_free(split->dataset);
    g_free(split);
}

static const BlockSourceOps fixed_split_ops = { .take = take,
                                                .absent = absent,
                                                .destroy = destroy };

BlockSource *fixed_split_new(RubatoDataset *dataset, const RubatoReaderOptions *options,
                             uint32_t rank, uint32_t n_workers)
{
    FixedSplit *split = g_new0(FixedSplit, 1);

    split->source.ops = &fixed_split_ops;
    split->dataset = dataset_ref(dataset);
    split->options = *options;
    split->rank = rank;
    split->n_workers = n_workers;
    split->reader_of = g_new(uint32_t, dataset_n_inputs(dataset) + 1);
    split->runs = g_array_new(FALSE, FALSE, sizeof(BlockRun));
    assign_packed(split);
    begin_epoch(split);
    return &split->source;
}

/* What identifies an input in the order of its rows. In a dynamic split one node may continue
 * another's block, and each node numbers its inputs itself, so the path identifies it. In a fixed
 * split inputs have the same numbers on all nodes, but perhaps other paths. */
static uint64_t order_number(const RubatoDataset *dataset, const RubatoReaderOptions *options,
                             uint32_t input)
{
    if (options->split != RUBATO_SPLIT_DYNAMIC)
        return input;
    const char *path = input_path(dataset_input(dataset, input));
    return text_hash(path, strlen(path), 0, 0);
}

const uint32_t *block_row_order(const RubatoDataset *dataset, const RubatoReaderOptions *options,
                                const BlockTicket *ticket, size_t n, uint32_t *order)
{
    if (!options->shuffle)
        return NULL;
    Random blocks = random_stream(options->seed, ticket->epoch);
    Random inputs =
        random_stream(random_bits(&blocks), order_number(dataset, options, ticket->input));
    Random rows = random_stream(random_bits(&inputs), ticket->block);
    random_order(&rows, order, n);
    return order;
}
