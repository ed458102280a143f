/* Tasks as lines of text: "task 3;2 0 1;0 4;1" is task 3 with two workers on the first node and one
 * on the third, and with tables 0 and 4; the last number is 1 if lost workers are replaced.
 *
 * Runs on the caller's thread and keeps no state. */
#include "engine/control/told_task.h"

#include <string.h>

#include "engine/control/control.h"

#define BEGIN "task "

void told_task_write(GString *text, const ToldTask *task, uint32_t n_nodes, const char *tables)
{
    g_string_append_printf(text, BEGIN "%u;", task->epoch);
    for (uint32_t node = 0; node < n_nodes; node++)
        g_string_append_printf(text, "%s%u", node > 0 ? " " : "", task->workers_of[node]);
    g_string_append_printf(text, ";%s;%d\n", tables, task->replaces);
}

/* NULL: they are no numbers. (transfer full) */
static uint32_t *read_numbers(const char *text, uint32_t most, uint32_t *n)
{
    g_auto(GStrv) words = g_strsplit(text, " ", -1);
    g_autofree uint32_t *numbers = g_new(uint32_t, g_strv_length(words) + 1);
    guint64 number;

    *n = g_strv_length(words);
    for (uint32_t i = 0; i < *n; i++) {
        if (!g_ascii_string_to_unsigned(words[i], 10, 0, most, &number, NULL))
            return NULL;
        numbers[i] = (uint32_t)number;
    }
    return g_steal_pointer(&numbers);
}

static bool read_fields(char **fields, uint32_t n_nodes, ToldTask *task)
{
    uint64_t n_workers = 0;
    guint64 epoch, replaces;
    uint32_t n;

    if (!g_ascii_string_to_unsigned(fields[0], 10, 1, UINT32_MAX, &epoch, NULL) ||
        !g_ascii_string_to_unsigned(fields[3], 10, 0, 1, &replaces, NULL))
        return false;
    task->epoch = (uint32_t)epoch;
    task->replaces = replaces != 0;
    task->workers_of = read_numbers(fields[1], CONTROL_MAX_WORKERS, &n);
    task->tables = read_numbers(fields[2], UINT32_MAX, &task->n_tables);
    if (task->workers_of == NULL || n != n_nodes || task->tables == NULL)
        return false;
    for (uint32_t node = 0; node < n_nodes; node++)
        n_workers += task->workers_of[node];
    task->n_workers = (uint32_t)MIN(n_workers, UINT32_MAX);
    return n_workers > 0 && n_workers <= CONTROL_MAX_WORKERS;
}

bool told_task_read(const char **text, uint32_t n_nodes, ToldTask *task)
{
    const char *const end = strchr(*text, '\n');
    ToldTask told = { 0 };

    if (end == NULL || !g_str_has_prefix(*text, BEGIN))
        return false;
    g_autofree char *line = g_strndup(*text + strlen(BEGIN), (gsize)(end - *text) - strlen(BEGIN));
    g_auto(GStrv) fields = g_strsplit(line, ";", -1);
    if (g_strv_length(fields) != 4 || !read_fields(fields, n_nodes, &told)) {
        told_task_clear(&told);
        return false;
    }
    *task = told;
    *text = end + 1;
    return true;
}

void told_task_clear(ToldTask *task)
{
    g_free(task->workers_of);
    g_free(task->tables);
    *task = (ToldTask){ 0 };
}
