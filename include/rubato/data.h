/* Training data: labelled sparse rows from files in many formats, read whole or in batches by the
 * workers of a task; and images, read from IDX files or generated.
 *
 * A RubatoDataSpec says which files and what is in them. rubato_dataset_load gives all rows at
 * once. For training each process opens a RubatoDataset once, and each worker of a task opens a
 * RubatoReader on it. In each epoch every row then comes to exactly one worker.
 *
 * Files may be plain, gzipped or packed by zstd, whatever their names. Wrong contents are
 * RUBATO_ERROR_FORMAT; the message names the file, the place (text: line and column, both from 1;
 * IDX: byte offset after unpacking) and what was expected there. A file that cannot be opened or
 * read is RUBATO_ERROR_IO, a file larger than the memory RUBATO_ERROR_MEMORY.
 *
 * Threads: any thread may make the calls, and any number of threads may read the loaded data at
 * once. A reader belongs to one thread: the one that opened it. */
#ifndef RUBATO_DATA_H
#define RUBATO_DATA_H

#include <rubato/error.h>
#include <rubato/task.h>

G_BEGIN_DECLS

/* Labelled grey images of one size. */
typedef struct {
    size_t n_images;
    uint32_t height, width;
    uint32_t n_classes;    /* one more than the largest label, 0 without labels */
    const uint8_t *pixels; /* n_images × height × width, row by row; 0 is black */
    const uint8_t *labels; /* n_images; NULL if there are none */
} RubatoImages;

/* Reads a pair of IDX files (the format of MNIST, described at the end of
 * http://yann.lecun.com/exdb/mnist): the images as unsigned bytes in three dimensions, the labels
 * as unsigned bytes in one. Without a labels_path the images have no labels. (transfer full) */
RUBATO_API RubatoImages *rubato_images_load(const char *images_path, const char *labels_path,
                                            GError **error);

/* Generates n_images images of 28 × 28 in ten classes, which a softmax regression can learn, but
 * not perfectly. The classes depend on seed; image i depends on seed and first + i. So the same
 * seed with another range of numbers gives a test set. n_images is at least 1. (transfer full) */
RUBATO_API RubatoImages *rubato_images_generate(size_t n_images, uint64_t seed, uint64_t first,
                                                GError **error);

/* NULL is allowed. */
RUBATO_API void rubato_images_free(RubatoImages *images);

/* Labelled sparse rows, compressed: row i has the entries row_start[i] .. row_start[i + 1] - 1. */
typedef struct {
    size_t n_rows;
    size_t n_entries;
    RubatoKey max_key;       /* the largest key there is; 0 if there are no entries */
    uint32_t n_fields;       /* one more than the largest field; 0 if the format has none */
    const size_t *row_start; /* n_rows + 1, the last is n_entries */
    const RubatoKey *key;  /* n_entries: the file's indices, hashes or codes, in the file's order */
    const uint32_t *field; /* n_entries, or NULL if the format has none */
    const float *value;    /* n_entries; 1 if the format has none */
    const float *label;    /* n_rows; 0 if the format has none */
} RubatoRows;

/* NULL is allowed. */
RUBATO_API void rubato_rows_free(RubatoRows *rows);

/* Whether the first line of a CSV file names the columns. */
typedef enum {
    RUBATO_CSV_HEADER_AUTO, /* it does if it has words where the lines below have numbers, or words
                             * that no line below has in their columns; or if the spec names a
                             * column. The first 64 KiB are looked at */
    RUBATO_CSV_HEADER_YES,
    RUBATO_CSV_HEADER_NO,
} RubatoCsvHeader;

/* What a CSV file's cells in categorical columns become. */
typedef enum {
    RUBATO_CATEGORIES_HASHED, /* key: a 64-bit hash of column and text (its upper bits, if hash_bits
                               * is given) */
    RUBATO_CATEGORIES_CODED,  /* key: consecutive integers after the columns' own, in the order of
                               * first appearance. The whole input is read once beforehand */
} RubatoCategories;

/* Whether the rows are kept in a binary file beside each input, NAME.rubato-cache. */
typedef enum {
    RUBATO_DATA_CACHE_NONE,
    RUBATO_DATA_CACHE_KEEP, /* a file that fits the present input and the spec is used; otherwise it
                             * is made again */
} RubatoDataCache;

