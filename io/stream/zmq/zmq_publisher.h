/* The side of a stream over ZeroMQ that has the versions: RubatoStreamWriterOps.
 *
 * Threads: as the ops say. */
#ifndef RUBATO_IO_STREAM_ZMQ_ZMQ_PUBLISHER_H
#define RUBATO_IO_STREAM_ZMQ_ZMQ_PUBLISHER_H

#include <rubato/stream_ops.h>

RubatoStreamWriter *zmq_publisher_open(const char *rest, const char *directory, GError **error);
void zmq_publisher_tell(RubatoStreamWriter *writer, uint64_t version);
void zmq_publisher_close(RubatoStreamWriter *writer);

#endif
