/* The side of a stream over ZeroMQ that gets the versions: RubatoStreamReaderOps.
 *
 * Threads: as the ops say. */
#ifndef RUBATO_IO_STREAM_ZMQ_ZMQ_READER_H
#define RUBATO_IO_STREAM_ZMQ_ZMQ_READER_H

#include <rubato/stream_ops.h>

RubatoStreamReader *zmq_reader_open(const char *rest, char **directory, GError **error);
bool zmq_reader_check(RubatoStreamReader *reader, GError **error);
void zmq_reader_close(RubatoStreamReader *reader);

#endif