#define RUBATO_NO_COLUMN UINT32_MAX

/* What the keys of a dataset mean. Two datasets whose RubatoDataKeys are equal may share a model,
 * unless they have RUBATO_CATEGORIES_CODED: each dataset has codes of its own. */
typedef struct {
    const char *format;
    uint32_t hash_bits; /* csv, text: bits that hashes keep, 64 for all; 0: nothing is hashed */
    uint32_t fields_in_keys; /* ratings: 2, a key is number × 2 + field; 0: keys tell no field */

    /* csv */
    uint32_t n_columns;              /* 0: another format, or no file with a line in it */
    const char *const *column_names; /* n_columns, ended by NULL; NULL: there is no header */
    uint32_t label_column;           /* RUBATO_NO_COLUMN: none */
    uint32_t n_categorical_columns;
    const uint32_t *categorical_columns; /* ascending */

    /* csv, libsvm, libffm: if most labels at the beginning of the first file are no numbers, all
     * are words. A row's label is then the place of its word among these, from 0. */
    uint32_t n_label_words;
    const char *const *label_words; /* n_label_words, in the order of their bytes, ended by NULL;
                                     * NULL: labels are numbers */
} RubatoDataKeys;

/* Which files, and what is in them. The caller owns it; a dataset copies what it keeps. */
typedef struct {
    const char *const *paths; /* files or globs ("day-*.gz"), in this order, ended by NULL */
    bool skip_missing; /* leave out files that this node does not have; other nodes may have them */

    /* "libsvm", "libffm", "csv", "ratings", "bag_of_words", "text" or "idx". NULL: the name of the
     * first file decides, without .gz or .zst; a name that fits no format means "libsvm". */
    const char *format;

    /* csv. Columns are named by the header's words or by numbers from 0. */
    char separator; /* 0 means the comma; also for "ratings", where 0 means any of its separators */
    RubatoCsvHeader header;
    const char *label_column; /* NULL: the first; "" for none */
    bool
        skip_labels; /* labels may be anything, and every label is 0; libsvm, libffm: may be missing
                       */
    const char *const *categorical_columns; /* ended by NULL; NULL: none */
    RubatoCategories categories;

    uint32_t hash_bits; /* csv, text: hashes keep this many bits; 0 means all 64 */

    /* What the keys have to mean: the rubato_dataset_keys of a model's rows. A difference is
     * RUBATO_ERROR_MISMATCH; keys that make no sense are RUBATO_ERROR_INVALID. NULL: as the files
     * say. With skip_labels, a label_column of NULL or "" means the label column of the model's
     * rows. The files may lack this column; the other columns keep their numbers. The header shows
     * that it is missing. If the model's rows or the files have no header, label_column "" says
     * that it is missing. */
    const RubatoDataKeys *keys;

    uint32_t words_per_row; /* text: a row ends after this many words at the latest; 0 means 1000 */
    const char *labels_path; /* idx: the labels; NULL: every label is 0 */

    /* Sets rows aside, to measure on: about this fraction of them, from 0 up to but not including
     * 1; 0: none. Which they are depends on the files alone. The dataset has the others or, with
     * only_held_out, just these. */
    double held_out;
    bool only_held_out;

    uint64_t max_bad_rows; /* this many unreadable rows are skipped; one more is an error */

    RubatoDataCache cache;
    const char *cache_directory; /* where to keep it; NULL: beside each input */

    /* Rows that are read more than once stay in memory, up to this many bytes; 0 means 1 GiB. The
     * rest is read from the files each time. The rows of one cache file stay all or none. */
    uint64_t memory_bytes;
} RubatoDataSpec;

/* Reads every row of the spec's files, in their order. No row at all is RUBATO_ERROR_FORMAT.
 * (transfer full) */
RUBATO_API RubatoRows *rubato_dataset_load(const RubatoDataSpec *spec, GError **error);

typedef struct RubatoDataset RubatoDataset;

