/* Cut-overs of allreduce that are measured while a task runs, on the node of rank 0: see
 * tensor_tuning.h.
 *
 * What it finds is told to the coordinator with the next request of this node, and by the
 * coordinator to all nodes, between two operations: so all of them take the same way for each. */
#include "engine/collectives/tensor_tuning.h"

#include <rubato/error.h>
#include <stdio.h>
#include <string.h>

enum { MOST_FILE_BYTES = 64 << 10 };

static const char *const ways[TENSOR_WAYS] = { "reduce-scatter", "direct" };

struct TensorTuning {
    char *path;
    char *task;
    uint32_t n_nodes;
    bool is_pinned; /* the file was there: nothing is measured or written */
    bool has_found; /* something that is to be written */
    TensorTuner tuner;
};

/* ---- the file ---- */

/* "65536 direct …": false if the line is none. */
static bool read_line(TensorTuner *tuner, const char *line)
{
    char way[16];
    unsigned long long n_bytes;

    if (sscanf(line, "%llu %15s", &n_bytes, way) != 2)
        return false;
    const uint32_t size_class = tensor_class_of(n_bytes);
    const bool directly = strcmp(way, ways[true]) == 0;
    if (size_class == TENSOR_CLASSES || tensor_class_bytes(size_class) != n_bytes ||
        (!directly && strcmp(way, ways[false]) != 0))
        return false;
    tensor_tuner_pin(tuner, size_class, directly);
    return true;
}

static bool read_text(TensorTuning *tuning, const char *text, GError **error)
{
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    bool has_nodes = false;

    for (guint i = 0; lines[i] != NULL; i++) {
        unsigned n_nodes;

        if (*g_strstrip(lines[i]) == '\0' || lines[i][0] == '#')
            continue;
        if (!has_nodes && sscanf(lines[i], "nodes %u", &n_nodes) == 1) {
            has_nodes = true;
            if (n_nodes == tuning->n_nodes)
                continue;
            g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG,
                        "%s has the cut-overs of %u nodes, and workers of task %s are on %u; name "
                        "another file",
                        tuning->path, n_nodes, tuning->task, tuning->n_nodes);
            return false;
        }
        if (has_nodes && read_line(&tuning->tuner, lines[i]))
            continue;
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
                    "%s, line %u: \"%s\" is no cut-over; remove the file to measure anew",
                    tuning->path, i + 1, lines[i]);
        return false;
    }
    if (!has_nodes)
        g_set_error(
            error, RUBATO_ERROR, RUBATO_ERROR_FORMAT,
            "%s does not say of how many nodes its cut-overs are; remove it to measure anew",
            tuning->path);
    return has_nodes;
}

/* A file that is not there is written later. */
static bool read_file(TensorTuning *tuning, GError **error)
{
    g_autoptr(GError) failure = NULL;
    g_autofree char *text = NULL;
    gsize n;

    if (!g_file_get_contents(tuning->path, &text, &n, &failure)) {
        if (g_error_matches(failure, G_FILE_ERROR, G_FILE_ERROR_NOENT))
            return true;
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_IO, "%s", failure->message);
        return false;
    }
    tuning->is_pinned = true;
    if (n > MOST_FILE_BYTES || strlen(text) != n || !g_utf8_validate(text, -1, NULL)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_FORMAT, "%s is no file of cut-overs",
                    tuning->path);
        return false;
    }
    return read_text(tuning, text, error);
}

static void write_file(const TensorTuning *tuning)
{
    g_autoptr(GString) text = g_string_new(
        "# Cut-overs of allreduce between nodes: up to so many bytes, which way; medians in "
        "microseconds.\n");
    g_autoptr(GError) error = NULL;

    g_string_append_printf(text, "nodes %u\n", tuning->n_nodes);
    for (uint32_t i = 0; i < TENSOR_CLASSES; i++) {
        const TensorTrial *const trial = &tuning->tuner.trials[i];

        if (!trial->is_settled)
            continue;
        g_string_append_printf(text, "%" G_GUINT64_FORMAT " %s", tensor_class_bytes(i),
                               ways[tuning->tuner.direct >> i & 1]);
        for (uint32_t way = 0; way < TENSOR_WAYS; way++)
            g_string_append_printf(text, " %s=%.1f", ways[way], (double)trial->medians[way] / 1000);
        g_string_append_c(text, '\n');
    }
    if (!g_file_set_contents(tuning->path, text->str, (gssize)text->len, &error))
        g_warning("task %s: its cut-overs are not kept: %s", tuning->task, error->message);
}

/* ---- its life ---- */

TensorTuning *tensor_tuning_new(const char *path, const char *task, uint32_t n_nodes,
                                uint32_t direct, GError **error)
{
    TensorTuning *const tuning = g_new0(TensorTuning, 1);

    tuning->path = g_strdup(path);
    tuning->task = g_strdup(task);
    tuning->n_nodes = n_nodes;
    tensor_tuner_init(&tuning->tuner, direct);
    if (read_file(tuning, error))
        return tuning;
    tensor_tuning_free(tuning);
    return NULL;
}

void tensor_tuning_free(TensorTuning *tuning)
{
    if (tuning == NULL)
        return;
    if (tuning->has_found)
        write_file(tuning);
    g_free(tuning->path);
    g_free(tuning->task);
    g_free(tuning);
}

uint32_t tensor_tuning_direct(const TensorTuning *tuning)
{
    return tuning->tuner.direct;
}

bool tensor_tuning_measures(const TensorTuning *tuning)
{
    return !tuning->is_pinned;
}

bool tensor_tuning_note(TensorTuning *tuning, uint32_t size_class, bool directly, uint64_t ns)
{
    const uint32_t before = tuning->tuner.direct;

    if (tuning->is_pinned ||
        tensor_tuner_note(&tuning->tuner, size_class, directly, ns) != TENSOR_TUNER_SETTLES)
        return tuning->tuner.direct != before;
    const uint64_t *const medians = tuning->tuner.trials[size_class].medians;
    g_message("task %s: allreduce up to %" G_GUINT64_FORMAT
              " bytes goes by %s from now on: direct %.1f us, reduce-scatter %.1f us",
              tuning->task, tensor_class_bytes(size_class),
              ways[tuning->tuner.direct >> size_class & 1], (double)medians[true] / 1000,
              (double)medians[false] / 1000);
    tuning->has_found = true;
    return tuning->tuner.direct != before;
}
