/* Reads and writes .npy files.
 *
 * Such a file is the magic "\x93NUMPY", two bytes of version, two of the header's length, then the
 * header: a dict of Python with the keys descr, fortran_order and shape in any order, padded with
 * blanks so that the values begin at a multiple of 64; then the values. */
#include <rubato/npy.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MAGIC "\x93NUMPY\x01\x00"
#define MAGIC_BYTES 8u
#define PREFIX_BYTES (MAGIC_BYTES + 2)
#define ALIGNMENT 64u

/* Values travel as they lie in memory. */
G_STATIC_ASSERT(G_BYTE_ORDER == G_LITTLE_ENDIAN);

static const struct {
    const char *descr;
    size_t n_bytes;
} descrs[] = { { "<f4", 4 }, { "<f8", 8 }, { "<i4", 4 }, { "<i8", 8 }, { RUBATO_NPY_KEYS, 8 } };

const char *rubato_npy_descr(RubatoDtype dtype)
{
    return dtype <= RUBATO_I64 ? descrs[dtype].descr : NULL;
}

/* 0: unknown */
static size_t value_bytes(const char *descr)
{
    for (size_t i = 0; i < G_N_ELEMENTS(descrs); i++)
        if (strcmp(descrs[i].descr, descr) == 0)
            return descrs[i].n_bytes;
    return 0;
}

/* "(785, 10)", "(785,)". (transfer full) */
static char *shape_text(unsigned n_dimensions, const uint64_t *shape)
{
    return n_dimensions == 1 ? g_strdup_printf("(%" G_GUINT64_FORMAT ",)", shape[0])
                             : g_strdup_printf("(%" G_GUINT64_FORMAT ", %" G_GUINT64_FORMAT ")",
                                               shape[0], shape[1]);
}

