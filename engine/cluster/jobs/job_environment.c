/* What job systems share: see job_environment.h. */
#include "engine/cluster/jobs/job_environment.h"

#include <dlfcn.h>
#include <rubato/error.h>
#include <string.h>

#include "io/number_text.h"

#define ANSWER_VARIABLE "RUBATO_JOB_ANSWER"

bool job_read_number(const JobStarter *starter, const char *name, uint64_t lowest, uint64_t highest,
                     uint32_t *number, GError **error)
{
    const char *const text = g_getenv(name);
    uint64_t value;

    if (text == NULL || !number_text_read(text, lowest, highest, &value)) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_INVALID,
                    "%s, but %s is %s%s%s, no number from %" G_GUINT64_FORMAT
                    " to %" G_GUINT64_FORMAT "; start the program with %s, or set "
                    "RUBATO_ROLE=alone for a process of its own",
                    starter->started, name, text != NULL ? "\"" : "",
                    text != NULL ? text : "not set", text != NULL ? "\"" : "", lowest, highest,
                    starter->command);
        return false;
    }
    *number = (uint32_t)value;
    return true;
}

void job_remember(const char *job, const char *answer)
{
    g_autofree char *text = g_strdup_printf("%s %s", job, answer);

    g_setenv(ANSWER_VARIABLE, text, TRUE);
}

const char *job_recall(const char *job)
{
    const char *const text = g_getenv(ANSWER_VARIABLE);
    const size_t length = strlen(job);

    if (text == NULL || strncmp(text, job, length) != 0 || text[length] != ' ')
        return NULL;
    return g_intern_string(text + length + 1);
}

bool job_uses_mpi(bool *has_begun)
{
    void *const address = dlsym(RTLD_DEFAULT, "MPI_Initialized");
    int (*is_initialized)(int *) = NULL;
    int flag = 0;

    *has_begun = false;
    if (address == NULL)
        return false;
    memcpy(&is_initialized, &address, sizeof is_initialized); /* C has no cast for it; POSIX does */
    *has_begun = is_initialized(&flag) == 0 && flag != 0;
    return true;
}
