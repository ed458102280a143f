/* Everything that an application needs. */
#ifndef RUBATO_RUBATO_H
#define RUBATO_RUBATO_H

#include <rubato/bytes.h>
#include <rubato/chunk_table.h>
#include <rubato/collectives.h>
#include <rubato/data.h>
#include <rubato/engine.h>
#include <rubato/error.h>
#include <rubato/handler.h>
#include <rubato/kv_table.h>
#include <rubato/mix.h>
#include <rubato/npy.h>
#include <rubato/plugin.h>
#include <rubato/ragged_table.h>
#include <rubato/remote_follower.h>
#include <rubato/service.h>
#include <rubato/snapshot.h>
#include <rubato/sparse_kv_client_table.h>
#include <rubato/stream.h>
#include <rubato/table.h>
#include <rubato/table_files.h>
#include <rubato/task.h>
#include <rubato/ticket.h>
#include <rubato/timeline.h>
#include <rubato/types.h>

#endif
