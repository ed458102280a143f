/* IDX images, with the labels in a file of their own: a row is an image, its keys are the places of
 * its pixels that are not black, counted row by row from 0, its values their brightness from 0 to
 * 1. Runs on the thread that parses; the labels are read when the parser is made. */
#include "io/data/formats/idx_file.h"
#include "io/data/formats/row_text.h"

#define BRIGHTNESS_MAX 255.0f
#define N_DIMENSIONS 3

extern const RowParserOps idx_format;

typedef struct {
    RowParser base;
    uint8_t *labels; /* NULL: all are 0 */
    size_t n_labels;
} IdxParser;

typedef struct {
    RowFile base;
    uint32_t n_images;
    size_t image_bytes;
} IdxFile;

static void destroy(RowParser *base)
{
    IdxParser *parser = (IdxParser *)base;

    g_free(parser->labels);
    g_free(parser);
}

static RowParser *create(const RubatoDataSpec *spec, GError **error)
{
    IdxParser *parser = g_new0(IdxParser, 1);

    parser->base.ops = &idx_format;
    if (spec->labels_path == NULL)
        return &parser->base;
    g_autoptr(ByteSource) source = byte_source_open(spec->labels_path, error);
    if (source != NULL)
        parser->labels = idx_read_labels(source, &parser->n_labels, error);
    if (parser->labels != NULL)
        return &parser->base;
    destroy(&parser->base);
    return NULL;
}

static RowFile *begin_file(RowParser *base, const RowText *head, RowFault *fault)
{
    const IdxParser *parser = (const IdxParser *)base;
    const char *const first_dimension = head->bytes + 4;
    IdxHeader header;
    IdxFile *file;

    if (!idx_read_header(head->bytes, head->size, N_DIMENSIONS, "images", &header, fault))
        return NULL;
    if (parser->labels != NULL && header.dimension[0] != parser->n_labels) {
        row_fault(fault, first_dimension, "%zu images, one for each label", parser->n_labels);
        g_snprintf(fault->found, sizeof fault->found, "%u", header.dimension[0]);
        return NULL;
    }
    if (head->file_size != 0 && head->file_size != header.header_bytes + header.n_values) {
        row_fault(fault, first_dimension, "%" G_GUINT64_FORMAT " bytes of images behind the header",
                  header.n_values);
        g_snprintf(fault->found, sizeof fault->found, "%" G_GUINT64_FORMAT,
                   head->file_size - header.header_bytes);
        return NULL;
    }
    file = g_new0(IdxFile, 1);
    file->base.first_row = header.header_bytes;
    file->n_images = header.dimension[0];
    file->image_bytes = (size_t)header.dimension[1] * header.dimension[2];
    return &file->base;
}

static size_t find_row(const RowParser *parser, const RowFile *base, const RowText *text,
                       size_t from)
{
    const IdxFile *file = (const IdxFile *)base;
    const uint64_t behind_header = text->offset + from - base->first_row;
    const uint64_t behind_row = behind_header % file->image_bytes;
    const uint64_t at = behind_row == 0 ? from : from + file->image_bytes - behind_row;

    (void)parser;
    return at <= text->size ? (size_t)at : ROW_NOT_FOUND;
}

static bool read_image(const uint8_t *pixels, size_t n, RowBlock *block)
{
    for (size_t i = 0; i < n; i++) {
        if (pixels[i] == 0)
            continue;
        if (!row_block_want_entries(block, 1))
            return false;
        block->key[block->n_entries] = i;
        block->value[block->n_entries++] = (float)pixels[i] / BRIGHTNESS_MAX;
    }
    return true;
}

static bool parse(const RowParser *base, const RowFile *row_file, const RowText *text,
                  RowBlock *block, RowFault *fault)
{
    const IdxParser *parser = (const IdxParser *)base;
    const IdxFile *file = (const IdxFile *)row_file;
    uint64_t image = (text->offset - row_file->first_row) / file->image_bytes;

    for (size_t at = 0; at < text->size; at += file->image_bytes, image++) {
        const char *const from = text->bytes + at;

        if (image >= file->n_images)
            return row_fault(fault, from, "the end of the file behind %u images", file->n_images);
        if (text->size - at < file->image_bytes) {
            row_fault(fault, from, "%zu bytes of an image", file->image_bytes);
            g_snprintf(fault->found, sizeof fault->found, "%zu; the file is truncated",
                       text->size - at);
            return false;
        }
        if (!row_block_want_rows(block, 1) ||
            !read_image((const uint8_t *)from, file->image_bytes, block)) {
            row_block_drop_row(block);
            return row_fault_out_of_memory(fault, from);
        }
        row_block_end_row(block, parser->labels != NULL ? parser->labels[image] : 0.0f);
    }
    return true;
}

static const char *const names[] = { "*.idx", "*idx3-ubyte", NULL };

const RowParserOps idx_format = {
    .name = "idx",
    .names = names,
    .binary = true,
    .create = create,
    .destroy = destroy,
    .begin_file = begin_file,
    .find_row = find_row,
    .parse = parse,
};
