/* Reads IDX files of images and labels.
 *
 * An IDX file is two zero bytes, a type byte, the number of dimensions, each dimension as a 32-bit
 * big-endian number, then the values. Before anything is allocated, the sizes in the header are
 * compared with the largest possible size of the file. Runs on the caller's thread. */
#include "io/data/formats/idx_file.h"

#include "io/data/formats/row_text.h"

#define TYPE_UNSIGNED_BYTE 0x08
#define MAGIC_BYTES 4
#define SIDE_MAX 65536u

static const char *type_name(uint8_t type)
{
    switch (type) {
    case 0x09:
        return "signed bytes";
    case 0x0b:
        return "16-bit integers";
    case 0x0c:
        return "32-bit integers";
    case 0x0d:
        return "32-bit floats";
    case 0x0e:
        return "64-bit floats";
    default:
        return "an unknown type";
    }
}

static bool fail(const ByteSource *source, size_t at, GError **error, const char *format, ...)
    G_GNUC_PRINTF(4, 5);

static bool fail(const ByteSource *source, size_t at, GError **error, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    g_autofree char *text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT, "%s: byte %zu: %s",
                byte_source_name(source), at, text);
    return false;
}

static bool read_exactly(ByteSource *source, size_t at, void *buffer, size_t size, const char *what,
                         GError **error)
{
    size_t got;

    if (!byte_source_read(source, buffer, size, &got, error))
        return false;
    if (got < size)
        return fail(source, at + got, error, "expected %zu more bytes of %s; the file is truncated",
                    size - got, what);
    return true;
}

/* A fault whose `found` is given. */
static bool header_fault(RowFault *fault, const char *at, const char *expected, const char *format,
                         ...) G_GNUC_PRINTF(4, 5);

static bool header_fault(RowFault *fault, const char *at, const char *expected, const char *format,
                         ...)
{
    va_list arguments;

    row_fault(fault, at, "%s", expected);
    va_start(arguments, format);
    g_vsnprintf(fault->found, sizeof fault->found, format, arguments);
    va_end(arguments);
    return false;
}

static bool check_magic(const char *bytes, unsigned n_dimensions, const char *what, RowFault *fault)
{
    const uint8_t *b = (const uint8_t *)bytes;
    char expected[ROW_FAULT_MAX];

    if (b[0] != 0 || b[1] != 0) {
        g_snprintf(expected, sizeof expected, "an IDX file of %s, which begins with 00 00 08 %02x",
                   what, n_dimensions);
        return header_fault(fault, bytes, expected, "%02x %02x %02x %02x", b[0], b[1], b[2], b[3]);
    }
    if (b[2] != TYPE_UNSIGNED_BYTE)
        return header_fault(fault, bytes + 2, "unsigned bytes (type 08)", "%s (type %02x)",
                            type_name(b[2]), b[2]);
    if (b[3] != n_dimensions) {
        g_snprintf(expected, sizeof expected, "%u dimensions, as %s have", n_dimensions, what);
        return header_fault(fault, bytes + 3, expected, "%u; are images and labels swapped?", b[3]);
    }
    return true;
}

bool idx_read_header(const char *bytes, size_t size, unsigned n_dimensions, const char *what,
                     IdxHeader *header, RowFault *fault)
{
    const size_t header_bytes = MAGIC_BYTES * (1 + n_dimensions);
    char expected[ROW_FAULT_MAX];

    if (size >= MAGIC_BYTES && !check_magic(bytes, n_dimensions, what, fault))
        return false;
    if (size < header_bytes) {
        g_snprintf(expected, sizeof expected, "%zu more bytes of the header",
                   (size < MAGIC_BYTES ? MAGIC_BYTES : header_bytes) - size);
        return header_fault(fault, bytes + size, expected, "the end of the file");
    }
    header->header_bytes = header_bytes;
    header->n_values = 1;
    for (unsigned i = 0; i < n_dimensions; i++) {
        const char *at = bytes + MAGIC_BYTES * (1 + i);
        const uint8_t *b = (const uint8_t *)at;
        const uint32_t dimension =
            (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];

        if (dimension == 0) {
            g_snprintf(expected, sizeof expected, "at least 1 in dimension %u of %s", i, what);
            return header_fault(fault, at, expected, "0");
        }
        if (i > 0 && dimension > SIDE_MAX) {
            g_snprintf(expected, sizeof expected, "at most %u pixels a side", SIDE_MAX);
            return header_fault(fault, at, expected, "%u", dimension);
        }
        header->dimension[i] = dimension;
        header->n_values *= dimension; /* at most 2^64 - 2^32, see SIDE_MAX */
    }
    return true;
}