char *rubato_npy_header(const char *descr, unsigned n_dimensions, const uint64_t *shape,
                        size_t *n_bytes)
{
    g_autofree char *dimensions = shape_text(n_dimensions, shape);
    g_autofree char *dict = g_strdup_printf(
        "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, dimensions);
    const size_t used = PREFIX_BYTES + strlen(dict) + 1; /* a newline ends it */
    const size_t all = (used + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    const size_t rest = all - PREFIX_BYTES;
    char *header = g_malloc(all + 1);

    memcpy(header, MAGIC, MAGIC_BYTES);
    header[MAGIC_BYTES] = (char)(rest & 0xff);
    header[MAGIC_BYTES + 1] = (char)(rest >> 8);
    g_snprintf(header + PREFIX_BYTES, rest + 1, "%s%*s\n", dict, (int)(all - used), "");
    *n_bytes = all;
    return header;
}

/* ---- the header's dict ---- */

static void skip_blanks(const char **at)
{
    *at += strspn(*at, " \t\r\n");
}

/* Takes a sign, with blanks before it. */
static bool take(const char **at, char sign)
{
    skip_blanks(at);
    if (**at != sign)
        return false;
    (*at)++;
    return true;
}

/* Takes a text in quotes, without escapes. */
static bool take_text(const char **at, char *text, size_t size)
{
    skip_blanks(at);
    const char quote = **at;
    const char *end = quote == '\'' || quote == '"' ? strchr(*at + 1, quote) : NULL;

    if (end == NULL || (size_t)(end - *at) > size)
        return false;
    memcpy(text, *at + 1, (size_t)(end - *at) - 1);
    text[end - *at - 1] = '\0';
    *at = end + 1;
    return true;
}

static bool take_false(const char **at)
{
    skip_blanks(at);
    if (!g_str_has_prefix(*at, "False"))
        return false;
    *at += strlen("False");
    return true;
}

/* "(3,)" or "(3, 4)". */
static bool take_shape(const char **at, RubatoNpy *npy)
{
    if (!take(at, '('))
        return false;
    npy->n_dimensions = 0;
    while (!take(at, ')')) {
        char *end;

        if (npy->n_dimensions == G_N_ELEMENTS(npy->shape) || !g_ascii_isdigit(**at))
            return false;
        errno = 0;
        npy->shape[npy->n_dimensions++] = g_ascii_strtoull(*at, &end, 10);
        *at = end;
        if (errno != 0 || (!take(at, ',') && **at != ')'))
            return false;
    }
    return npy->n_dimensions > 0;
}

static bool read_dict(const char *at, RubatoNpy *npy)
{
    bool has_descr = false, has_order = false, has_shape = false;

    if (!take(&at, '{'))
        return false;
    while (!take(&at, '}')) {
        char key[16];

        if (!take_text(&at, key, sizeof key) || !take(&at, ':'))
            return false;
        if (strcmp(key, "descr") == 0 && take_text(&at, npy->descr, sizeof npy->descr))
            has_descr = true;
        else if (strcmp(key, "fortran_order") == 0 && take_false(&at))
            has_order = true;
        else if (strcmp(key, "shape") == 0 && take_shape(&at, npy))
            has_shape = true;
        else
            return false;
        if (!take(&at, ',') && *at != '}')
            return false;
    }
    skip_blanks(&at);
    return *at == '\0' && has_descr && has_order && has_shape && value_bytes(npy->descr) > 0;
}

/* ---- files ---- */

static bool fail(const RubatoNpy *npy, RubatoError code, GError **error, const char *what)
{
    g_set_error(error, RUBATO_ERROR, (gint)code, "%s: %s", npy->path, what);
    return false;
}

static bool read_header(RubatoNpy *npy, GError **error)
{
    uint8_t prefix[PREFIX_BYTES];

    if (fread(prefix, 1, PREFIX_BYTES, npy->file) != PREFIX_BYTES ||
        memcmp(prefix, MAGIC, MAGIC_BYTES) != 0)
        return fail(npy, RUBATO_ERROR_FORMAT, error,
                    "expected a NumPy array, which begins with \\x93NUMPY and version 1.0");
    const size_t n = (size_t)(prefix[MAGIC_BYTES] | prefix[MAGIC_BYTES + 1] << 8);
    g_autofree char *dict = g_malloc0(n + 1);
    if (fread(dict, 1, n, npy->file) != n)
        return fail(npy, RUBATO_ERROR_FORMAT, error, "the header is cut off");
    if (strlen(dict) != n || !read_dict(dict, npy))
        return fail(
            npy, RUBATO_ERROR_FORMAT, error,
            "expected a header such as {'descr': '<f4', 'fortran_order': False, 'shape': "
            "(3, 2), } with a descr of <f4, <f8, <i4, <i8 or <u8 and one or two dimensions");
    return true;
}

/* Whether the file ends where the last value does. */
static bool check_size(const RubatoNpy *npy, GError **error)
{
    const uint64_t columns = npy->n_dimensions == 2 ? npy->shape[1] : 1;
    const long begin = ftell(npy->file);
    struct stat about;
    uint64_t n_bytes;

    if (begin < 0 || fstat(fileno(npy->file), &about) != 0)
        return fail(npy, RUBATO_ERROR_IO, error, g_strerror(errno));
    if (!__builtin_mul_overflow(npy->shape[0], columns, &n_bytes) &&
        !__builtin_mul_overflow(n_bytes, value_bytes(npy->descr), &n_bytes) &&
        n_bytes == (uint64_t)about.st_size - (uint64_t)begin)
        return true;
    g_autofree char *shape = shape_text(npy->n_dimensions, npy->shape);
    g_autofree char *what = g_strdup_printf(
        "expected an array of %s values of %zu bytes behind the header, found %" G_GINT64_FORMAT
        " bytes",
        shape, value_bytes(npy->descr), (int64_t)about.st_size - begin);
    return fail(npy, RUBATO_ERROR_FORMAT, error, what);
}

RubatoNpy *rubato_npy_open(const char *path, GError **error)
{
    g_autoptr(RubatoNpy) npy = g_new0(RubatoNpy, 1);

    npy->path = g_strdup(path);
    npy->file = fopen(path, "rbe");
    if (npy->file == NULL) {
        fail(npy, RUBATO_ERROR_IO, error, g_strerror(errno));
        return NULL;
    }
    return read_header(npy, error) && check_size(npy, error) ? g_steal_pointer(&npy) : NULL;
}

void rubato_npy_free(RubatoNpy *npy)
{
    if (npy == NULL)
        return;
    if (npy->file != NULL)
        fclose(npy->file);
    g_free(npy->path);
    g_free(npy);
}

bool rubato_npy_check(const RubatoNpy *npy, const char *descr, unsigned n_dimensions,
                      const uint64_t *shape, GError **error)
{
    if (strcmp(npy->descr, descr) == 0 && npy->n_dimensions == n_dimensions &&
        memcmp(npy->shape, shape, n_dimensions * sizeof *shape) == 0)
        return true;
    g_autofree char *expected = shape_text(n_dimensions, shape);
    g_autofree char *found = shape_text(npy->n_dimensions, npy->shape);
    g_autofree char *what = g_strdup_printf("expected an array %s of %s, found %s of %s", expected,
                                            descr, found, npy->descr);
    return fail(npy, RUBATO_ERROR_FORMAT, error, what);
}

bool rubato_npy_read(RubatoNpy *npy, void *values, size_t n_bytes, GError **error)
{
    if (fread(values, 1, n_bytes, npy->file) == n_bytes)
        return true;
    return fail(npy, RUBATO_ERROR_IO, error,
                ferror(npy->file) ? g_strerror(errno) : "it has become shorter while it was read");
}
