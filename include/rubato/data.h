/* Training data: labelled sparse rows from files in many formats, read whole or in batches by the
 * workers of a task; and images, read from IDX files or made up on the spot.
 *
 * A RubatoDataSpec says which files and what is in them. rubato_dataset_load gives all rows at
 * once. For training a RubatoDataset is opened once in each process and each worker of a task opens
 * a RubatoReader on it: every row then comes to exactly one worker in each epoch.
 *
 * Files may be plain, gzipped or packed by zstd, whatever their names. What is wrong with a file is
 * told as RUBATO_ERROR_FORMAT with the file and the place (text: line and column, both from 1; IDX:
 * byte offset, after unpacking) and what was expected there; a file that cannot be opened or read
 * is RUBATO_ERROR_IO, one that is larger than the memory RUBATO_ERROR_MEMORY.
 *
 * Threads: the calls from any; what is loaded may be read by any number of threads at once. A
 * reader belongs to one thread, the worker that opened it. */
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
    const uint8_t *labels; /* n_images; NULL where there are none */
} RubatoImages;

/* Reads a pair of IDX files (the format of MNIST, described at the end of
 * http://yann.lecun.com/exdb/mnist): unsigned bytes in three dimensions, and in one.
 * Without a labels_path the images come without labels.
 * (transfer full) */
RUBATO_API RubatoImages *rubato_images_load(const char *images_path, const char *labels_path,
                                            GError **error);

/* Makes n_images images of 28 × 28 in ten classes, which a softmax regression can learn but not
 * perfectly. The classes follow from seed, image i from seed and first + i: the same seed and
 * another range of numbers give a test set. n_images is at least 1. (transfer full) */
RUBATO_API RubatoImages *rubato_images_generate(size_t n_images, uint64_t seed, uint64_t first,
                                                GError **error);

/* NULL is allowed. */
RUBATO_API void rubato_images_free(RubatoImages *images);

/* Labelled sparse rows, compressed: row i has the entries row_start[i] .. row_start[i + 1] - 1. */
typedef struct {
    size_t n_rows;
    size_t n_entries;
    RubatoKey max_key;       /* the largest key there is; 0 where there are no entries */
    uint32_t n_fields;       /* one more than the largest field; 0 where the format has none */
    const size_t *row_start; /* n_rows + 1, the last is n_entries */
    const RubatoKey *key;  /* n_entries: the file's indices, hashes or codes, in the file's order */
    const uint32_t *field; /* n_entries, or NULL where the format has none */
    const float *value;    /* n_entries; 1 where the format has none */
    const float *label;    /* n_rows; 0 where the format has none */
} RubatoRows;

/* NULL is allowed. */
RUBATO_API void rubato_rows_free(RubatoRows *rows);

/* Whether the first line of a CSV file names the columns. */
typedef enum {
    RUBATO_CSV_HEADER_AUTO, /* it does where one of its cells outside the categorical columns is not
                             * a number, or a column is asked for by a name */
    RUBATO_CSV_HEADER_YES,
    RUBATO_CSV_HEADER_NO,
} RubatoCsvHeader;

/* What a CSV file's cells in categorical columns become. */
typedef enum {
    RUBATO_CATEGORIES_HASHED, /* key: a 64-bit hash of column and text (its upper bits, where
                               * hash_bits is given) */
    RUBATO_CATEGORIES_CODED,  /* key: consecutive integers behind those of the columns, in the order
                               * in which the files first have them. All input is read once before */
} RubatoCategories;

/* Whether the rows are kept in a binary file beside each input, NAME.rubato-cache. */
typedef enum {
    RUBATO_DATA_CACHE_NONE,
    RUBATO_DATA_CACHE_KEEP, /* used where it fits the input as it is now and the spec, made anew
                             * where it does not */
} RubatoDataCache;

#define RUBATO_NO_COLUMN UINT32_MAX

/* What gives the keys of a dataset their meaning. Rows of two datasets may share a model where this
 * is the same of both, but not with RUBATO_CATEGORIES_CODED: codes are a dataset's own. */
