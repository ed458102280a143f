/* What a data format implements: text in, rows out.
 *
 * A format is a file io/data/formats/<name>.c that ends in its constant RowParserOps, and a line in
 * the array of io/data/formats/row_parser.c. It knows neither files nor blocks nor threads: its
 * caller reads the bytes, cuts them where rows start, and turns a fault into file, line and column.
 *
 * Threads: create, learn and begin_file from one at a time; find_row and parse from many at once,
 * after those. */
#ifndef RUBATO_IO_DATA_FORMATS_ROW_PARSER_H
#define RUBATO_IO_DATA_FORMATS_ROW_PARSER_H

#include <rubato/data.h>

#include "io/data/formats/row_block.h"

/* The bytes behind a piece of text that a parser may read: they are zero. */
#define ROW_TEXT_PADDING 16

/* A piece of a file, unpacked. */
typedef struct {
    const char *bytes; /* size, and ROW_TEXT_PADDING more */
    size_t size;
    uint64_t offset;    /* in the file, of the first byte */
    uint64_t file_size; /* of the head of a file: unpacked bytes of all of it; 0: nobody knows */
} RowText;

/* Why a row could not be read. `at` lies in the text that was parsed. */
#define ROW_FAULT_MAX 120
typedef struct {
    const char *at;
    char expected[ROW_FAULT_MAX]; /* "index:value" */
    char found[ROW_FAULT_MAX];    /* "the end of the line", "\"abc\""; "" lets the caller quote the
                                   * word at `at` */
    const char *resume;           /* where the next row may start; NULL: behind the line of `at` */
    bool is_mismatch;             /* the text may be good, but does not fit the spec's keys */
    bool out_of_memory;           /* then nothing else is set */
} RowFault;

/* What a format learns from all rows before the first is parsed. */
typedef enum {
    ROW_LEARNS_NOTHING,
    ROW_LEARNS_KEYS,   /* which a cache then holds: it is not learned again */
    ROW_LEARNS_LABELS, /* which describe_keys tells: learned even where there is a cache */
} RowLearning;

typedef struct RowParserOps RowParserOps;

/* What a format stores of a spec: the first member of its struct. The caller frees what the spec
 * points to only after destroy. */
typedef struct {
    const RowParserOps *ops;
} RowParser;

/* What a format stores of one file: the first member of its struct. */
typedef struct {
    uint64_t first_row; /* the offset behind the header */
} RowFile;

#define ROW_NOT_FOUND SIZE_MAX

struct RowParserOps {
    const char *name;
    const char *const
        *names;      /* "*.svm": patterns of file names that mean this format, in lower case,
                               * without .gz and .zst; ended by NULL */
    bool has_fields; /* its rows carry fields */
    bool binary;     /* faults have byte offsets, and are never skipped; a file gets no newline */

    /* Whether the spec makes sense; the error says what to write instead. May be NULL. */
    bool (*check)(const RubatoDataSpec *spec, GError **error);

    /* create NULL: there is nothing to store; destroy NULL: g_free is called. (transfer full) */
    RowParser *(*create)(const RubatoDataSpec *spec, GError **error);
    void (*destroy)(RowParser *parser);

    /* Reads the head of a file: its first 64 KiB at least, or the whole file. Returns NULL with a
     * fault if no file of this format begins so. begin_file NULL: rows begin at the first byte;
     * end_file NULL: g_free is called. (transfer full) */
    RowFile *(*begin_file)(RowParser *parser, const RowText *head, RowFault *fault);
    void (*end_file)(RowFile *file);

    /* Fills in what the keys mean, when all files have begun, and again when all rows were learned;
     * the parser owns what it points to.
     * NULL: the format's name says it all. */
    void (*describe_keys)(const RowParser *parser, RubatoDataKeys *keys);

    /* Whether learn wants to see all rows of all files, in order and one piece after another,
     * before the first parse. Both may be NULL. */
    RowLearning (*learns)(const RowParser *parser);
    bool (*learn)(RowParser *parser, const RowFile *file, const RowText *text, RowFault *fault);

    /* Where the first row at or behind bytes[from] starts; from >= 1. It must depend only on the
     * offset and on the bytes from from - 1 on. ROW_NOT_FOUND: not within this text; the caller
     * comes back with more text or takes the file's end. find_row NULL: behind the first newline at
     * from - 1 or later. */
    size_t (*find_row)(const RowParser *parser, const RowFile *file, const RowText *text,
                       size_t from);

    /* Appends the rows of a text that holds whole rows, the last of them ended by a newline (unless
     * binary). False with a fault at the first row that cannot be read: the block then holds the
     * rows before it, and nothing of this row. The caller may go on at fault->resume. */
    bool (*parse)(const RowParser *parser, const RowFile *file, const RowText *text,
                  RowBlock *block, RowFault *fault);
};

/* The format that a spec names, or that its first file's name means. RUBATO_ERROR_NOT_FOUND lists
 * the known ones. (transfer none) */
const RowParserOps *row_parser_ops(const RubatoDataSpec *spec, const char *first_path,
                                   GError **error);

/* Call ops->create and so on, or their defaults. Destroy and end_file take NULL. */
RowParser *row_parser_create(const RowParserOps *ops, const RubatoDataSpec *spec, GError **error);
void row_parser_destroy(RowParser *parser);
RowFile *row_parser_begin_file(RowParser *parser, const RowText *head, RowFault *fault);
void row_parser_end_file(const RowParser *parser, RowFile *file);
RowLearning row_parser_learns(const RowParser *parser);
size_t row_parser_find_row(const RowParser *parser, const RowFile *file, const RowText *text,
                           size_t from);

#endif