/* Opens the files of a spec: finds them, reads their headers, and makes the cache if the spec asks
 * for it and it is missing. If the cache cannot be written, this is logged once, and the dataset
 * works without it. Not collective; each process of a run opens its own. Errors:
 * RUBATO_ERROR_INVALID, _NOT_FOUND (an unknown format, for which the message lists the known ones;
 * or no file of this name), _MISMATCH (the spec's keys), _IO, _FORMAT, _MEMORY. (transfer full) */
RUBATO_API RubatoDataset *rubato_dataset_open(const RubatoDataSpec *spec, GError **error);

/* A dataset of rows that are in memory: at least one; row_start goes from 0 to n_entries without a
 * descent; field may be NULL; max_key and n_fields are not looked at. The rows are copied. Keys
 * mean what those of a libsvm file mean, and with fields those of a libffm file. `name` stands for
 * the file's name in messages. Under RUBATO_SPLIT_DYNAMIC nodes that give the same name have the
 * same rows, and each node may have rows of its own under a name of its own. Under the other splits
 * all nodes give the same rows. RUBATO_ERROR_INVALID, _MEMORY. (transfer full) */
RUBATO_API RubatoDataset *rubato_dataset_new_from_rows(const RubatoRows *rows, const char *name,
                                                       GError **error);

/* NULL is allowed. Readers and batches may outlive the dataset they come from. */
RUBATO_API void rubato_dataset_free(RubatoDataset *dataset);

/* What the keys mean. The dataset owns it. (transfer none) */
RUBATO_API const RubatoDataKeys *rubato_dataset_keys(const RubatoDataset *dataset);

/* What a whole dataset holds. */
typedef struct {
    uint64_t n_rows, n_entries;
    uint64_t n_bad_rows; /* skipped */
    RubatoKey max_key;   /* 0 if there are no entries */
    uint32_t n_fields;   /* one more than the largest field; 0 if the format has none */
    float min_label, max_label;
} RubatoDataSummary;

/* Describes the whole dataset. With a cache this takes no time. Without one every row is read once;
 * as many rows as memory_bytes allows stay in memory for later readers. */
RUBATO_API bool rubato_dataset_summary(RubatoDataset *dataset, RubatoDataSummary *summary,
                                       GError **error);

/* The place of the first row with this label, in the order of the files, for messages: "FILE:LINE",
 * "FILE: byte N" of an IDX file, or "NAME: row N", from 0, of rows in memory. It reads the files
 * again up to there. NULL: no readable row has the label, or the files can no longer be read.
 * (transfer full) */
RUBATO_API char *rubato_dataset_find_label(RubatoDataset *dataset, float label);

/* Who reads which rows. */
typedef enum {
    RUBATO_SPLIT_FIXED,   /* each worker has a share of about the same number of bytes. It depends
                           * on files, seed, epoch and ranks alone. Every node must see all
                           * files */
    RUBATO_SPLIT_DYNAMIC, /* a worker that has read its blocks gets more. A node may lack files that
                           * others have. If a worker stops early, the workers that still read get
                           * the rest of its blocks */
    RUBATO_SPLIT_BY_KEY,  /* rows with the same key at key_place come to the same worker in each
                           * epoch, and in each task with as many workers. Every node must see all
                           * files. Each worker's reader goes through all of them, and takes the
                           * worker's rows */
} RubatoSplit;

typedef struct {
    uint32_t epochs;     /* how many times every row is read; 0 means 1 */
    uint32_t batch_rows; /* rows in a batch (the last of an epoch may have fewer); 0 means 256 */
    bool shuffle;        /* blocks, and the rows in each, come in another order in each epoch */
    uint64_t seed;       /* of that order */
    RubatoSplit split;
    uint32_t key_place; /* RUBATO_SPLIT_BY_KEY: which of a row's entries, from 0, has the key. All
                         * rows with fewer entries come to one worker */
    uint32_t ahead;     /* how many batches are made ahead of the worker; 0 means 4 */

    /* RUBATO_SPLIT_DYNAMIC: snapshots keep under this name which rows are done; the workers say so
     * by rubato_worker_finish_rows. When such a snapshot has been restored, the first reader that
     * is opened with this name and the same options and files deals the other rows alone. 1 to 255
     * bytes of UTF-8, on one line; NULL: no snapshot keeps it. Readers of tasks that run at the
     * same time, or of one task, have names of their own. */
    const char *kept_as;
} RubatoReaderOptions;