typedef struct {
    const char *format;
    uint32_t hash_bits; /* csv, text: that hashes keep, 64 for all; 0: nothing is hashed */

    /* csv */
    uint32_t n_columns;              /* 0: another format, or no file with a line in it */
    const char *const *column_names; /* n_columns, ended by NULL; NULL: there is no header */
    uint32_t label_column;           /* RUBATO_NO_COLUMN: none */
    uint32_t n_categorical_columns;
    const uint32_t *categorical_columns; /* ascending */
} RubatoDataKeys;

/* Which files, and what is in them. The caller's; a dataset copies what it keeps. */
typedef struct {
    const char *const *paths; /* files or globs ("day-*.gz"), in this order, ended by NULL */
    bool skip_missing; /* files that are not here are left out: others of the run may have them */

    /* "libsvm", "libffm", "csv", "ratings", "bag_of_words", "text" or "idx". NULL: by the name of
     * the first file, .gz and .zst left aside; "libsvm" where that says nothing. */
    const char *format;

    /* csv. Columns are named by the header's words or by numbers from 0. */
    char separator; /* 0 means the comma; also of "ratings", where 0 means any of its own */
    RubatoCsvHeader header;
    const char *label_column; /* NULL: the first; "" for none */
    bool skip_labels;         /* the label's cells may hold anything, and every label is 0 */
    const char *const *categorical_columns; /* ended by NULL; NULL: none */
    RubatoCategories categories;

    uint32_t hash_bits; /* csv, text: hashes keep this many bits; 0 means all 64 */

    /* What the keys are to mean, as rubato_dataset_keys said it of other rows, those of a model;
     * what differs is RUBATO_ERROR_MISMATCH. NULL: whatever the files say. With skip_labels a
     * label_column of NULL or "" means the one of the model's rows, and the files may lack it: the
     * other columns keep their numbers. That it is this column which is missing the header shows;
     * where there is none, here or there, label_column "" has to say so. */
    const RubatoDataKeys *keys;

    uint32_t words_per_row; /* text: a row ends after this many words at the latest; 0 means 1000 */
    const char *labels_path; /* idx: the labels; NULL: every label is 0 */

    uint64_t max_bad_rows; /* so many rows that cannot be read are skipped and counted */

    RubatoDataCache cache;
    const char *cache_directory; /* where to keep it; NULL: beside each input */

    /* Rows that are read more than once stay in memory, up to so many bytes; 0 means 1 GiB. What
     * does not fit is read from the files each time; of a cache, all of its file stays or
     * nothing. */
    uint64_t memory_bytes;
} RubatoDataSpec;

/* Reads every row of the spec's files, in their order. No row at all is RUBATO_ERROR_FORMAT.
 * (transfer full) */
RUBATO_API RubatoRows *rubato_dataset_load(const RubatoDataSpec *spec, GError **error);

typedef struct RubatoDataset RubatoDataset;

/* Opens the files of a spec: finds them, reads what heads them, and makes the cache where it is
 * asked for and missing. A cache that cannot be written is logged once and done without. Not
 * collective; each process of a run opens its own. Errors: RUBATO_ERROR_INVALID, _NOT_FOUND (no
 * such format: the message lists the known ones; no file of such a name), _MISMATCH (the spec's
 * keys), _IO, _FORMAT, _MEMORY. (transfer full) */
RUBATO_API RubatoDataset *rubato_dataset_open(const RubatoDataSpec *spec, GError **error);

/* NULL is allowed. Readers and batches may outlive the dataset they come from. */
RUBATO_API void rubato_dataset_free(RubatoDataset *dataset);

/* What gives the keys their meaning. (transfer none: the dataset's) */
RUBATO_API const RubatoDataKeys *rubato_dataset_keys(const RubatoDataset *dataset);

/* What a whole dataset holds. */
typedef struct {
    uint64_t n_rows, n_entries;
    uint64_t n_bad_rows; /* skipped */
    RubatoKey max_key;   /* 0 where there are no entries */
    uint32_t n_fields;   /* one more than the largest field; 0 where the format has none */
    float min_label, max_label;
} RubatoDataSummary;

