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

/* Of larger sizes than are measured, in place of the bytes. */
static const char larger[] = "larger";

struct TensorTuning {
    char *path;
    char *task;
    uint32_t n_nodes;
    bool is_pinned; /* the file was there, or a way was named: nothing is measured or written */
    bool has_found; /* something that is to be written */
    TensorTuner tuner;
};

/* ---- the file ---- */

/* The class of "65536", or of "larger". TENSOR_CLASSES: there is none. */
static uint32_t read_class(const char *text)
{
    char *end;

    if (strcmp(text, larger) == 0)
        return TENSOR_MEASURED_CLASSES;
    const uint64_t n_bytes = g_ascii_strtoull(text, &end, 10);
    const uint32_t size_class = tensor_class_of(n_bytes);
    return *end != '\0' || size_class >= TENSOR_MEASURED_CLASSES ||
                   tensor_class_bytes(size_class) != n_bytes
               ? TENSOR_CLASSES
               : size_class;
}

/* "65536 direct …": false if the line is none. */
static bool read_line(TensorTuner *tuner, const char *line)
{
    char size[16], name[16];
    TensorWay way;

    if (sscanf(line, "%15s %15s", size, name) != 2 || !tensor_way_find(name, &way))
        return false;
    const uint32_t size_class = read_class(size);
    if (size_class == TENSOR_CLASSES)
        return false;
    tensor_tuner_pin(tuner, size_class, way);
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

static void append_medians(GString *text, const TensorTrial *trial, const char *sign)
{
    for (uint32_t way = 0; way < TENSOR_WAYS; way++)
        if (trial->n_samples[way] > 0)
            g_string_append_printf(text, " %s%s%.1f", tensor_way_name((TensorWay)way), sign,
                                   (double)trial->medians[way] / 1000);
}

static void write_file(const TensorTuning *tuning)
{
    g_autoptr(GString) text = g_string_new(
        "# Cut-overs of allreduce between nodes: up to so many bytes, which way; medians in "
        "microseconds.\n");
    g_autoptr(GError) error = NULL;

    g_string_append_printf(text, "nodes %u\n", tuning->n_nodes);
    for (uint32_t i = 0; i < TENSOR_MEASURED_CLASSES; i++) {
        const TensorTrial *const trial = &tuning->tuner.trials[i];

        if (!trial->is_settled)
            continue;
        g_string_append_printf(text, "%" G_GUINT64_FORMAT " %s", tensor_class_bytes(i),
                               tensor_way_name(tensor_cutovers_way(tuning->tuner.cutovers, i)));
        append_medians(text, trial, "=");
        g_string_append_c(text, '\n');
    }
    if (!g_file_set_contents(tuning->path, text->str, (gssize)text->len, &error))
        g_warning("task %s: its cut-overs are not kept: %s", tuning->task, error->message);
}

/* ---- its life ---- */

/* A way for all sizes, or which ways are measured. False: it is neither. */
static bool read_way(TensorTuning *tuning, const char *name, TensorCutovers cutovers,
                     GError **error)
{
    const uint32_t ways = tensor_ways_of(tuning->n_nodes);
    TensorWay way;

    if (name == NULL) {
        tensor_tuner_init(&tuning->tuner, cutovers, ways & TENSOR_WAYS_IN_ORDER);
    } else if (tensor_way_find(name, &way)) {
        tensor_tuner_init(&tuning->tuner, tensor_cutovers_all(way), 1u << way);
        tuning->is_pinned = true;
    } else if (strcmp(name, TENSOR_ANY_WAY) == 0 && tuning->path != NULL) {
        tensor_tuner_init(&tuning->tuner, cutovers, ways);
    } else {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG,
                    "\"%s\" is no way of an allreduce between nodes: reduce-scatter, direct, "
                    "doubling, halving, ring, or " TENSOR_ANY_WAY " with a file of cut-overs",
                    name);
        return false;
    }
    return true;
}

TensorTuning *tensor_tuning_new(const char *path, const char *way, const char *task,
                                uint32_t n_nodes, TensorCutovers cutovers, GError **error)
{
    TensorTuning *const tuning = g_new0(TensorTuning, 1);

    tuning->path = g_strdup(path);
    tuning->task = g_strdup(task);
    tuning->n_nodes = n_nodes;
    if (read_way(tuning, way, cutovers, error) && (tuning->is_pinned || read_file(tuning, error)))
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

TensorCutovers tensor_tuning_cutovers(const TensorTuning *tuning)
{
    return tuning->tuner.cutovers;
}

bool tensor_tuning_measures(const TensorTuning *tuning)
{
    return !tuning->is_pinned;
}

bool tensor_tuning_note(TensorTuning *tuning, uint32_t size_class, TensorWay way, uint64_t ns)
{
    const TensorTuner *const tuner = &tuning->tuner;
    const TensorCutovers before = tuner->cutovers;

    if (tuning->is_pinned ||
        tensor_tuner_note(&tuning->tuner, size_class, way, ns) != TENSOR_TUNER_SETTLES)
        return tuner->cutovers != before;
    g_autoptr(GString) medians = g_string_new(NULL);
    append_medians(medians, &tuner->trials[size_class], " ");
    g_message("task %s: allreduce up to %" G_GUINT64_FORMAT
              " bytes goes by %s from now on; medians in microseconds:%s",
              tuning->task, tensor_class_bytes(size_class),
              tensor_way_name(tensor_cutovers_way(tuner->cutovers, size_class)), medians->str);
    tuning->has_found = true;
    return tuner->cutovers != before;
}