static bool read_header(ByteSource *source, unsigned n_dimensions, const char *what,
                        IdxHeader *header, GError **error)
{
    char bytes[IDX_HEADER_BYTES_MAX];
    RowFault fault;
    size_t got;

    if (!byte_source_read(source, bytes, MAGIC_BYTES * (1 + n_dimensions), &got, error))
        return false;
    if (!idx_read_header(bytes, got, n_dimensions, what, header, &fault))
        return fail(source, (size_t)(fault.at - bytes), error, "expected %s, found %s",
                    fault.expected, fault.found);
    if (header->n_values > byte_source_limit(source) || header->n_values >= SIZE_MAX)
        return fail(source, MAGIC_BYTES, error,
                    "the header announces %" G_GUINT64_FORMAT
                    " bytes of %s; the file cannot hold more than %" G_GUINT64_FORMAT,
                    header->n_values, what, byte_source_limit(source));
    return true;
}

/* The values, which the caller frees. */
static uint8_t *read_values(ByteSource *source, const IdxHeader *header, const char *what,
                            GError **error)
{
    const size_t n_values = (size_t)header->n_values; /* below SIZE_MAX, see read_header */
    uint8_t rubbish;
    size_t n_rubbish;
    g_autofree uint8_t *values = g_try_malloc(n_values);

    if (values == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY, "%s: no memory for %zu bytes of %s",
                    byte_source_name(source), n_values, what);
        return NULL;
    }
    if (!read_exactly(source, header->header_bytes, values, n_values, what, error) ||
        !byte_source_read(source, &rubbish, 1, &n_rubbish, error))
        return NULL;
    if (n_rubbish > 0) {
        fail(source, header->header_bytes + n_values, error,
             "expected the end of the file behind %zu bytes of %s, found more", n_values, what);
        return NULL;
    }
    return g_steal_pointer(&values);
}

uint8_t *idx_read_labels(ByteSource *source, size_t *n_labels, GError **error)
{
    IdxHeader header;
    uint8_t *labels;

    if (!read_header(source, 1, "labels", &header, error))
        return NULL;
    labels = read_values(source, &header, "labels", error);
    if (labels != NULL)
        *n_labels = header.dimension[0];
    return labels;
}

/* The labels, one for each image; NULL if they are wrong. */
static uint8_t *read_labels_of(ByteSource *labels, const ByteSource *images, uint32_t n_images,
                               GError **error)
{
    IdxHeader header;

    if (!read_header(labels, 1, "labels", &header, error))
        return NULL;
    if (header.dimension[0] != n_images) {
        fail(labels, MAGIC_BYTES, error, "expected %u labels, one for each image of %s, found %u",
             n_images, byte_source_name(images), header.dimension[0]);
        return NULL;
    }
    return read_values(labels, &header, "labels", error);
}

RubatoImages *idx_read_images(ByteSource *images, ByteSource *labels, GError **error)
{
    IdxHeader header;
    g_autofree uint8_t *label_values = NULL;
    uint32_t n_classes = 0;

    if (!read_header(images, 3, "images", &header, error))
        return NULL;
    if (labels != NULL) {
        label_values = read_labels_of(labels, images, header.dimension[0], error);
        if (label_values == NULL)
            return NULL;
        for (size_t i = 0; i < header.dimension[0]; i++)
            n_classes = MAX(n_classes, label_values[i] + 1u);
    }
    g_autofree uint8_t *pixel_values = read_values(images, &header, "images", error);
    if (pixel_values == NULL)
        return NULL;

    RubatoImages *read = g_new0(RubatoImages, 1);
    read->n_images = header.dimension[0];
    read->height = header.dimension[1];
    read->width = header.dimension[2];
    read->n_classes = n_classes;
    read->pixels = g_steal_pointer(&pixel_values);
    read->labels = g_steal_pointer(&label_values);
    return read;
}

RubatoImages *rubato_images_load(const char *images_path, const char *labels_path, GError **error)
{
    g_return_val_if_fail(images_path != NULL, NULL);

    g_autoptr(ByteSource) images = byte_source_open(images_path, error);
    if (images == NULL)
        return NULL;
    if (labels_path == NULL)
        return idx_read_images(images, NULL, error);
    g_autoptr(ByteSource) labels = byte_source_open(labels_path, error);
    return labels != NULL ? idx_read_images(images, labels, error) : NULL;
}

void rubato_images_free(RubatoImages *images)
{
    if (images == NULL)
        return;
    g_free((void *)images->pixels);
    g_free((void *)images->labels);
    g_free(images);
}
