/* Memory that data leave to what a process cannot do without.
 *
 * Rows, and requests that wait, take memory until there is none, and then a task fails in order.
 * Meanwhile any thread may need a little for a text or the header of a message, and GLib ends the
 * process if it gets none. So memory for data is asked for here first.
 *
 * Threads: any. */
#ifndef RUBATO_IO_MEMORY_ROOM_H
#define RUBATO_IO_MEMORY_ROOM_H

#include <stdbool.h>
#include <stddef.h>

/* Whether so many bytes may be taken for data: there is room for other things beside them. False is
 * to be dealt with as an allocation that has failed. It costs two system calls for each megabyte
 * that the thread takes. */
bool memory_leaves_room(size_t n_bytes);

/* As g_try_malloc, for data: NULL also if it would leave no room. (transfer full, g_free) */
void *memory_try_malloc(size_t n_bytes);

/* The same for what goes soon, such as what the network has received. It leaves less room, so that
 * a request for which rows have left no memory still comes, and fails. */
void *memory_try_malloc_briefly(size_t n_bytes);

#endif
