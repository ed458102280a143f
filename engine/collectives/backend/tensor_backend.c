/* The backends of collectives that there are: see tensor_backend.h. */
#include "engine/collectives/backend/tensor_backend.h"

#include <rubato/error.h>
#include <string.h>

static const struct {
    const char *name;
    const TensorBackendOps *ops; /* NULL: it was not built in */
} backends[] = {
    { TENSOR_BACKEND_OWN, &tensor_backend_own },
#ifdef RUBATO_HAS_MPI
    { "mpi", &tensor_backend_mpi },
#else
    { "mpi", NULL },
#endif
};

const char *tensor_backend_name(size_t i)
{
    return i < G_N_ELEMENTS(backends) ? backends[i].name : NULL;
}

const TensorBackendOps *tensor_backend_find(const char *name, GError **error)
{
    bool is_known = false;

    for (size_t i = 0; i < G_N_ELEMENTS(backends); i++) {
        if (strcmp(backends[i].name, name) != 0)
            continue;
        if (backends[i].ops != NULL)
            return backends[i].ops;
        is_known = true;
    }
    g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_CONFIG,
                is_known ? "Rubato was built without the backend \"%s\" of collectives; build it "
                           "where Open MPI is (Debian's libopenmpi-dev), or leave 'collectives' out"
                         : "there is no backend \"%s\" of collectives",
                name);
    return NULL;
}
