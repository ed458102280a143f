/* How far the workers of a node's reader have come. */
#include "engine/task/node_reader_private.h"

#include "engine/task/status_parts.h"

static void add_place(const NodeReader *node_reader, WorkerPlace *place, GVariantBuilder *list)
{
    const ReaderPosition at = reader_progress_get(&place->progress);
    const int64_t end_us = at.has_ended ? at.told_us : g_get_monotonic_time();
    GVariantBuilder part;

    g_variant_builder_init(&part, STATUS_PART);
    status_add_count(&part, "worker", place->rank);
    if (at.has_block) {
        status_add_count(&part, "epoch", (uint64_t)at.place.epoch + 1);
        status_add_text(&part, "file",
                        input_path(dataset_input(node_reader->dataset, at.place.input)));
        status_add_count(&part, "block", at.place.block);
        status_add_count(&part, "block_row", at.place.n_read);
        status_add_count(&part, "block_rows", at.block_rows);
    }
    status_add_count(&part, "blocks", at.n_blocks);
    status_add_count(&part, "rows", at.n_rows);
    status_add_seconds(&part, "seconds", (double)(end_us - at.begun_us) / G_USEC_PER_SEC);
    status_add_flag(&part, "ended", at.has_ended);
    status_add_flag(&part, "read_all", at.has_read_all);
    g_variant_builder_add_value(list, g_variant_builder_end(&part));
}

/* Of an epoch; UINT64_MAX if a file's end is not known. */
static uint64_t count_blocks(const RubatoDataset *dataset)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < dataset_n_inputs(dataset); i++) {
        const uint64_t n_blocks = dataset_n_blocks(dataset, i);

        if (n_blocks == INPUT_BLOCKS_UNKNOWN || n_blocks > UINT64_MAX - n)
            return UINT64_MAX;
        n += n_blocks;
    }
    return n;
}

GVariant *node_reader_status(NodeReader *node_reader)
{
    const RubatoReaderOptions *const options = &node_reader->options;
    GVariantBuilder part, workers;
    uint64_t n_queued = 0;

    g_variant_builder_init(&part, STATUS_PART);
    g_variant_builder_init(&workers, STATUS_LIST);
    status_add_count(&part, "reader", node_reader->id);
    status_add_text(&part, "split", node_reader_split_name(options->split));
    status_add_count(&part, "epochs", options->epochs);
    status_add_flag(&part, "shuffled", options->shuffle);
    status_add_count(&part, "files", dataset_n_inputs(node_reader->dataset));
    status_add_count(&part, "blocks", count_blocks(node_reader->dataset));
    pthread_mutex_lock(&node_reader->lock);
    for (uint32_t i = 0; i < node_reader->n_queues; i++)
        n_queued += node_reader->queues[i].ready->len;
    if (options->split == RUBATO_SPLIT_DYNAMIC)
        status_add_count(&part, "queued", n_queued);
    for (guint i = 0; i < node_reader->places->len; i++)
        add_place(node_reader, node_reader->places->pdata[i], &workers);
    pthread_mutex_unlock(&node_reader->lock);
    status_add_built(&part, "workers", &workers);
    return g_variant_builder_end(&part);
}