/* Counts the dataset: from the cache at once; without one every row is read, once. Later readers
 * find in memory what there was room for. */
RUBATO_API bool rubato_dataset_summary(RubatoDataset *dataset, RubatoDataSummary *summary,
                                       GError **error);

/* Where the first row with a label is, in the order of the files: "FILE:LINE", of IDX "FILE: byte
 * N". Reads the files once more, up to there: meant for messages. NULL: no row that can be read has
 * it, or the files cannot be read any more. (transfer full) */
RUBATO_API char *rubato_dataset_find_label(RubatoDataset *dataset, float label);

/* Who reads which rows. */
typedef enum {
    RUBATO_SPLIT_FIXED,   /* each worker its share, about the same number of bytes, which follows
                           * from seed, epoch and ranks alone; every node must see every file */
    RUBATO_SPLIT_DYNAMIC, /* whoever has read its blocks is given more; a node may lack files that
                           * others have. What a worker that returns early has not read goes to those
                           * still reading */
} RubatoSplit;

typedef struct {
    uint32_t epochs;     /* times that every row is read; 0 means 1 */
    uint32_t batch_rows; /* rows in a batch, the last of an epoch may have fewer; 0 means 256 */
    bool shuffle;        /* blocks, and the rows in each, in another order in each epoch */
    uint64_t seed;       /* of that order */
    RubatoSplit split;
    uint32_t ahead; /* batches that are made before they are asked for; 0 means 4 */
} RubatoReaderOptions;

/* Some rows, and which keys they use. Row i has the entries row_start[i] .. row_start[i + 1] - 1,
 * and the key of entry e is keys[index[e]]: an array of rows read for `keys` is indexed by
 * `index`. */
typedef struct {
    size_t n_rows;
    size_t n_entries;
    size_t n_keys;
    const RubatoKey *keys;   /* n_keys, ascending, each once */
    const size_t *row_start; /* n_rows + 1, the first is 0, the last n_entries */
    const uint32_t *index;   /* n_entries, in the file's order within a row */
    const uint32_t *field;   /* n_entries, or NULL where the format has none */
    const float *value;      /* n_entries; 1 where the format has none */
    const float *label;      /* n_rows */
    uint32_t epoch;          /* from 0 */
} RubatoBatch;

/* Gives a batch back; from any thread. NULL is allowed. */
RUBATO_API void rubato_batch_free(RubatoBatch *batch);

typedef struct RubatoReader RubatoReader;

/* Opens a worker's part of a dataset. All workers of the task call it, for the same datasets in the
 * same order and with the same options: where they differ the task fails with
 * RUBATO_ERROR_MISMATCH. A thread of the reader's own reads, parses and makes batches from now on.
 * The reader is freed before the worker's function returns. (transfer full) */
RUBATO_API RubatoReader *rubato_worker_open_reader(RubatoWorker *worker, RubatoDataset *dataset,
                                                   const RubatoReaderOptions *options,
                                                   GError **error);

/* The same for all rows, outside any task; they come in the files' order unless options->shuffle.
 * (transfer full) */
RUBATO_API RubatoReader *rubato_dataset_open_reader(RubatoDataset *dataset,
                                                    const RubatoReaderOptions *options,
                                                    GError **error);

/* Stops reading; batches not yet freed stay valid. NULL is allowed. */
RUBATO_API void rubato_reader_free(RubatoReader *reader);

/* Puts the next batch into *batch, which must be NULL or a batch: that one is freed first. So a
 * loop over one variable needs no other call, and a worker that wants to look n batches ahead keeps
 * them in n + 1 variables, which it uses in turn. False at the end, and with an error: *batch is
 * then NULL. */
RUBATO_API bool rubato_reader_next(RubatoReader *reader, RubatoBatch **batch, GError **error);

/* Whether rubato_reader_next has returned false for an error, not for the end. */
RUBATO_API bool rubato_reader_failed(const RubatoReader *reader);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoImages, rubato_images_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoRows, rubato_rows_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoDataset, rubato_dataset_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoBatch, rubato_batch_free)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RubatoReader, rubato_reader_free)

G_END_DECLS

#endif
