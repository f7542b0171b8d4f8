package sparkcache;

import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;

/** A partition; `planned` is empty if it is to be read in Python. */
record TopicPartition(
    PythonInputPartition python, byte[] planned, byte[] bounds, int columns, long rows)
    implements InputPartition {}
