/* The values of a table spec with its defaults filled in, and the checks of a spec.
 *
 * Threads: any; a spec is only read. */
#ifndef RUBATO_MODELS_SPEC_H
#define RUBATO_MODELS_SPEC_H

#include <rubato/table.h>

/* The most values in a row. */
#define SPEC_MAX_WIDTH (1u << 20)

/* The most parts of a table. */
#define SPEC_MAX_PARTS 4096u

/* The largest of RubatoNeeds. */
#define SPEC_MAX_NEED (UINT64_C(1) << 60)

/* Checks everything that can be known without the cluster (the number of bounds is the partition's
 * to check). RUBATO_ERROR_INVALID says which field is wrong and what to write instead;
 * RUBATO_ERROR_NOT_FOUND names an unknown model, storage, rule, record, initialiser, partition,
 * order of eviction, admission or expiry, and lists the known ones. */
bool spec_check(const RubatoTableSpec *spec, GError **error);

/* Checks the max_bytes of a spec that has passed spec_check, of which a part has so many; and so
 * many of its admit_bytes, which are among them. */
bool spec_check_share(const RubatoTableSpec *spec, uint64_t share, uint64_t admit_bytes,
                      GError **error);

/* Refuses a spec: RUBATO_ERROR_INVALID, with the table's name and then the fault. Returns false. */
bool spec_refuse(const RubatoTableSpec *spec, GError **error, const char *format, ...)
    G_GNUC_PRINTF(3, 4);

/* The same for a field that is given and has no effect; it needs what `needs` says. */
bool spec_refuse_idle(const RubatoTableSpec *spec, const char *field, const char *needs,
                      GError **error);

/* The names, with the defaults of rubato/table.h for NULL. (transfer none) */
const char *spec_storage_name(const RubatoTableSpec *spec);
const char *spec_model_name(const RubatoTableSpec *spec);
const char *spec_update_name(const RubatoTableSpec *spec);
const char *spec_init_name(const RubatoTableSpec *spec);
const char *spec_record_name(const RubatoTableSpec *spec);
const char *spec_partition_name(const RubatoTableSpec *spec);
const char *spec_evict_name(const RubatoTableSpec *spec);
const char *spec_admit_name(const RubatoTableSpec *spec);  /* "all" for NULL */
const char *spec_expire_name(const RubatoTableSpec *spec); /* "never" for NULL */

/* The numbers, also with their defaults. */
uint32_t spec_width(const RubatoTableSpec *spec);
uint32_t spec_chunk_size(const RubatoTableSpec *spec);
uint64_t spec_max_kept_bytes(const RubatoTableSpec *spec); /* 0: its model keeps no Adds */
uint64_t spec_admit_bytes(const RubatoTableSpec *spec);    /* 0: it does not count */
size_t spec_row_bytes(const RubatoTableSpec *spec);        /* of a row's values */

/* What lies behind a row's values: the update rule's state, then, if rows expire, the stamp: when
 * the row was written last. It takes as much as a value. */
size_t spec_state_bytes(const RubatoTableSpec *spec);
size_t spec_stamp_bytes(const RubatoTableSpec *spec); /* of these; 0: rows do not expire */

/* Whether the storage tells how much memory a table takes. */
bool spec_knows_memory(const RubatoTableSpec *spec);

/* Whether rows expire by the clocks of workers. */
bool spec_counts_clocks(const RubatoTableSpec *spec);

#endif
