/* The file of tables that `rubato place` reads: what they need, so far as a plan depends on it.
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_CLUSTER_TABLE_LIST_H
#define RUBATO_ENGINE_CLUSTER_TABLE_LIST_H

#include <rubato/table.h>

typedef struct {
    RubatoTableSpec *specs; /* checked as libconfig's values, not yet as specs */
    uint32_t n;
} TableList;

/* NULL with RUBATO_ERROR_IO, or RUBATO_ERROR_CONFIG with file:line and what to write instead.
 * (transfer full) */
TableList *table_list_read(const char *path, GError **error);
void table_list_free(TableList *list);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(TableList, table_list_free)

#endif
