/* The best split of a node, found on the server that has its histogram.
 *
 * A histogram is a row of 64-bit integers: a head, and for each bin of each column the sums of the
 * gradients and of their slopes (g and h) of the node's rows. They are fixed-point numbers. So sums
 * do not depend on their order, and the trees are the same for any number of workers.
 *
 * Under "bsp" the Adds of a clock are applied in the order of the workers. So the last worker calls
 * GBDT_SPLIT in the clock of the Adds, and it runs once all of them have come: it writes the split
 * into the head and empties the rest. In the next clock all workers call GBDT_HEADS.
 *
 * Threads: gbdt_register_handlers main's, before there is an engine; the others any. */
#ifndef RUBATO_APPS_GBDT_GBDT_SPLIT_H
#define RUBATO_APPS_GBDT_GBDT_SPLIT_H

#include <rubato/rubato.h>

#define GBDT_SPLIT "gbdt-split"
#define GBDT_HEADS "gbdt-heads"

/* What stands in front of the bins. */
enum {
    GBDT_COLUMN,       /* of the split; -1: there is none that is worth it */
    GBDT_BIN,          /* rows up to this bin go left */
    GBDT_MISSING_LEFT, /* 1: rows without a value go left, too */
    GBDT_LEFT_G,
    GBDT_LEFT_H,
    GBDT_G, /* of all rows of the node */
    GBDT_H,
    GBDT_HEAD,
};

/* Values in a histogram's row. */
#define GBDT_HISTOGRAM_WIDTH(n_bins) (GBDT_HEAD + 2 * (size_t)(n_bins))

/* What a split must be like. */
typedef struct {
    uint32_t n_columns;
    const uint32_t *starts; /* n_columns + 1 */
    double scale;           /* the integers of 1.0 */
    double l2;              /* penalty on the squares of the leaves' values */
    double min_weight;      /* the least h of a leaf */
    double min_gain;
} GbdtTerms;

/* Finds the best split of a histogram, and writes it into its head. */
void gbdt_find_split(const GbdtTerms *terms, int64_t *histogram);

bool gbdt_register_handlers(GError **error);

/* The arguments of GBDT_SPLIT. False if they are too long. */
bool gbdt_write_terms(RubatoByteWriter *writer, const GbdtTerms *terms);

#endif