/* Some rows, and which keys they use. Row i has the entries row_start[i] .. row_start[i + 1] - 1.
 * The key of entry e is keys[index[e]], so `index` also indexes an array of table rows that was
 * read for `keys`. */
typedef struct {
    size_t n_rows;
    size_t n_entries;
    size_t n_keys;
    const RubatoKey *keys;   /* n_keys, ascending, each once */
    const size_t *row_start; /* n_rows + 1, the first is 0, the last n_entries */
    const uint32_t *index;   /* n_entries: places in keys, in the file's order within a row */
    const uint32_t *field;   /* n_entries, or NULL if the format has none */
    const float *value;      /* n_entries; 1 if the format has none */
    const float *label;      /* n_rows */
    uint32_t epoch;          /* from 0 */
} RubatoBatch;

/* Frees a batch. Any thread. NULL is allowed. */
RUBATO_API void rubato_batch_free(RubatoBatch *batch);

/* Writes the batch's rows as a dense matrix, n_rows × n_columns, row by row: the value of key
 * first + c goes to column c; what a row does not have is `absent`, such as 0 or NAN, and what it
 * has more than once is summed. False with RUBATO_ERROR_RANGE, and nothing written, if the batch
 * has a key that is no column. Any thread. */
RUBATO_API bool rubato_batch_fill_matrix(const RubatoBatch *batch, RubatoKey first,
                                         size_t n_columns, float absent, float *matrix,
                                         GError **error);

typedef struct RubatoReader RubatoReader;

/* Opens a worker's part of a dataset. All workers of the task call it, for the same datasets, in
 * the same order and with the same options; a difference fails the task with RUBATO_ERROR_MISMATCH.
 * From now on a thread of the reader reads, parses and makes batches. The worker frees the reader
 * before its function returns: one that is left open is stopped then, and the log says so.
 * (transfer full) */
RUBATO_API RubatoReader *rubato_worker_open_reader(RubatoWorker *worker, RubatoDataset *dataset,
                                                   const RubatoReaderOptions *options,
                                                   GError **error);

/* The same for all rows, outside any task. They come in the files' order unless options->shuffle is
 * set. (transfer full) */
RUBATO_API RubatoReader *rubato_dataset_open_reader(RubatoDataset *dataset,
                                                    const RubatoReaderOptions *options,
                                                    GError **error);

/* Stops reading. Batches that are not freed yet stay valid. NULL is allowed. */
RUBATO_API void rubato_reader_free(RubatoReader *reader);

/* Puts the next batch into *batch. *batch must be NULL or a batch, which is freed first. So a loop
 * over one variable needs no other call. A worker that looks n batches ahead uses n + 1 variables
 * in turn. False at the end, and on an error; *batch is then NULL. An error in the files comes
 * after the batches that were made before it. RUBATO_ERROR_CANCELLED: the task was cancelled. */
RUBATO_API bool rubato_reader_next(RubatoReader *reader, RubatoBatch **batch, GError **error);

/* Of a reader with kept_as: the n_rows that the worker got first, of those that are not done, are
 * done. The worker says so in the step (rubato_worker_begin_step) in which it adds what came of
 * them. Then a snapshot has what came of a row exactly if it has the row as done, and whoever goes
 * on from it gets each of the other rows once. Where models apply Adds by their clock, the step
 * begins at the same clock on each table with such a model, and has one clock on each, behind its
 * Adds. In a task with tables of such models and of others, it changes none of the
 * others. Rows that are not done when the reader is freed come to other workers.
 *
 * RUBATO_ERROR_INVALID: the worker is not in a step, or has not got so many rows; the reader has no
 * kept_as, or is another worker's. The worker's thread. */
RUBATO_API bool rubato_worker_finish_rows(RubatoWorker *worker, RubatoReader *reader,
                                          uint64_t n_rows, GError **error);

/* Whether rubato_reader_next has returned false because of an error, and not at the end. */
RUBATO_API bool rubato_reader_failed(const RubatoReader *reader);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoImages, rubato_images_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoRows, rubato_rows_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoDataset, rubato_dataset_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoBatch, rubato_batch_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoReader, rubato_reader_free)

G_END_DECLS

#endif
